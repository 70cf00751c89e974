package db

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/store"
)

// TestR_003_30_NotificationsNameTheirAudience: each text of a notification concerns the
// owners of its roots, however many texts there are, and one of an older version concerns
// everybody.
func TestR_003_30_NotificationsNameTheirAudience(t *testing.T) {
	owners, changes := map[string]string{}, map[change]struct{}{}
	for i := range 1000 {
		root, owner := fmt.Sprintf("root-%04d", i), fmt.Sprintf("acme/%d,x", i%7)
		owners[root], changes[change{root, owner}] = owner, struct{}{}
	}
	told := 0
	for _, p := range payloads("self", changes) {
		if len(p) > maxPayload {
			t.Errorf("a text has %d bytes", len(p))
		}
		n := hintOf(strings.Split(p, ",")[1:])
		for _, root := range n.roots {
			if told++; !n.concerns(owners[root]) {
				t.Errorf("a notice of %s does not concern %s", root, owners[root])
			}
		}
		if n.concerns("globex/eve") || n.concerns(store.Everybody) {
			t.Error("a notice concerns an owner of no root")
		}
	}
	if told != len(owners) {
		t.Errorf("%d roots were told, want %d", told, len(owners))
	}
	old := hintOf([]string{"one", "~board"})
	if !slices.Equal(old.roots, []string{"one", "~board"}) || !old.concerns("globex/eve") {
		t.Errorf("a notice of an older version is %+v", old)
	}
	if missed := (hint{}); !missed.concerns("globex/eve") {
		t.Error("what was missed concerns nobody")
	}
}
