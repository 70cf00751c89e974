package interop03

import (
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// The JS SDK of 0.3 as the client, over both of its bindings that we serve.
func TestA_25_JSSDK03_A_12(t *testing.T) {
	node := interoprig.Node(t)
	s := interoprig.Serve(t, interoprig.BuildServer(t), interoprig.Team(t))
	version := interoprig.Pinned(t, filepath.Join("js", "package.json"), "@a2a-js/sdk")
	for _, b := range []string{"JSONRPC", "HTTP+JSON"} {
		t.Run(b, func(t *testing.T) {
			interoprig.Column{Client: "@a2a-js/sdk", Version: version, Binding: b + " 0.3"}.Script(t, node, filepath.Join("js", "script.mjs"), s.URL, b)
		})
	}
}
