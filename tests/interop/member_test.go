package interop

import (
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// The servers of the SDKs as members of a team, over every binding of 1.0.
func TestA_12_A_23_Members(t *testing.T) {
	t.Run("a2a-go", func(t *testing.T) {
		at := serveForeign(t)
		for _, b := range bindings() {
			t.Run(string(b), func(t *testing.T) { goSDK(t, b).Member(t, at, "1.0") })
		}
	})
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
			for _, b := range bindings() {
				t.Run(string(b), func(t *testing.T) {
					interoprig.Column{Client: sdk.name, Version: version, Binding: string(b)}.
						Member(t, interoprig.Agent(t, program, sdk.script, string(b)), "1.0")
				})
			}
		})
	}
}
