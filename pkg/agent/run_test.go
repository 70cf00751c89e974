package agent

import (
	"testing"

	"github.com/google/uuid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

func TestRun_ID(t *testing.T) {
	root := uuid.MustParse("7f2c1a44-9c50-4f0e-8d57-0d6a1f7f3f10")
	r := &Run{Root: root.String()}
	if got, want := r.ID("2.1", "key", 3), uuid.NewSHA1(root, []byte("2.1/key/3")).String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	seen := map[string]bool{}
	for _, scope := range []string{"", "1", "1.1", "11"} {
		for _, kind := range []string{"key", "reply"} {
			for n := range int64(3) {
				seen[r.ID(scope, kind, n)] = true
			}
		}
	}
	if len(seen) != 24 {
		t.Errorf("%d different ids of 24", len(seen))
	}
	if (&Run{Root: "no uuid"}).ID("", "key", 1) == (&Run{Root: "another"}).ID("", "key", 1) {
		t.Error("runs share ids")
	}
}

func TestRun_Deliver(t *testing.T) {
	r := &Run{}
	answer := func(scope string) *teamv1.Inbound {
		return &teamv1.Inbound{Scope: scope, Kind: &teamv1.Inbound_Answered{Answered: &teamv1.Answered{}}}
	}
	if r.Deliver(answer("1.2")) {
		t.Error("delivered to nobody")
	}
	root, one := r.Listen(""), r.Listen("1")
	for scope, want := range map[string]*Listener{"1.2": one, "1.2.3": one, "2": root, "1": root} {
		if !r.Deliver(answer(scope)) || len(want.Take()) != 1 {
			t.Errorf("an answer for %s did not reach the deepest loop above it", scope)
		}
	}
	if r.Deliver(answer("")) {
		t.Error("an answer of the root's own question is its driver's")
	}
	one.Close()
	if !r.Deliver(answer("1.2")) || len(root.Take()) != 1 {
		t.Error("a closed listener still gets inputs")
	}
	if !r.Deliver(&teamv1.Inbound{Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{}}}) || len(root.Take()) != 1 {
		t.Error("a follow-up did not reach the root's loop")
	}
}
