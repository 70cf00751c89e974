package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/runs"
)

// halts tests the contract of halt.Store.
func halts(t *testing.T, open Open) {
	haltList(t, open)
	haltRuns(t, open)
	haltPaused(t, open)
	haltTasks(t, open)
}

// putHalt puts a halt in force and returns it.
func (r *rig) putHalt(kind teamv1.HaltKind, name string, pause bool) *teamv1.Halt {
	r.Helper()
	h := &teamv1.Halt{Kind: kind, Name: name, Reason: "wrong prices", By: "acme/bob", At: timestamppb.New(r.clock.Now()), Pause: pause}
	if err := r.Halt(r.ctx(), h, nil); err != nil {
		r.Fatalf("Halt(%s %q): %v", kind, name, err)
	}
	return h
}

// endHalt ends a halt and returns it.
func (r *rig) endHalt(kind teamv1.HaltKind, name string) *teamv1.Halt {
	r.Helper()
	h, err := r.EndHalt(r.ctx(), kind, name, nil)
	if err != nil {
		r.Fatalf("EndHalt(%s %q): %v", kind, name, err)
	}
	return h
}

// inForce fails unless the halts in force are want, in this order.
func (r *rig) inForce(want ...*teamv1.Halt) halt.Snapshot {
	r.Helper()
	snap, err := r.Halts(r.ctx())
	if err != nil || !slices.EqualFunc(snap.Halts, want, func(a, b *teamv1.Halt) bool { return proto.Equal(a, b) }) {
		r.Fatalf("Halts = %v, %v, want %v", snap.Halts, err, want)
	}
	if version, err := r.HaltVersion(r.ctx()); err != nil || version != snap.Version {
		r.Fatalf("HaltVersion = %d, %v, want %d", version, err, snap.Version)
	}
	return snap
}

// halted fails unless a halt has stopped the tasks with these ids.
func (r *rig) halted(version int64, want ...string) {
	r.Helper()
	tasks, total, err := r.HaltedTasks(r.ctx(), version, 100)
	ids := []string{}
	for _, t := range tasks {
		ids = append(ids, t.ID)
		if t.Owner != me {
			r.Fatalf("the owner of %s is %q", t.ID, t.Owner)
		}
	}
	if err != nil || total != len(want) || !slices.Equal(ids, want) {
		r.Fatalf("HaltedTasks = %v, %d, %v, want %v", ids, total, err, want)
	}
}

const (
	ofServer  = teamv1.HaltKind_HALT_KIND_SERVER
	ofAccount = teamv1.HaltKind_HALT_KIND_ACCOUNT
	ofTeam    = teamv1.HaltKind_HALT_KIND_TEAM
	ofModel   = teamv1.HaltKind_HALT_KIND_MODEL
)

func haltList(t *testing.T, open Open) {
	t.Run("a halt is there until it ends, and every change has a version of its own", func(t *testing.T) {
		r := newRig(t, open)
		if snap := r.inForce(); snap.Version != 0 {
			t.Fatalf("the first version is %d", snap.Version)
		}
		wake, stop := r.WatchHalts()
		defer stop()
		team := r.putHalt(ofTeam, "a", false)
		select {
		case <-wake:
		case <-time.After(10 * time.Second):
			t.Error("no watcher was told of the halt")
		}
		model := r.putHalt(ofModel, "a", true)
		snap := r.inForce(team, model)
		if team.GetVersion() <= 0 || model.GetVersion() <= team.GetVersion() || snap.Version != model.GetVersion() {
			t.Errorf("versions %d and %d, at last %d", team.GetVersion(), model.GetVersion(), snap.Version)
		}
		never := errors.New("not allowed")
		refuse := func(present *teamv1.Halt) error {
			if !proto.Equal(present, team) {
				t.Errorf("asked about %v, want %v", present, team)
			}
			return never
		}
		if err := r.Halt(r.ctx(), &teamv1.Halt{Kind: ofTeam, Name: "a", Reason: "x"}, refuse); !errors.Is(err, never) {
			t.Errorf("replaced although it is not allowed: %v", err)
		}
		if _, err := r.EndHalt(r.ctx(), ofTeam, "a", refuse); !errors.Is(err, never) {
			t.Errorf("ended although it is not allowed: %v", err)
		}
		if after := r.inForce(team, model); after.Version != snap.Version {
			t.Errorf("version %d after refused changes, before %d", after.Version, snap.Version)
		}
		again := r.putHalt(ofTeam, "a", true) // in place of the first
		r.inForce(model, again)
		if ended := r.endHalt(ofTeam, "b"); ended != nil {
			t.Errorf("what was not halted has ended: %v", ended)
		}
		r.inForce(model, again)
		if ended := r.endHalt(ofTeam, "a"); !proto.Equal(ended, again) {
			t.Errorf("ended %v, want %v", ended, again)
		}
		if last := r.inForce(model); last.Version <= again.GetVersion() {
			t.Errorf("the end has version %d, the halt before it %d", last.Version, again.GetVersion())
		}
	})
}

func haltRuns(t *testing.T, open Open) {
	for name, c := range map[string]struct {
		kind teamv1.HaltKind
		name string
		runs bool
	}{
		"the server": {ofServer, "", true}, "the account": {ofAccount, "acme", true}, "the agent": {ofTeam, "a", true},
		"another account": {ofAccount, "acm", false}, "another agent": {ofTeam, "b", false}, "a model": {ofModel, "a", false},
	} {
		t.Run("a halt of "+name+" reaches the right runs", func(t *testing.T) {
			r := newRig(t, open)
			over := r.run("1-over")
			r.append(over, ended("", teamv1.Outcome_OUTCOME_SUCCEEDED))
			r.park(over, runs.Park{Done: true})
			r.park(r.run("2-waits"), runs.Park{})
			r.park(r.run("3-later"), runs.Park{Until: r.clock.Now().Add(time.Hour)})
			r.run("4-works")
			h := r.putHalt(c.kind, c.name, false)
			if !c.runs {
				r.halted(h.GetVersion())
				if due := r.claims(); len(due) > 0 {
					t.Fatalf("due are %v", roots(due))
				}
				return
			}
			r.halted(h.GetVersion(), "2-waits", "3-later", "4-works")
			due := roots(r.claims())
			slices.Sort(due)
			if !slices.Equal(due, []string{"2-waits", "3-later"}) {
				t.Errorf("due are %v", due)
			}
			r.create(task("5-late"))
			if err := r.ReachRuns(r.ctx(), h); err != nil {
				t.Fatal(err)
			}
			r.halted(h.GetVersion(), "2-waits", "3-later", "4-works", "5-late")
			r.endHalt(c.kind, c.name)
			r.halted(h.GetVersion())
		})
	}
	t.Run("a halt that pauses leaves runs alone that wait", func(t *testing.T) {
		r := newRig(t, open)
		r.park(r.run("1-waits"), runs.Park{})
		r.park(r.run("2-later"), runs.Park{Until: r.clock.Now().Add(time.Hour)})
		r.run("3-works")
		r.create(task("4-due"))
		h := r.putHalt(ofServer, "", true)
		r.halted(h.GetVersion(), "3-works", "4-due")
		r.claim("4-due")
	})
}

func haltPaused(t *testing.T, open Open) {
	t.Run("a run that a halt has paused is due when a halt ends, and one that waits is not", func(t *testing.T) {
		r := newRig(t, open)
		h := r.putHalt(ofTeam, "a", true)
		r.park(r.run("waits"), runs.Park{})
		r.park(r.run("paused"), runs.Park{Halts: h.GetVersion()})
		if due := r.claims(); len(due) > 0 {
			t.Fatalf("due are %v", roots(due))
		}
		r.endHalt(ofTeam, "a")
		r.park(r.claim("paused"), runs.Park{})
		r.endHalt(ofTeam, "a")
		if due := r.claims(); len(due) > 0 {
			t.Fatalf("due again are %v", roots(due))
		}
	})
	t.Run("a run is due soon that was paused by a halt that had ended", func(t *testing.T) {
		r := newRig(t, open)
		h := r.putHalt(ofTeam, "a", true)
		c := r.run("paused")
		r.endHalt(ofTeam, "a")
		r.park(c, runs.Park{Halts: h.GetVersion()})
		r.clock.Move(time.Second)
		r.claim("paused")
	})
}

func haltTasks(t *testing.T, open Open) {
	t.Run("what a replica has stopped is on record while the halt is in force", func(t *testing.T) {
		r := newRig(t, open)
		h := r.putHalt(ofModel, "m", false)
		stopped := map[int64][]halt.Task{h.GetVersion(): {{Owner: me, ID: "t~1.2"}, {Owner: me, ID: "t~1.1"}}}
		for range 2 {
			if err := r.AcknowledgeHalts(r.ctx(), "r1", h.GetVersion(), stopped); err != nil {
				t.Fatal(err)
			}
		}
		r.halted(h.GetVersion(), "t~1.1", "t~1.2")
		if tasks, total, err := r.HaltedTasks(r.ctx(), h.GetVersion(), 1); err != nil || total != 2 || len(tasks) != 1 {
			t.Errorf("one of two: %v, %d, %v", tasks, total, err)
		}
		again := r.putHalt(ofModel, "m", false)
		r.halted(again.GetVersion())
		if err := r.AcknowledgeHalts(r.ctx(), "r1", again.GetVersion(), stopped); err != nil { // of the halt before
			t.Fatal(err)
		}
		r.halted(h.GetVersion())
		r.halted(again.GetVersion())
	})
	t.Run("this replica is never behind", func(t *testing.T) {
		r := newRig(t, open)
		r.claims() // a heartbeat
		h := r.putHalt(ofServer, "", false)
		if behind, err := r.HaltsBehind(r.ctx(), h.GetVersion(), "r1"); err != nil || len(behind) > 0 {
			t.Errorf("behind are %v, %v", behind, err)
		}
	})
}
