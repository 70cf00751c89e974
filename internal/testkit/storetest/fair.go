package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
)

// shares are the shares of accounts, by account.
type shares struct{ weights, running, each map[string]int }

func (s shares) Weight(account string) int     { return s.weights[account] }
func (s shares) MaxRunning(account string) int { return s.running[account] }
func (s shares) MaxRunningEach(a string) int   { return s.each[a] }
func (s shares) LimitsRunning() bool           { return len(s.running)+len(s.each) > 0 }

// of returns a new task of an owner.
func of(owner, id string) runs.New {
	n := task(id)
	n.Owner, n.Accepted.Owner = owner, owner
	return n
}

// claimIn claims runs, and counts them by account.
func (r *rig) claimIn(room *engine.Room) (claims []runs.Claim, by map[string]int) {
	r.Helper()
	claims, _, err := r.Claim(r.ctx(), "r1", room)
	if err != nil {
		r.Fatalf("Claim: %v", err)
	}
	by = map[string]int{}
	for _, c := range claims {
		by[identity.AccountOf(c.Owner)]++
	}
	return claims, by
}

// flood creates tasks of an owner, and lets time pass.
func (r *rig) flood(owner string, n int) {
	r.Helper()
	for i := range n {
		r.create(of(owner, fmt.Sprintf("%s-%d", identity.AccountOf(owner), i)))
	}
	r.clock.Move(time.Second)
}

// wantBy fails unless so many runs were claimed by account.
func wantBy(t *testing.T, by, want map[string]int) {
	t.Helper()
	if !maps.Equal(by, want) {
		t.Fatalf("claimed are %v, want %v", by, want)
	}
}

// fairLeases tests how accounts share the slots of a replica.
func fairLeases(t *testing.T, open Open) {
	limitedLeases(t, open)
	t.Run("P11 a slot is left for the account that comes next", func(t *testing.T) {
		r := newRig(t, open)
		r.flood("acme/ann", 40)
		room := engine.NewRoom(32, nil)
		claims, by := r.claimIn(room)
		wantBy(t, by, map[string]int{"acme": 29})
		if !room.Waiting {
			t.Error("nothing waits")
		}
		room = engine.NewRoom(32, nil)
		for _, c := range claims {
			room.Take(identity.AccountOf(c.Owner))
		}
		r.flood("other/bob", 1)
		_, by = r.claimIn(room.Clone())
		wantBy(t, by, map[string]int{"other": 1})
		room.Give("acme")
		_, by = r.claimIn(room)
		wantBy(t, by, map[string]int{"acme": 1})
	})
	t.Run("P11 accounts take turns, and what was due first comes first in each", func(t *testing.T) {
		r := newRig(t, open)
		r.flood("acme/ann", 10)
		r.flood("other/bob", 2)
		r.flood("third/cy", 10)
		room := engine.NewRoom(1, nil)
		var order []string
		for range 9 {
			claims, _ := r.claimIn(room.Clone())
			if len(claims) != 1 {
				t.Fatalf("claimed are %v", roots(claims))
			}
			room.Take(identity.AccountOf(claims[0].Owner))
			order = append(order, identity.AccountOf(claims[0].Owner))
			room.Give(identity.AccountOf(claims[0].Owner))
		}
		if got := slices.Sorted(slices.Values(order[:3])); !slices.Equal(got, []string{"acme", "other", "third"}) {
			t.Errorf("the order is %v", order)
		}
		by := map[string]int{}
		for _, a := range order {
			by[a]++
		}
		if by["other"] != 2 || by["acme"] < 3 || by["third"] < 3 {
			t.Errorf("the order is %v", order)
		}
	})
	t.Run("P11 a weight gives turns, and no further slots", func(t *testing.T) {
		r := newRig(t, open)
		r.flood("acme/ann", 40)
		_, by := r.claimIn(engine.NewRoom(32, shares{weights: map[string]int{"acme": 1000}}))
		wantBy(t, by, map[string]int{"acme": 29})
	})
	t.Run("P11 weights", func(t *testing.T) {
		r := newRig(t, open)
		r.flood("acme/ann", 30)
		r.flood("other/bob", 30)
		_, by := r.claimIn(engine.NewRoom(8, shares{weights: map[string]int{"other": 3}}))
		wantBy(t, by, map[string]int{"acme": 2, "other": 6})
	})
}

// limitedLeases tests the number of running runs of an account, and accounts with several principals.
func limitedLeases(t *testing.T, open Open) {
	t.Run("P11 no more runs of an account than it may have", func(t *testing.T) {
		r := newRig(t, open)
		s := shares{running: map[string]int{"acme": 3}}
		r.flood("acme/ann", 5)
		r.flood("other/bob", 5)
		room := engine.NewRoom(8, s)
		claims, by := r.claimIn(room.Clone())
		wantBy(t, by, map[string]int{"acme": 3, "other": 5})
		for _, c := range claims {
			room.Take(identity.AccountOf(c.Owner))
		}
		r.create(of("acme/zoe", "zoe"))
		for range 4 {
			room.Give("other")
		}
		_, by = r.claimIn(room.Clone())
		wantBy(t, by, map[string]int{})
		for _, c := range claims {
			if c.Owner == "acme/ann" {
				r.append(c, succeeded())
				r.park(c, runs.Park{Done: true})
				room.Give("acme")
				break
			}
		}
		_, by = r.claimIn(room.Clone())
		wantBy(t, by, map[string]int{"acme": 1})
	})
	t.Run("P11 no more runs of a principal than it may have", func(t *testing.T) {
		r := newRig(t, open)
		s := shares{each: map[string]int{"acme": 2}}
		r.flood("acme/ann", 6)
		r.create(of("acme/zoe", "zoe-1"))
		r.create(of("acme/zoe", "zoe-2"))
		r.create(of("other/bob", "bob-1"))
		r.clock.Move(time.Second)
		room := engine.NewRoom(64, s)
		claims, by := r.claimIn(room.Clone())
		wantBy(t, by, map[string]int{"acme": 4, "other": 1})
		for _, c := range claims {
			room.Take(c.Owner)
		}
		if room.HeldBy("acme/ann") != 2 || room.HeldBy("acme/zoe") != 2 {
			t.Fatalf("claimed are %v", roots(claims))
		}
		again := room.Clone()
		_, by = r.claimIn(again)
		wantBy(t, by, map[string]int{})
		if !again.Waiting {
			t.Error("nothing waits for a slot")
		}
		if n, err := r.Queued(r.ctx(), "acme/ann", 100); err != nil || n != 4 {
			t.Errorf("%d tasks of a principal wait, %v", n, err)
		}
		if n, err := r.Queued(r.ctx(), "acme/zoe", 100); err != nil || n != 0 {
			t.Errorf("%d tasks of the other one wait, %v", n, err)
		}
		if n, err := r.Queued(r.ctx(), "acme", 3); err != nil || n != 3 {
			t.Errorf("%d tasks of the account wait, counted to 3, %v", n, err)
		}
		for _, c := range claims {
			if c.Owner == "acme/ann" {
				r.append(c, succeeded())
				r.park(c, runs.Park{Done: true})
				room.Give(c.Owner)
				break
			}
		}
		claims, by = r.claimIn(room.Clone())
		wantBy(t, by, map[string]int{"acme": 1})
		if claims[0].Owner != "acme/ann" {
			t.Errorf("claimed is %s", claims[0].Owner)
		}
	})
	t.Run("P11 the first runs of many principals of an account", func(t *testing.T) {
		r := newRig(t, open)
		for i := range 20 {
			r.create(of(fmt.Sprintf("acme/p%02d", 19-i), fmt.Sprintf("t%02d", i)))
			r.clock.Move(time.Second)
		}
		r.flood("other/bob", 20)
		claims, by := r.claimIn(engine.NewRoom(8, nil))
		wantBy(t, by, map[string]int{"acme": 4, "other": 4})
		got := slices.DeleteFunc(roots(claims), func(id string) bool { return id[0] != 't' })
		if slices.Sort(got); !slices.Equal(got, []string{"t00", "t01", "t02", "t03"}) {
			t.Errorf("claimed are %v", got)
		}
	})
}
