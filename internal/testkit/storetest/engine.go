package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
)

// takeDue takes what is due and not taken, and returns the ids in order.
func (r *rig) takeDue(room *engine.Room) (ids []string) {
	r.Helper()
	due, err := r.TakeDue(r.ctx(), room, 100)
	if err != nil {
		r.Fatalf("TakeDue: %v", err)
	}
	for _, k := range due {
		ids = append(ids, k.ID)
	}
	slices.Sort(ids)
	return ids
}

// claimRun claims a run, which may not be possible.
func (r *rig) claimRun(replica, root string, room *engine.Room) (runs.Claim, engine.Next) {
	r.Helper()
	c, next, err := r.ClaimRun(r.ctx(), replica, root, room)
	if err != nil {
		r.Fatalf("ClaimRun(%s): %v", root, err)
	}
	return c, next
}

// engines tests the contract of engine.Runs.
func engines(t *testing.T, open Open) {
	room := engine.NewRoom(100, nil)
	due := func(t *testing.T, r *rig, want ...string) {
		t.Helper()
		if got := r.takeDue(room); !slices.Equal(got, want) {
			t.Fatalf("taken are %v, want %v", got, want)
		}
	}
	t.Run("what becomes due is taken once", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"), task("two"))
		due(t, r, "one", "two")
		r.put("one", followUp("f")) // it is due already
		due(t, r)
		if err := r.ReturnDue(r.ctx(), []string{"two"}); err != nil {
			t.Fatal(err)
		}
		due(t, r, "two")
		c, _ := r.claimRun("r1", "one", room)
		r.append(c, taken(r.inbound(c)[0]))
		r.put("one", followUp("g")) // its driver hears of it
		due(t, r)
		r.append(c, taken(r.inbound(c)[0]))
		r.park(c, runs.Park{})
		r.put("one", followUp("h"))
		due(t, r, "one")
	})
	t.Run("a run that is due at a time is taken then, unless it is scheduled", func(t *testing.T) {
		r := newRig(t, open)
		until := r.clock.Now().Add(time.Hour)
		for _, id := range []string{"one", "two"} {
			r.park(r.run(id), runs.Park{Until: until})
		}
		if err := r.Scheduled(r.ctx(), "two", until); err != nil {
			t.Fatal(err)
		}
		due(t, r)
		r.clock.Move(time.Hour)
		due(t, r, "one")
		if overdue, err := r.Overdue(r.ctx(), room, r.clock.Now(), 10); err != nil || len(overdue) != 2 {
			t.Errorf("overdue are %v, %v", overdue, err)
		}
		if overdue, err := r.Overdue(r.ctx(), room, r.clock.Now().Add(-time.Second), 10); err != nil || len(overdue) > 0 {
			t.Errorf("overdue are %v, %v", overdue, err)
		}
	})
	t.Run("a run that cannot be claimed has a next drive", func(t *testing.T) {
		r := newRig(t, open)
		until := r.clock.Now().Add(time.Hour)
		r.park(r.run("waits"), runs.Park{})
		r.park(r.run("later"), runs.Park{Until: until})
		ended := r.run("ended")
		r.append(ended, succeeded())
		r.park(ended, runs.Park{Done: true})
		for id, want := range map[string]engine.Next{"waits": {}, "later": {At: until}, "ended": {Ended: true}, "unknown": {Ended: true}} {
			if c, next := r.claimRun("r1", id, room); c.Journal != nil || next.Ended != want.Ended || !next.At.Equal(want.At) {
				t.Errorf("%s: claimed %v, next %v, want %v", id, c.Journal != nil, next, want)
			}
		}
	})
	t.Run("a run that is due is claimed once", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		c, _ := r.claimRun("r1", "one", room)
		if c.Root != "one" || c.Owner != me || c.Epoch != 1 {
			t.Fatalf("claimed is %v", c)
		}
		if second, next := r.claimRun("r2", "one", room); second.Journal != nil || next.Ended {
			t.Fatalf("claimed again: %v, %v", second, next)
		}
		r.append(c, succeeded())
		r.park(c, runs.Park{Done: true})
	})
	t.Run("P11 as many runs of an account are taken and claimed as it may have", func(t *testing.T) { engineLimits(t, open) })
}

func engineLimits(t *testing.T, open Open) {
	r := newRig(t, open)
	limited := engine.NewRoom(100, shares{running: map[string]int{"acme": 2}})
	for i := range 5 {
		r.create(task(fmt.Sprint(i)))
		r.clock.Move(time.Millisecond)
	}
	r.create(of("other/bob", "b"))
	if got := r.takeDue(limited); !slices.Equal(got, []string{"0", "1", "b"}) {
		t.Fatalf("taken are %v", got)
	}
	first, _ := r.claimRun("r1", "0", limited)
	r.claimRun("r1", "1", limited)
	if c, next := r.claimRun("r1", "2", limited); c.Journal != nil || next != (engine.Next{}) {
		t.Fatalf("claimed is %v, next %v", c, next)
	}
	if got := r.takeDue(limited); len(got) > 0 {
		t.Fatalf("taken are %v", got)
	}
	if overdue, err := r.Overdue(r.ctx(), limited, r.clock.Now(), 10); err != nil || len(overdue) != 1 || overdue[0].ID != "b" {
		t.Errorf("overdue are %v, %v", overdue, err)
	}
	if c, next := r.claimRun("r2", "0", limited); c.Journal != nil || next.At.IsZero() {
		t.Errorf("a run that is driven: claimed %v, next %v", c.Journal != nil, next)
	}
	r.append(first, succeeded())
	r.park(first, runs.Park{Done: true})
	if got := r.takeDue(limited); !slices.Equal(got, []string{"2"}) {
		t.Fatalf("taken are %v", got)
	}
}
