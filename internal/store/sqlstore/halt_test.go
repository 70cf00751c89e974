package sqlstore_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestPostgres_HaltsBehind: a replica is behind a halt until it has acknowledged it or has lost its
// lease, and is told of it.
func TestPostgres_HaltsBehind(t *testing.T) {
	a, b := pair(t, sqlstore.Config{Lease: 2 * time.Second})
	for name, s := range map[string]*sqlstore.Store{"a": a, "b": b} {
		if err := s.Beat(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	wake, stop := b.WatchHalts()
	defer stop()
	h := &teamv1.Halt{Kind: teamv1.HaltKind_HALT_KIND_TEAM, Name: "a", Reason: "x"}
	if err := a.Halt(t.Context(), h, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-wake:
	case <-time.After(10 * time.Second):
		t.Error("the other replica was not told")
	}
	if snap, err := b.Halts(t.Context()); err != nil || len(snap.Halts) != 1 || !proto.Equal(snap.Halts[0], h) {
		t.Errorf("the other replica reads %v, %v", snap, err)
	}
	behind := func(self string) []string {
		list, err := a.HaltsBehind(t.Context(), h.GetVersion(), self)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := behind("a"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("behind a are %v", got)
	}
	root, _, err := a.Create(t.Context(), runs.New{Owner: "acme/ann", MessageID: "m", Digest: []byte("d"), Accepted: &teamv1.Accepted{
		TaskId: "0191c0de-0000-7000-8000-000000000001", Agent: "other", Owner: "acme/ann", Message: agent.UserMessage("m", "x"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	claims := func() int {
		list, _, err := b.Claim(t.Context(), "b", engine.NewRoom(10, nil))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if claims() != 0 {
		t.Error("a replica that has not applied the halt has claimed", root)
	}
	if err := b.AcknowledgeHalts(t.Context(), "b", h.GetVersion()-1, nil); err != nil {
		t.Fatal(err)
	}
	if got := behind("a"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after the version before, behind are %v", got)
	}
	if err := b.AcknowledgeHalts(t.Context(), "b", h.GetVersion(), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Beat(t.Context(), "b"); err != nil { // which keeps what was acknowledged
		t.Fatal(err)
	}
	if got := behind("a"); len(got) > 0 {
		t.Errorf("behind a are %v", got)
	}
	if claims() != 1 {
		t.Error("a replica that has applied the halt does not claim", root)
	}
	until(t, "the lease of a runs out", func() bool { return len(behind("")) == 0 })
}
