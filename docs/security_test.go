package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/server/call"
)

var permissionRow = regexp.MustCompile("(?m)^\\| `([A-Z]+)` \\| (`.*) \\|$")

// TestPermissions keeps the table of permissions in security.md equal to what the server checks.
func TestPermissions(t *testing.T) {
	want := map[string][]string{}
	for method, p := range call.MethodPermissions() {
		if p != 0 {
			want[p.String()] = append(want[p.String()], method)
		}
	}
	got := map[string][]string{}
	for _, row := range permissionRow.FindAllStringSubmatch(read(t, "docs/security.md"), -1) {
		got[row[1]] = strings.Split(strings.ReplaceAll(row[2], "`", ""), ", ")
	}
	for _, name := range identity.EveryPermission.Names() {
		slices.Sort(want[name])
		slices.Sort(got[name])
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s: the document lists %v, the server has %v", name, got[name], want[name])
		}
	}
}
