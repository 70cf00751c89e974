package sqlstore_test

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestPostgres_T_44_ATakeoverIsLoggedOnceForEachReplica: with the replica that was lost, the runs that were
// taken over, and those that wait for a slot, however many claims it takes.
func TestPostgres_T_44_ATakeoverIsLoggedOnceForEachReplica(t *testing.T) {
	core, logged := observer.New(zapcore.InfoLevel)
	a, b := pair(t, sqlstore.Config{Lease: 300 * time.Millisecond, Log: zap.New(core)})
	const first, second = 3, 2
	claimAll := func(replica string, ids ...string) {
		t.Helper()
		create(t, a, ids...)
		if claims, _, err := a.Claim(t.Context(), replica, engine.NewRoom(10, nil)); err != nil || len(claims) != len(ids) {
			t.Fatalf("Claim = %d, %v", len(claims), err)
		}
	}
	claimAll("gone", id(1), id(2), id(3))
	claimAll("lost", id(4), id(5))
	taken := 0
	until(t, "the leases run out", func() bool {
		claims, _, err := b.Claim(t.Context(), "b", engine.NewRoom(2, nil))
		if err != nil {
			t.Fatal(err)
		}
		taken += len(claims)
		return taken == first+second
	})
	runs := map[any]int64{}
	for _, e := range logged.FilterMessageSnippet("took over").All() {
		of := e.ContextMap()
		number := func(name string) int64 { n, _ := of[name].(int64); return n }
		if runs[of["lost"]] > 0 || number("runs") == 0 {
			t.Errorf("logged again, or without runs: %v", of)
		}
		runs[of["lost"]] = number("runs") + number("left")
	}
	if len(runs) != 2 || runs["gone"] != first || runs["lost"] != second {
		t.Errorf("logged takeovers: %v", runs)
	}
}

// TestSQLite_T_44_RunsOfAnEarlierProcessAreLogged: of one that did not hand them over.
func TestSQLite_T_44_RunsOfAnEarlierProcessAreLogged(t *testing.T) {
	url := sqliteURL(t)
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, id(1))
	claim(t, s, "r")
	if err := s.Close(); err != nil { // as after a crash, the run is still claimed
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		core, logged := observer.New(zapcore.InfoLevel)
		s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{Log: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		lines := logged.FilterMessageSnippet("took over").All()
		if len(lines) != want || want > 0 && lines[0].ContextMap()["runs"] != int64(1) {
			t.Errorf("logged %v, want %d lines", lines, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
