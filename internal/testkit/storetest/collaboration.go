package storetest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/runs"
)

// collaboration returns a task of the owner me that is a collaboration. Its agent may have at most
// most collaborations.
func collaboration(id string, most int) runs.New {
	n := task(id)
	n.Accepted.Collaboration, n.Collaborations = &teamv1.Brief{TaskDescription: "do it"}, most
	return n
}

// running fails unless the collaborations of agent "a" that have not ended are want.
func (r *rig) running(want ...string) {
	r.Helper()
	keys, err := r.Collaborations(r.ctx(), "a")
	if err != nil || len(keys) != len(want) {
		r.Fatalf("Collaborations = %v, %v, want %v", keys, err, want)
	}
	for i, id := range want {
		if keys[i] != key(id) {
			r.Fatalf("Collaborations = %v, want %v", keys, want)
		}
	}
}

// refused fails unless a collaboration is rejected because the agent has too many.
func (r *rig) refused(n runs.New) {
	r.Helper()
	if root, existed, err := r.Create(r.ctx(), n); !errors.Is(err, runs.ErrBusy) || existed {
		r.Fatalf("Create = %q, %v, %v, want ErrBusy", root, existed, err)
	}
	if _, _, err := r.Task(r.ctx(), key(n.Accepted.GetTaskId())); !errors.Is(err, runs.ErrNotFound) {
		r.Fatalf("what was refused is there: %v", err)
	}
}

func collaborations(t *testing.T, open Open) {
	slots(t, open)
	slotsOfDefined(t, open)
	slotsAtOnce(t, open)
	newestCollaborations(t, open)
}

// slots tests how many collaborations an agent may have.
func slots(t *testing.T, open Open) {
	t.Run("R-001-30 there are as many as there may be", func(t *testing.T) {
		r := newRig(t, open)
		r.create(collaboration("one", 2), collaboration("two", 2))
		r.refused(collaboration("three", 2))
		r.running("one", "two")
	})
	t.Run("R-001-30 what was refused may come again", func(t *testing.T) {
		r := newRig(t, open)
		first := collaboration("one", 1)
		r.create(first)
		c := r.claim("one")
		r.refused(collaboration("two", 1))
		r.append(c, succeeded())
		r.running()
		r.create(collaboration("two", 1))
		r.running("two")
	})
	t.Run("R-001-30 fewer may run from now on", func(t *testing.T) {
		r := newRig(t, open)
		r.create(collaboration("one", 2), collaboration("two", 2))
		for _, c := range r.claims() {
			if c.Root == "one" {
				r.append(c, succeeded())
			}
		}
		r.refused(collaboration("three", 1))
		r.running("two")
	})
	t.Run("R-001-30 a message that is sent again is the same one, busy or not", func(t *testing.T) {
		r := newRig(t, open)
		r.create(collaboration("one", 1))
		again := collaboration("two", 1)
		again.MessageID = "m-one"
		if root, existed, err := r.Create(r.ctx(), again); root != "one" || !existed || err != nil {
			t.Fatalf("Create = %q, %v, %v, want the first", root, existed, err)
		}
		again.Digest = []byte("other")
		if _, existed, err := r.Create(r.ctx(), again); existed || !errors.Is(err, runs.ErrReused) {
			t.Fatalf("Create = %v, %v, want ErrReused", existed, err)
		}
		r.running("one")
	})
	t.Run("P11 each account has its own places, and one that waits holds none", func(t *testing.T) {
		r := newRig(t, open)
		r.create(collaboration("one", 1))
		other := collaboration("other", 1)
		other.Owner, other.Accepted.Owner = "other/bob", "other/bob"
		r.create(other)
		colleague := collaboration("colleague", 1)
		colleague.Owner, colleague.Accepted.Owner = "acme/zoe", "acme/zoe"
		r.refused(colleague)
		claims := r.claims()
		r.refused(colleague) // it is driven
		for _, c := range claims {
			r.park(c, runs.Park{})
		}
		r.create(colleague)
		r.refused(collaboration("three", 1))
	})
	t.Run("P11 one that waits until its question expires holds no place", func(t *testing.T) {
		r := newRig(t, open)
		r.create(collaboration("one", 1))
		r.park(r.claim("one"), runs.Park{Until: r.clock.Now().Add(168 * time.Hour)})
		second := collaboration("two", 1)
		second.AccountCollaborations = 1
		r.create(second)
		r.park(r.claim("two"), runs.Park{Until: r.clock.Now().Add(168 * time.Hour)})
		r.clock.Move(169 * time.Hour)
		r.refused(collaboration("three", 1)) // both are due again
	})
	t.Run("P11 an account has places of its own", func(t *testing.T) {
		r := newRig(t, open)
		of := func(id, agent, owner string) runs.New {
			n := collaboration(id, 5)
			n.AccountCollaborations, n.Accepted.Agent, n.Owner, n.Accepted.Owner = 2, agent, owner, owner
			return n
		}
		r.create(of("one", "a", me), of("two", "b", "acme/zoe"), of("other", "a", "other/bob"))
		if _, _, err := r.Create(r.ctx(), of("three", "c", me)); !errors.Is(err, runs.ErrAccountBusy) {
			t.Fatalf("Create = %v, want ErrAccountBusy", err)
		}
		for _, c := range r.claims() {
			if c.Root == "two" {
				r.append(c, succeeded())
			}
		}
		r.create(of("three", "c", me))
	})
	t.Run("C-18 tasks without a brief take no place, and other agents have their own", func(t *testing.T) {
		r := newRig(t, open)
		other := collaboration("other", 1)
		other.Accepted.Agent = "b"
		r.create(collaboration("one", 1), task("plain"), other)
		r.running("one")
	})
}

// slotsOfDefined tests collaborations of teams that the catalog defines.
func slotsOfDefined(t *testing.T, open Open) {
	defined := func(id string, most int) runs.New {
		n := collaboration(id, most)
		n.Entry, n.Accepted.Pins = "a", &teamv1.Pins{Accounts: map[string]string{n.Accepted.GetAgent(): "acme"}}
		return n
	}
	t.Run("R-001-30 a team of the catalog is not deleted while it has one, and begins none once it is", func(t *testing.T) {
		r := newRig(t, open)
		version, err := r.ChangeCatalog(r.ctx(), 0, catalog.Change{Put: []catalog.Entry{entry(r.clock, "a", "a team")}})
		if err != nil {
			t.Fatal(err)
		}
		r.create(defined("one", 1))
		if _, err := r.ChangeCatalog(r.ctx(), version, catalog.Change{Delete: []string{"a"}}); !errors.Is(err, runs.ErrBusy) {
			t.Errorf("ChangeCatalog = %v, want ErrBusy", err)
		}
		if snap, err := r.Catalog(r.ctx()); err != nil || snap.Version != version || len(snap.Entries) != 1 {
			t.Errorf("Catalog = %v, %v", snap, err)
		}
		r.append(r.claim("one"), succeeded())
		if _, err := r.ChangeCatalog(r.ctx(), version, catalog.Change{Delete: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		if _, existed, err := r.Create(r.ctx(), defined("two", 1)); existed || !errors.Is(err, runs.ErrDeleted) {
			t.Errorf("Create = %v, %v, want ErrDeleted", existed, err)
		}
		again := defined("three", 1)
		again.MessageID = "m-one"
		if root, existed, err := r.Create(r.ctx(), again); root != "one" || !existed || err != nil {
			t.Errorf("Create of the first again = %q, %v, %v", root, existed, err)
		}
		r.running()
	})
	t.Run("R-001-30 of a start and a deletion at once one is refused", func(t *testing.T) {
		r := newRig(t, open)
		for round := range 20 {
			version, err := r.CatalogVersion(r.ctx())
			if err == nil {
				version, err = r.ChangeCatalog(r.ctx(), version, catalog.Change{Put: []catalog.Entry{entry(r.clock, "a", "a team")}})
			}
			if err != nil {
				t.Fatal(err)
			}
			var begun, deleted error
			var wg sync.WaitGroup
			wg.Go(func() { _, _, begun = r.Create(r.ctx(), defined(id(round), 1)) })
			wg.Go(func() {
				_, deleted = r.ChangeCatalog(r.ctx(), version, catalog.Change{Delete: []string{"a"}})
			})
			wg.Wait()
			switch {
			case begun == nil && errors.Is(deleted, runs.ErrBusy):
				r.append(r.claim(id(round)), succeeded())
			case deleted == nil && errors.Is(begun, runs.ErrDeleted):
			default:
				t.Fatalf("round %d: Create = %v, ChangeCatalog = %v", round, begun, deleted)
			}
		}
	})
}

// slotsAtOnce tests collaborations that begin at the same time.
func slotsAtOnce(t *testing.T, open Open) {
	t.Run("R-001-30 of many at once as many begin as there may be", func(t *testing.T) {
		r := newRig(t, open)
		for round := range 3 {
			var wg sync.WaitGroup
			var won atomic.Int64
			for i := range 20 {
				wg.Go(func() {
					n := collaboration(id(100*round+i), 3)
					root, existed, err := r.Create(r.ctx(), n)
					switch {
					case err == nil && !existed && root == n.Accepted.GetTaskId():
						won.Add(1)
					case !errors.Is(err, runs.ErrBusy):
						t.Errorf("Create = %q, %v, %v", root, existed, err)
					}
				})
			}
			wg.Wait()
			claims := r.claims()
			if won.Load() != 3 || len(claims) != 3 {
				t.Fatalf("%d began, %d are due, want 3", won.Load(), len(claims))
			}
			for _, c := range claims {
				r.append(c, succeeded())
			}
			r.running()
		}
	})
}

// collaborating returns the ids of the caller's collaborations.
func (r *rig) collaborating(f runs.RootFilter) []string {
	r.Helper()
	ids, err := r.Collaborating(r.ctx(), me, f)
	if err != nil {
		r.Fatalf("Collaborating(%+v): %v", f, err)
	}
	return ids
}

// newestCollaborations tests lists of collaborations.
func newestCollaborations(t *testing.T, open Open) {
	t.Run("R-001-32 an owner's collaborations are listed by their ids, in descending order", func(t *testing.T) {
		r := newRig(t, open)
		foreign, other, hidden := collaboration("6", 9), collaboration("4", 9), collaboration("2", 9)
		foreign.Owner, other.Accepted.Agent, hidden.Accepted.MayReplyDirectly = "acme/bob", "b", true
		r.create(collaboration("3", 9), collaboration("1", 9), task("0"), task("7"), foreign, other, hidden, collaboration("5", 9))
		claims := map[string]runs.Claim{}
		for _, c := range r.claims() {
			claims[c.Root] = c
		}
		r.clock.Move(time.Second)
		r.append(claims["3"], started(""), succeeded()) // the order is that of the ids
		for _, c := range []struct {
			f    runs.RootFilter
			want []string
		}{
			{runs.RootFilter{}, []string{"5", "4", "3", "1"}},
			{runs.RootFilter{Limit: 2}, []string{"5", "4"}},
			{runs.RootFilter{Before: "4"}, []string{"3", "1"}},
			{runs.RootFilter{Before: "4", Limit: 1}, []string{"3"}},
			{runs.RootFilter{Before: "45"}, []string{"4", "3", "1"}},
			{runs.RootFilter{Before: "1"}, nil},
			{runs.RootFilter{Agent: "a"}, []string{"5", "3", "1"}},
			{runs.RootFilter{Agent: "a", Before: "5", Limit: 1}, []string{"3"}},
			{runs.RootFilter{Agent: "c"}, nil},
		} {
			if got := r.collaborating(c.f); !slices.Equal(got, c.want) {
				t.Errorf("Collaborating(%+v) = %v, want %v", c.f, got, c.want)
			}
		}
		r.append(claims["2"], started(""), progress("it is seen now"))
		if got := r.collaborating(runs.RootFilter{Before: "3"}); !slices.Equal(got, []string{"2", "1"}) {
			t.Errorf("Collaborating = %v, without the one that is seen now", got)
		}
		if ids, err := r.Collaborating(r.ctx(), "other/user", runs.RootFilter{}); err != nil || len(ids) > 0 {
			t.Errorf("Collaborating of another account = %v, %v", ids, err)
		}
	})
}
