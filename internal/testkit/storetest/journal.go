package storetest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/race"
	"github.com/agentteams/team-server/pkg/agent"
)

func journals(t *testing.T, open Open) {
	t.Run("A-16 sequences have no gaps and time never goes back", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		for _, d := range []time.Duration{time.Minute, -time.Hour, time.Second} {
			r.clock.Move(d)
			r.append(c, noted("x"), noted("y"))
		}
		last := time.Time{}
		for i, ev := range r.events("one") {
			if ev.GetSeq() != int64(i)+1 || ev.GetTime().AsTime().Before(last) {
				t.Fatalf("event %d is %d at %v, after %v", i, ev.GetSeq(), ev.GetTime().AsTime(), last)
			}
			last = ev.GetTime().AsTime()
		}
		if want := NewClock().Now().Add(time.Minute); !last.Equal(want) {
			t.Fatalf("last at %v, want %v", last, want)
		}
	})
	t.Run("A-16 the journal begins with Accepted and is loaded in order", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		delta := &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{Text: "te"}}}
		r.append(c, started(""), delta, noted("x"))
		r.park(c, runs.Park{})
		r.put("one", followUp("f"))
		events, err := r.claim("one").Journal.Load(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		events = slices.DeleteFunc(events, func(ev *teamv1.Event) bool { return ev.GetDelta() != nil })
		if len(events) != 3 || events[0].GetAccepted().GetTaskId() != "one" || events[1].GetStarted() == nil || events[2].GetNoted() == nil {
			t.Fatalf("loaded %v", events)
		}
	})
	t.Run("A-16 an owner that lost its claim is fenced", func(t *testing.T) {
		r := newRig(t, open)
		old := r.run("one")
		if _, err := r.Release(r.ctx(), old, time.Time{}); err != nil {
			t.Fatal(err)
		}
		fenced(t, r, old)
		c := r.claim("one")
		if c.Epoch <= old.Epoch {
			t.Fatalf("epoch %d after %d", c.Epoch, old.Epoch)
		}
		fenced(t, r, old)
		r.append(c, started(""))
		if n := len(r.events("one")); n != 2 {
			t.Fatalf("%d events, want 2", n)
		}
	})
}

// ends tests that a run ends only once.
func ends(t *testing.T, open Open) {
	t.Run("A-16 nothing follows the end", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		if err := c.Journal.Append(r.ctx(), succeeded(), noted("x")); !errors.Is(err, runs.ErrTerminal) {
			t.Fatalf("Append beyond the end: %v, want ErrTerminal", err)
		}
		if n := len(r.events("one")); n != 1 {
			t.Fatalf("%d events of a refused append", n-1)
		}
		r.append(c, ended("1", teamv1.Outcome_OUTCOME_FAILED), succeeded())
		if err := c.Journal.Append(r.ctx(), noted("x")); !errors.Is(err, runs.ErrTerminal) {
			t.Fatalf("Append after the end: %v, want ErrTerminal", err)
		}
	})
	t.Run("A-16 of ends at the same time one counts", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		var wg sync.WaitGroup
		errs := make(chan error, 16)
		for range cap(errs) {
			wg.Go(func() { errs <- c.Journal.Append(r.ctx(), noted("last"), succeeded()) })
		}
		wg.Wait()
		if err := c.Journal.Commit(r.ctx()); err != nil {
			t.Fatal(err)
		}
		wins := 0
		for range cap(errs) {
			switch err := <-errs; {
			case err == nil:
				wins++
			case !errors.Is(err, runs.ErrTerminal):
				t.Fatalf("Append: %v, want ErrTerminal", err)
			}
		}
		if n := len(r.events("one")); wins != 1 || n != 3 {
			t.Fatalf("%d ends counted, %d events", wins, n)
		}
	})
	t.Run("A-16 appends at the same time each get their own place", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					r.append(c, noted("x"), noted("y"))
				}
			})
		}
		wg.Wait()
		events := r.events("one")
		if len(events) != 801 {
			t.Fatalf("%d events, want 801", len(events))
		}
		for i := 1; i < len(events); i += 2 {
			if events[i].GetNoted().GetText() != "x" || events[i+1].GetNoted().GetText() != "y" {
				t.Fatalf("the append of event %d was torn", i)
			}
		}
	})
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// fenced checks that all operations of a lost claim fail.
func fenced(t *testing.T, r *rig, c runs.Claim) {
	t.Helper()
	_, load := c.Journal.Load(r.ctx())
	_, inbound := c.Journal.Inbound(r.ctx())
	for name, err := range map[string]error{
		"Append": c.Journal.Append(r.ctx(), noted("x")), "Commit": c.Journal.Commit(r.ctx()), "Load": load, "Inbound": inbound,
		"Park": second(r.Park(r.ctx(), c, runs.Park{})), "Release": second(r.Release(r.ctx(), c, time.Time{})),
	} {
		if !errors.Is(err, agent.ErrFenced) {
			t.Errorf("%s: %v, want ErrFenced", name, err)
		}
	}
}

func limits(t *testing.T, open Open) {
	const maxEvents, maxBytes = 51_200, 50 << 20
	t.Run("A-16 a full journal takes ends alone", func(t *testing.T) {
		if race.Enabled {
			t.Skip("takes a minute with the race detector")
		}
		r := newRig(t, open)
		c := r.run("one")
		for n := 1; n < maxEvents; {
			batch := make([]*teamv1.Event, min(1024, maxEvents-n))
			for i := range batch {
				batch[i] = noted("x")
			}
			r.append(c, batch...)
			n += len(batch)
		}
		full(t, r, c)
	})
	t.Run("A-16 a journal of large events is full earlier", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		text := strings.Repeat("x", 1<<20)
		var err error
		n := 0
		for ; err == nil && n < 60; n++ {
			err = c.Journal.Append(r.ctx(), noted(text))
		}
		if !errors.Is(err, runs.ErrLimit) || n != maxBytes>>20 {
			t.Fatalf("append %d: %v, want ErrLimit", n, err)
		}
	})
}

// full checks which events a full journal accepts.
func full(t *testing.T, r *rig, c runs.Claim) {
	t.Helper()
	if err := c.Journal.Append(r.ctx(), noted("x")); !errors.Is(err, runs.ErrLimit) {
		t.Fatalf("Append to a full journal: %v, want ErrLimit", err)
	}
	r.put(c.Root, followUp("f"))
	late := taken(r.inbound(c)[0])
	late.GetReceived().TooLate = true
	r.append(c, ended("1", teamv1.Outcome_OUTCOME_CANCELED), late, ended("", teamv1.Outcome_OUTCOME_FAILED))
	_, seq, err := r.Task(r.ctx(), key(c.Root))
	if err != nil || seq != 51_203 {
		t.Fatalf("Task shows %d, %v", seq, err)
	}
}
