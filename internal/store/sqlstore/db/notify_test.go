package db

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/store"
)

// TestR_003_30_NotificationsNameTheirAudience: each text of a notification concerns the
// owners of its roots, however many texts there are.
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
		topics := strings.Split(p, ",")[1:]
		for _, topic := range topics {
			owner, isRoot := owners[topic]
			if !isRoot {
				continue
			}
			if told++; !slices.Contains(topics, tag(owner)) {
				t.Errorf("a notice of %s does not concern %s", topic, owner)
			}
		}
		if slices.Contains(topics, tag("globex/eve")) || slices.Contains(topics, tag(store.AllOwners)) {
			t.Error("a notice concerns an owner of no root")
		}
	}
	if told != len(owners) {
		t.Errorf("%d roots were told, want %d", told, len(owners))
	}
}
