package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
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
	old := hintOf([]string{"one", boardTopic})
	if !slices.Equal(old.roots, []string{"one", boardTopic}) || !old.concerns("globex/eve") {
		t.Errorf("a notice of an older version is %+v", old)
	}
	if missed := (hint{}); !missed.concerns("globex/eve") {
		t.Error("what was missed concerns nobody")
	}
}

// TestPostgres_R_003_30_ALookWakesTheOwner: what a look finds changed wakes the watchers of
// the owner of that root, and no others.
func TestPostgres_R_003_30_ALookWakesTheOwner(t *testing.T) {
	s, err := Open(t.Context(), pgtest.URL(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	accepted := &teamv1.Accepted{TaskId: "one", Agent: "a", Message: agent.UserMessage("m", "do it")}
	if _, _, err := s.Create(t.Context(), a2a.New{Owner: "acme/bob", Accepted: accepted}); err != nil {
		t.Fatal(err)
	}
	if claims, _, err := s.Claim(t.Context(), "r", a2a.NewRoom(1, nil)); err != nil || len(claims) != 1 { // it is looked at
		t.Fatal(claims, err)
	}
	ann, stop := s.WatchAll("acme/ann")
	defer stop()
	bob, stop := s.WatchAll("acme/bob")
	defer stop()
	seen, err := s.look(t.Context(), nil)
	if err != nil || len(seen) != 1 {
		t.Fatal(seen, err)
	}
	if len(bob) != 1 || len(ann) != 0 {
		t.Errorf("the watcher of the owner has %d signals, that of another one %d", len(bob), len(ann))
	}
}
