package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/testkit/memstore"
)

const testLease = 15 * time.Second

// sharedStore is a store that several replicas use, in which every owner has a task.
type sharedStore struct {
	Store
	queries int   // of tasks
	keys    error // of reading the keys
}

func (s *sharedStore) Lease() time.Duration { return testLease }

func (s *sharedStore) Runs(context.Context, string, runs.RunFilter) ([]runs.RunMark, error) {
	s.queries++
	return []runs.RunMark{{Root: "1"}}, nil
}

func (s *sharedStore) Keys(ctx context.Context) ([]auth.StoredKey, error) {
	if s.keys != nil {
		return nil, s.keys
	}
	return s.Store.Keys(ctx)
}

// replica returns the ender of a replica with a key of acme/bob that ends, and one of another owner.
func replica(t *testing.T, s *sharedStore, bob time.Time, rights teamv1.EndedRights_Value) *ender {
	t.Helper()
	key := func(name string) *teamv1.ApiKey {
		sum := sha256.Sum256([]byte(name))
		return &teamv1.ApiKey{Name: name, Account: "acme", Sha256: hex.EncodeToString(sum[:])}
	}
	keys := []*teamv1.ApiKey{key("ann")}
	if !bob.IsZero() {
		keys = append(keys, key("bob"))
		keys[1].Expires = bob.Format(time.RFC3339Nano)
	}
	accept := &teamv1.AuthConfig{ApiKeys: keys, Ended: rights}
	by, err := auth.New(auth.Config{Accept: accept, Store: s, Clock: s.Now})
	if err != nil {
		t.Fatal(err)
	}
	e := newEnder(&Config{Store: s, Log: zap.NewNop()}, settings.Of(&teamv1.ServerSettings{Auth: accept}), by)
	e.see(t)
	return e
}

// see reads the keys of the store.
func (e *ender) see(t *testing.T) {
	t.Helper()
	if err := e.auth.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// looks compares rights with tasks after a time.
func (e *ender) looks(t *testing.T, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	_ = e.auth.Refresh(t.Context()) // it may fail
	if err := e.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// halted returns the halt of acme/bob, nil without one.
func (s *sharedStore) halted(t *testing.T) *teamv1.Halt {
	t.Helper()
	snap, err := s.Halts(t.Context())
	if err != nil || len(snap.Halts) > 1 {
		t.Fatal(snap, err)
	}
	if len(snap.Halts) == 0 {
		return nil
	}
	return snap.Halts[0]
}

// actions returns the actions and subjects of the audit records of the server itself.
func (s *sharedStore) actions(t *testing.T) (list []string) {
	t.Helper()
	entries, err := s.Audit(t.Context(), audit.ServerAccount, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		r, err := e.Record()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r.GetAction()+" "+r.GetSubject())
	}
	return list
}

// TestT_11_ReplicasDisagree: replicas whose files differ do not halt and resume an owner in turn, and none
// cancels because of its own file.
func TestT_11_ReplicasDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedStore{Store: memstore.Open(t)}
		before, after := replica(t, s, time.Now().Add(-time.Hour), teamv1.EndedRights_CANCEL), replica(t, s, time.Now().Add(time.Hour), teamv1.EndedRights_CANCEL)
		before.looks(t, 0)
		first := s.halted(t)
		if !first.GetPause() {
			t.Fatalf("halt %v", first)
		}
		for range 2 {
			after.looks(t, endEvery)
			before.looks(t, 0)
			if h := s.halted(t); h.GetVersion() != first.GetVersion() {
				t.Fatalf("the halt was changed within a lease: %v", h)
			}
		}
		for range 10 {
			after.looks(t, endEvery)
			before.looks(t, 0)
		}
		if version, err := s.HaltVersion(t.Context()); err != nil || version != first.GetVersion()+1 || s.halted(t) != nil {
			t.Errorf("%d changes of halts, %v", version, err)
		}
		if got := s.actions(t); !slices.Equal(got, []string{`halt owner "acme/bob"`, `resume owner "acme/bob"`}) {
			t.Errorf("the audit log has %q", got)
		}
	})
}

// TestT_11_CancelIsConfirmed: tasks are canceled a lease after a key in the store was revoked, and paused
// until then. A file alone pauses them only.
func TestT_11_CancelIsConfirmed(t *testing.T) {
	for name, inStore := range map[string]bool{"a key in the store": true, "a key in the file": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sharedStore{Store: memstore.Open(t)}
				expired := time.Now().Add(-time.Hour)
				if inStore {
					sum := sha256.Sum256([]byte("x"))
					k := auth.StoredKey{Key: &teamv1.Key{Id: "k", Account: "acme", Name: "bob", Revoked: timestamppb.Now()}, Hash: sum[:]}
					if err := s.PutKey(t.Context(), k); err != nil {
						t.Fatal(err)
					}
					expired = time.Time{}
				}
				e := replica(t, s, expired, teamv1.EndedRights_CANCEL)
				e.looks(t, 0)
				e.looks(t, testLease-time.Second)
				if h := s.halted(t); !h.GetPause() {
					t.Fatalf("within a lease: %v", h)
				}
				e.looks(t, time.Second)
				if h := s.halted(t); h == nil || h.GetPause() == inStore {
					t.Errorf("after a lease: %v", h)
				}
			})
		})
	}
}

// TestT_11_PersonsHalts: a halt that a person has given is neither replaced nor ended, also if it was given
// just now; and one that a person has ended does not come back.
func TestT_11_PersonsHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedStore{Store: memstore.Open(t)}
		e := replica(t, s, time.Now().Add(-time.Hour), teamv1.EndedRights_PARK)
		byHand := &teamv1.Halt{Kind: teamv1.HaltKind_HALT_KIND_OWNER, Name: "acme/bob", Reason: "abuse", By: "acme/root"}
		if err := s.Halt(t.Context(), byHand, nil); err != nil {
			t.Fatal(err)
		}
		e.owners["acme/bob"] = &endedOwner{}
		if err := e.halt(t.Context(), "acme/bob", nil, true); err != nil {
			t.Fatal(err)
		}
		if err := e.resume(t.Context(), &teamv1.Halt{Kind: byHand.GetKind(), Name: "acme/bob", Version: byHand.GetVersion() - 1}); err != nil {
			t.Fatal(err)
		}
		if got := s.actions(t); len(got) > 0 {
			t.Errorf("the audit log has %q, although nothing was changed", got)
		}
		e.looks(t, time.Minute)
		if h := s.halted(t); h.GetReason() != "abuse" {
			t.Errorf("the halt became %v", h)
		}
		if _, err := s.EndHalt(t.Context(), byHand.GetKind(), "acme/bob", nil); err != nil {
			t.Fatal(err)
		}
		e.looks(t, endEvery)
		if h := s.halted(t); h.GetBy() != endedBy {
			t.Fatalf("without a halt of a person: %v", h)
		}
		if _, err := s.EndHalt(t.Context(), byHand.GetKind(), "acme/bob", nil); err != nil {
			t.Fatal(err)
		}
		e.looks(t, time.Minute)
		if h := s.halted(t); h != nil {
			t.Errorf("a person has ended it, and then: %v", h)
		}
	})
}

// TestT_11_StaleKeys: a replica that cannot read the keys of the store ends no rights.
func TestT_11_StaleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedStore{Store: memstore.Open(t)}
		e := replica(t, s, time.Now().Add(time.Second), teamv1.EndedRights_PARK)
		s.keys = errors.New("no connection")
		e.looks(t, time.Minute)
		if h := s.halted(t); h != nil {
			t.Errorf("with old keys: %v", h)
		}
		s.keys = nil
		e.looks(t, 0)
		if h := s.halted(t); h == nil {
			t.Error("not halted with new keys")
		}
	})
}

// idleStore is a store without tasks.
type idleStore struct{ sharedStore }

func (s *idleStore) Runs(context.Context, string, runs.RunFilter) ([]runs.RunMark, error) {
	s.queries++
	return nil, nil
}

// TestT_11_IdleOwners: owners without tasks are not looked for again and again.
func TestT_11_IdleOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &idleStore{sharedStore{Store: memstore.Open(t)}}
		e := replica(t, &s.sharedStore, time.Now().Add(-time.Hour), teamv1.EndedRights_PARK)
		e.store = s
		for range 100 {
			e.looks(t, endEvery)
		}
		if most := int((testLease+idleAfter)/endEvery) + 2; s.queries > most {
			t.Errorf("%d queries, want at most %d", s.queries, most)
		}
	})
}

// TestT_11_ManyOwnersOfTokens: owners whose tokens have expired and who have no tasks take no memory of an ender, and
// are forgotten by the store.
func TestT_11_ManyOwnersOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedStore{Store: memstore.Open(t)}
		const owners = 100_000
		list := make([]auth.Right, owners)
		for i := range list {
			list[i] = auth.Right{Owner: fmt.Sprintf("acme/corp:%d", i), Source: auth.Source{Issuer: "https://id.example", Key: "one"}, Until: time.Now()}
		}
		if err := s.PutRights(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		e := replica(t, s, time.Time{}, teamv1.EndedRights_PARK)
		e.looks(t, time.Second)
		if len(e.owners) > 0 || s.queries > 0 {
			t.Errorf("%d owners are kept, after %d queries of tasks", len(e.owners), s.queries)
		}
		time.Sleep(2 * auth.RightsKept)
		if err := s.PutRights(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if kept, err := s.Rights(t.Context(), r.Owner); len(kept) > 0 || err != nil {
				t.Fatalf("%v, %v", kept, err)
			}
		}
	})
}
