package interop03

import (
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// The SDKs of 0.3 for JavaScript and Python as the client, as processes of their own,
// over both of the bindings that we serve.
func TestA_25_ScriptedClients_A_12(t *testing.T) {
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
			for _, b := range []string{"JSONRPC", "HTTP+JSON"} {
				t.Run(b, func(t *testing.T) {
					interoprig.Column{Client: sdk.name, Version: version, Binding: b + " 0.3"}.Script(t, program, sdk.script, s.URL, b)
				})
			}
		})
	}
}

// The servers of the SDKs of 0.3 as members of a team.
func TestA_25_Members_A_23(t *testing.T) {
	t.Run("a2a-go", func(t *testing.T) { goSDK(t).Member(t, serveFar(t, &far{}, true), "0.3") })
	for _, sdk := range []struct {
		name, file string
		program    func(*testing.T) string
		script     string
	}{
		{"@a2a-js/sdk", filepath.Join("js", "package.json"), interoprig.Node, filepath.Join("js", "member.mjs")},
		{"a2a-sdk", filepath.Join("python", "requirements.in"), interoprig.Python, filepath.Join("python", "member.py")},
	} {
		t.Run(sdk.name, func(t *testing.T) {
			program, version := sdk.program(t), interoprig.Pinned(t, sdk.file, sdk.name)
			for _, b := range []string{"JSONRPC", "HTTP+JSON"} {
				t.Run(b, func(t *testing.T) {
					interoprig.Column{Client: sdk.name, Version: version, Binding: b + " 0.3"}.
						Member(t, interoprig.Agent(t, program, sdk.script, b), "0.3")
				})
			}
		})
	}
}
