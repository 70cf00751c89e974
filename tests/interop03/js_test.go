package interop03

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// jsSteps is how many steps the script has: a script that ends early is no success.
const jsSteps = 9

// The JS SDK of 0.3 as the client, over both of its bindings that need nothing else.
func TestA_25_JSSDK03_A_12(t *testing.T) {
	node := tool(t, "node", "install Node.js 18 or newer; see https://nodejs.org")
	script := installJS(t)
	s := interoprig.Serve(t, interoprig.BuildServer(t), interoprig.Team(t))
	for _, transport := range []string{"JSONRPC", "HTTP+JSON"} {
		t.Run(transport, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), node, script, s.URL, transport).CombinedOutput() //nolint:gosec // the repository's own script
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			steps := 0
			for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
				var step struct{ Name, Error string }
				if json.Unmarshal(lines.Bytes(), &step) != nil {
					t.Logf("%s", lines.Bytes())
					continue
				}
				steps++
				t.Run(step.Name, func(t *testing.T) {
					if step.Error != "" {
						t.Error(step.Error)
					}
				})
			}
			if steps != jsSteps {
				t.Errorf("%d steps, want %d", steps, jsSteps)
			}
		})
	}
}

// installJS installs the SDK at the version of the lock file into bin, which is not
// kept, and returns the script beside it.
func installJS(t *testing.T) string {
	t.Helper()
	npm := tool(t, "npm", "install Node.js 18 or newer with npm; see https://nodejs.org")
	dir := filepath.Join(interoprig.Repository(t), "bin", "interop03")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	same := true
	for _, name := range []string{"package.json", "package-lock.json", "script.mjs"} {
		b, err := os.ReadFile(filepath.Join("js", name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		old, err := os.ReadFile(to) //nolint:gosec // below bin
		same = same && (name == "script.mjs" || err == nil && bytes.Equal(b, old))
		if err := os.WriteFile(to, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@a2a-js", "sdk", "package.json")); err == nil && same {
		return filepath.Join(dir, "script.mjs")
	}
	c := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund") //nolint:gosec // found in the path
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("installing the JS SDK: %v\n%s", err, out)
	}
	return filepath.Join(dir, "script.mjs")
}
