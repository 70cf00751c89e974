package storetest

import (
	"errors"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
)

func inboxes(t *testing.T, open Open) {
	t.Run("A-16 inputs are kept in order until an event names them", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		for _, k := range []string{"f1", "f2", "f3"} {
			r.put("one", followUp(k))
		}
		rows := r.inbound(c)
		if len(rows) != 3 || rows[0].GetN() != 1 || rows[2].GetN() != 3 || rows[1].GetReceived().GetMessage().GetMessageId() != "f2" {
			t.Fatalf("inbox holds %v", rows)
		}
		r.append(c, taken(rows[1]))
		if rows := r.inbound(c); len(rows) != 2 || rows[0].GetN() != 1 || rows[1].GetN() != 3 {
			t.Fatalf("inbox holds %v", rows)
		}
	})
	t.Run("A-16 an input is the reader's own copy", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		in := followUp("f")
		r.put("one", in)
		in.GetReceived().Message = nil
		r.inbound(c)[0].GetReceived().TooLate = true
		if got := r.inbound(c)[0].GetReceived(); got.GetMessage() == nil || got.GetTooLate() {
			t.Fatalf("inbox holds %v", got)
		}
	})
	t.Run("A-16 an input wakes the owner", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.put("one", followUp("f1"))
		r.put("one", followUp("f2"))
		<-c.Journal.Wake()
		if due := r.claims(); len(due) > 0 {
			t.Fatalf("a claimed run is due again")
		}
	})
	t.Run("A-16 an input makes a parked run due", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.park(c, runs.Park{Until: r.clock.Now().Add(time.Hour)})
		if due := r.claims(); len(due) > 0 {
			t.Fatalf("a parked run is due")
		}
		r.put("one", followUp("f"))
		r.claim("one")
	})
	t.Run("A-16 an unread input makes a run due as it parks", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.put("one", followUp("f"))
		r.park(c, runs.Park{Until: r.clock.Now().Add(time.Hour)})
		c = r.claim("one")
		r.append(c, taken(r.inbound(c)[0]))
		r.park(c, runs.Park{Until: r.clock.Now().Add(time.Hour)})
		if due := r.claims(); len(due) > 0 {
			t.Fatalf("due without an unread input")
		}
	})
	t.Run("A-16 a task that has ended takes nothing", func(t *testing.T) {
		r := newRig(t, open)
		r.append(r.run("one"), succeeded())
		for _, in := range []*teamv1.Inbound{followUp("f"), cancel("c")} {
			if _, existed, err := r.Put(r.ctx(), key("one"), in, nil, nil); existed || !errors.Is(err, runs.ErrTerminal) {
				t.Fatalf("Put(%s) = %v, %v, want ErrTerminal", in.GetKey(), existed, err)
			}
		}
	})
	t.Run("A-16 what was acknowledged before the end is on record", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.put("one", followUp("f1"))
		r.put("one", followUp("f2"))
		r.put("one", cancel("c"))
		r.append(c, taken(r.inbound(c)[0]), succeeded())
		events := r.events("one")
		if len(events) != 4 || events[2].GetReceived().GetMessage().GetMessageId() != "f2" || !events[2].GetReceived().GetTooLate() || events[3].GetEnded() == nil {
			t.Fatalf("on record are %v", events[1:])
		}
		if rows := r.inbound(c); len(rows) > 0 {
			t.Fatalf("inbox holds %v after the end", rows)
		}
		r.park(c, runs.Park{Done: true})
		if due := r.claims(); len(due) > 0 {
			t.Fatalf("a run that has ended is due")
		}
	})
	t.Run("A-16 an input without a kind is refused", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		if _, _, err := r.Put(r.ctx(), key("one"), &teamv1.Inbound{Key: "x"}, nil, nil); err == nil {
			t.Fatal("taken")
		}
	})
}

func leases(t *testing.T, open Open) {
	t.Run("A-16 a run has one owner", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"), task("two"), task("three"))
		first, _, err := r.Claim(r.ctx(), "r1", engine.NewRoom(2, nil))
		if err != nil || len(first) != 2 {
			t.Fatalf("Claim = %v, %v, want 2", roots(first), err)
		}
		second, _, err := r.Claim(r.ctx(), "r2", engine.NewRoom(2, nil))
		if err != nil || len(second) != 1 || second[0].Owner != me {
			t.Fatalf("Claim = %v, %v, want 1", roots(second), err)
		}
		for _, c := range first {
			if c.Root == second[0].Root {
				t.Fatalf("%s has two owners", c.Root)
			}
		}
	})
	t.Run("A-16 the longest due is claimed first", func(t *testing.T) {
		r := newRig(t, open)
		for _, id := range []string{"z", "y", "x"} {
			r.create(task(id))
			r.clock.Move(time.Second)
		}
		for _, id := range []string{"z", "y", "x"} {
			if claims, _, err := r.Claim(r.ctx(), "r1", engine.NewRoom(1, nil)); err != nil || len(claims) != 1 || claims[0].Root != id {
				t.Fatalf("Claim = %v, %v, want %s", roots(claims), err, id)
			}
		}
	})
	fairLeases(t, open)
	t.Run("A-16 a parked run is due at its time", func(t *testing.T) {
		r := newRig(t, open)
		until := r.clock.Now().Add(time.Hour)
		r.park(r.run("one"), runs.Park{Until: until})
		claims, next, err := r.Claim(r.ctx(), "r1", engine.NewRoom(10, nil))
		if err != nil || len(claims) > 0 || next.IsZero() || next.After(until) {
			t.Fatalf("Claim = %v, %v, %v, want to ask again by %v", roots(claims), next, err, until)
		}
		r.clock.Move(time.Hour)
		r.claim("one")
	})
	t.Run("A-16 a released run is due at the time named", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		if _, err := r.Release(r.ctx(), c, r.clock.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if due := r.claims(); len(due) > 0 {
			t.Fatal("due at once")
		}
		r.clock.Move(time.Second)
		r.claim("one")
	})
	nextDrives(t, open)
	t.Run("A-16 a run is done when its end is on record", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		if _, err := r.Park(r.ctx(), c, runs.Park{Done: true}); err == nil {
			t.Fatal("a run without an end is done")
		}
		r.append(c, succeeded())
		r.park(c, runs.Park{Done: true})
	})
}

// nextDrives tests what is next for a run that is given up.
func nextDrives(t *testing.T, open Open) {
	t.Run("A-16 a run that is given up has a next drive", func(t *testing.T) {
		until := NewClock().Now().Add(time.Hour)
		for name, c := range map[string]struct {
			give func(*rig, runs.Claim) (engine.Next, error)
			want func(*rig) engine.Next
		}{
			"parked until a time": {
				func(r *rig, c runs.Claim) (engine.Next, error) { return r.Park(r.ctx(), c, runs.Park{Until: until}) },
				func(*rig) engine.Next { return engine.Next{At: until} },
			},
			"parked for an input": {
				func(r *rig, c runs.Claim) (engine.Next, error) { return r.Park(r.ctx(), c, runs.Park{}) },
				func(*rig) engine.Next { return engine.Next{} },
			},
			"parked with an input": {
				func(r *rig, c runs.Claim) (engine.Next, error) {
					r.put("one", followUp("f"))
					return r.Park(r.ctx(), c, runs.Park{Until: until})
				},
				func(r *rig) engine.Next { return engine.Next{At: r.clock.Now()} },
			},
			"released": {
				func(r *rig, c runs.Claim) (engine.Next, error) { return r.Release(r.ctx(), c, time.Time{}) },
				func(r *rig) engine.Next { return engine.Next{At: r.clock.Now()} },
			},
			"released until a time": {
				func(r *rig, c runs.Claim) (engine.Next, error) { return r.Release(r.ctx(), c, until) },
				func(*rig) engine.Next { return engine.Next{At: until} },
			},
			"ended": {
				func(r *rig, c runs.Claim) (engine.Next, error) {
					r.append(c, succeeded())
					return r.Park(r.ctx(), c, runs.Park{Done: true})
				},
				func(*rig) engine.Next { return engine.Next{Ended: true} },
			},
		} {
			r := newRig(t, open)
			next, err := c.give(r, r.run("one"))
			if want := c.want(r); err != nil || next.Ended != want.Ended || !next.At.Equal(want.At) {
				t.Errorf("%s: %v, %v, want %v", name, next, err, want)
			}
		}
	})
}
