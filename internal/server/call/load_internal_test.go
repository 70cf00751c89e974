package call

import (
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/settings"
)

// TestP21_CallsAreShared: however many calls a principal and an account hold, another principal of the account
// gets one, and so does another account. What ends makes room.
func TestP21_CallsAreShared(t *testing.T) {
	c := newCalls(settings.Of(nil))
	ann, bob, eve := identity.Caller{Account: "acme", Principal: "ann"}, identity.Caller{Account: "acme", Principal: "bob"}, identity.Caller{Account: "other", Principal: "eve"}
	fill := func(who identity.Caller) (n int) {
		for c.enter(who) == nil {
			n++
		}
		return n
	}
	if n := fill(ann); n != 898 {
		t.Errorf("a principal alone gets %d calls", n)
	}
	if n := fill(bob); n == 0 || n > 13 {
		t.Errorf("another principal of the account gets %d calls", n)
	}
	if n := fill(eve); n < 90 {
		t.Errorf("another account gets %d calls", n)
	}
	for range 898 {
		c.leave(ann)
	}
	if n := fill(bob); n < 500 {
		t.Errorf("after the first has ended, the other principal gets %d calls", n)
	}
	s := &Chain{calls: newCalls(settings.Of(&teamv1.ServerSettings{Limits: &teamv1.LimitSettings{MaxCalls: proto.Int32(1)}}))}
	_ = s.calls.enter(ann)
	operator := identity.Caller{Account: "acme", Principal: "root", Permissions: identity.EveryPermission}
	if s.Count(&Inbound{Caller: &ann}) == nil || s.Count(&Inbound{Caller: &operator}) != nil {
		t.Error("the operator is refused, or others are not")
	}
}
