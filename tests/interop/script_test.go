package interop

import (
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// The SDKs for JavaScript and Python, as processes of their own: over every binding of
// 1.0, and with their clients for 0.3 over those that we serve.
func TestA_12_A_25_ScriptedClients(t *testing.T) {
	s := interoprig.Serve(t, interoprig.BuildServer(t), interoprig.Team(t))
	for _, sdk := range []struct {
		name, file string
		program    func(*testing.T) string
		script     string
	}{
		{"@a2a-js/sdk", filepath.Join("js", "package.json"), interoprig.Node, filepath.Join("js", "script.mjs")},
		{"a2a-sdk", filepath.Join("python", "requirements.in"), interoprig.Python, filepath.Join("python", "script.py")},
	} {
		t.Run(sdk.name, func(t *testing.T) {
			program, version := sdk.program(t), interoprig.Pinned(t, sdk.file, sdk.name)
			for _, b := range bindings() {
				t.Run(string(b), func(t *testing.T) {
					interoprig.Column{Client: sdk.name, Version: version, Binding: string(b)}.Script(t, program, sdk.script, s.URL, string(b))
				})
			}
			for _, b := range []string{"JSONRPC", "HTTP+JSON"} {
				t.Run(b+" 0.3", func(t *testing.T) {
					interoprig.Column{Client: sdk.name, Version: version, Binding: b + " 0.3"}.Script(t, program, sdk.script, s.URL, b, "0.3")
				})
			}
		})
	}
}
