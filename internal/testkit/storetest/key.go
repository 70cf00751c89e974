package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
)

// keys tests auth.Store: API keys are stored, replaced by id, and announced.
func keys(t *testing.T, open Open) {
	s := auth.Store(open(t, NewClock().Now))
	wake, stop := s.WatchKeys()
	defer stop()
	woken := func() {
		t.Helper()
		select {
		case <-wake:
		case <-time.After(10 * time.Second):
			t.Error("a change is not announced")
		}
	}
	at := timestamppb.New(time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	b := auth.StoredKey{Hash: []byte("hash of b"), Key: &teamv1.Key{Id: "b", Account: "acme", Name: "ann", Permissions: []teamv1.Permission_Value{teamv1.Permission_READ}, Roles: []string{"editor"}, Created: at, CreatedBy: "acme/boss", Expires: at}}
	a := auth.StoredKey{Hash: []byte("hash of a"), Key: &teamv1.Key{Id: "a", Account: "acme", Name: "ann"}}
	put := func(k auth.StoredKey) {
		t.Helper()
		if err := s.PutKey(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		woken()
	}
	want := func(list ...auth.StoredKey) {
		t.Helper()
		got, err := s.Keys(t.Context())
		if err != nil || cmp.Diff(list, got, protocmp.Transform()) != "" {
			t.Errorf("%v, %v; want %v", got, err, list)
		}
	}
	want()
	put(b)
	put(a)
	want(a, b)
	b.Key.Revoked, b.Key.RevokedBy = at, "acme/boss"
	put(b)
	want(a, b)
}
