package sqlstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
)

func thread(context string) runs.Thread { return runs.Thread{Owner: me, ContextID: context} }

// remember adds an exchange with a key of the state.
func remember(t testing.TB, s *sqlstore.Store, context, task string) {
	t.Helper()
	err := s.Remember(t.Context(), thread(context), runs.Exchange{Task: task, By: []runs.Contribution{{
		Path: "lead", Messages: []*a2av1.Message{agent.UserMessage("m", task+"?"), agent.NewMessage(task + "!")},
		State: map[string]*structpb.Value{"conversation.last": structpb.NewStringValue(task)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

func recall(t testing.TB, s *sqlstore.Store, context string) runs.Recollection {
	t.Helper()
	r, err := s.Recall(t.Context(), thread(context), "lead", 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A conversation goes when nothing was added to it for the retention time,
// whatever became of its runs.
func TestSweep_Conversations(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := open(t, url(t), sqlstore.Config{Clock: func() time.Time { return now }, Lease: forever, Retention: 24 * time.Hour})
			before := s.Rows(t.Context(), t)
			for i := range 40 { // more than go in one transaction
				remember(t, s, id(i), "one")
			}
			remember(t, s, "used", "one")
			now = now.Add(23 * time.Hour)
			sweep(t, s)
			remember(t, s, "used", "two")
			if got := recall(t, s, id(3)).History; len(got) != 2 {
				t.Errorf("after 23 hours %v", got)
			}
			now = now.Add(2 * time.Hour)
			sweep(t, s)
			if got := recall(t, s, id(3)); len(got.History)+len(got.State) != 0 {
				t.Errorf("after 25 hours %v", got)
			}
			if got := recall(t, s, "used"); len(got.History) != 4 || got.State["conversation.last"].GetStringValue() != "two" {
				t.Errorf("of the one that is used %v", got)
			}
			now = now.Add(25 * time.Hour)
			sweep(t, s)
			if n := s.Rows(t.Context(), t); n != before {
				t.Errorf("%d rows are left, there were %d", n, before)
			}
		})
	}
}

func TestCopy_Conversations(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("from SQLite to "+name, func(t *testing.T) {
			from, to := open(t, sqliteURL(t), sqlstore.Config{}), open(t, url(t), sqlstore.Config{})
			remember(t, from, "c", "one")
			remember(t, from, "c", "two")
			if _, err := sqlstore.Copy(t.Context(), from, to); err != nil {
				t.Fatal(err)
			}
			remember(t, to, "c", "two") // known there too
			remember(t, to, "c", "three")
			got := recall(t, to, "c")
			if len(got.History) != 6 || agent.Text(got.History[0]) != "one?" || got.State["conversation.last"].GetStringValue() != "three" {
				t.Errorf("R-002-29 %v", got)
			}
		})
	}
}

// P15: an entry that is not what was written is found, and other conversations
// are not concerned.
func TestP15_DamagedConversation(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("P15 "+name, func(t *testing.T) {
			s := open(t, url(t), sqlstore.Config{})
			for _, context := range []string{"body", "moved", "state", "good"} {
				remember(t, s, context, "one")
				remember(t, s, context, "two")
			}
			for _, damage := range []string{
				`UPDATE history SET body = (SELECT body FROM history WHERE context_id = 'body' AND n = 1) WHERE context_id = 'body' AND n = 2`,
				`UPDATE history SET n = 7 WHERE context_id = 'moved' AND n = 1`,
				`UPDATE conversation_state SET sum = 0 WHERE context_id = 'state'`,
			} {
				s.Exec(t.Context(), t, damage)
			}
			for _, context := range []string{"body", "moved", "state"} {
				if _, err := s.Recall(t.Context(), thread(context), "lead", 1<<40); !errors.Is(err, runs.ErrDataLoss) {
					t.Errorf("Recall(%s): %v, want ErrDataLoss", context, err)
				}
			}
			if got := recall(t, s, "good"); len(got.History) != 4 {
				t.Errorf("of the good one %v", got)
			}
			remember(t, s, "state", "three") // it goes on from nothing
			if got := recall(t, s, "state").State["conversation.last"].GetStringValue(); got != "three" {
				t.Errorf("state %q", got)
			}
		})
	}
}

// Two replicas add to one conversation.
func TestPostgres_R_002_27_TwoReplicas(t *testing.T) {
	t.Parallel()
	a, b := pair(t, sqlstore.Config{})
	const each = 25
	errs := make(chan error, 2)
	for r, s := range []*sqlstore.Store{a, b} {
		go func() {
			var err error
			for i := range each {
				e := runs.Exchange{Task: id(r*each + i), By: []runs.Contribution{{Path: "lead", Messages: []*a2av1.Message{agent.NewMessage("x")}}}}
				err = errors.Join(err, s.Remember(context.Background(), thread("c"), e))
			}
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, s := range []*sqlstore.Store{a, b} {
		if n, err := s.Position(t.Context(), thread("c")); n != 2*each || err != nil {
			t.Errorf("R-002-27 Position = %d, %v", n, err)
		}
	}
}

// BenchmarkConversation is what a turn costs in a conversation that has as many
// entries as are kept: reading it, and adding to it.
func BenchmarkConversation(b *testing.B) {
	s := open(b, sqliteURL(b), sqlstore.Config{})
	add := func(task string, n int) {
		e := runs.Exchange{Task: task, By: []runs.Contribution{{Path: "lead"}}}
		for range n {
			e.By[0].Messages = append(e.By[0].Messages, agent.NewMessage("some words that were said"))
		}
		if err := s.Remember(b.Context(), thread("c"), e); err != nil {
			b.Fatal(err)
		}
	}
	add("before", runs.KeptEntries)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n, err := s.Position(b.Context(), thread("c"))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.Recall(b.Context(), thread("c"), "lead", n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			add(id(i), 2)
		}
	})
}

// Large entries are stored in pieces, once for each path, and go with the last entry that needs them. Pieces that were
// deleted before their entry was recorded are stored with it.
func TestP11_LargeEntriesAreInPieces(t *testing.T) {
	t.Parallel()
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := open(t, url(t), sqlstore.Config{Clock: func() time.Time { return now }, Lease: forever, Retention: 24 * time.Hour})
			before := s.Rows(t.Context(), t)
			large := strings.Repeat("large ", 400_000)
			add := func(task string, texts ...string) {
				t.Helper()
				var list []*a2av1.Message
				for _, text := range texts {
					list = append(list, agent.UserMessage("m", text))
				}
				if err := s.Remember(t.Context(), thread("c"), runs.Exchange{Task: task, By: []runs.Contribution{{Path: "lead", Messages: list}}}); err != nil {
					t.Fatal(err)
				}
			}
			pieces := func(want int64) {
				t.Helper()
				if n := s.Count(t.Context(), t, "history_piece"); n != want {
					t.Errorf("%d pieces are stored, want %d", n, want)
				}
			}
			add("one", "small", large)
			add("two", large)
			pieces(3)
			s.Exec(t.Context(), t, `DELETE FROM history_piece WHERE piece = 1`)
			if _, err := s.Recall(t.Context(), thread("c"), "lead", 1<<40); !errors.Is(err, runs.ErrDataLoss) {
				t.Errorf("without a piece: %v", err)
			}
			add("three", large)
			pieces(3)
			if got := recall(t, s, "c").History; len(got) != 4 || agent.Text(got[0]) != "small" || agent.Text(got[1]) != large || agent.Text(got[3]) != large {
				t.Errorf("recalled are %d messages", len(got))
			}
			for i := range 3 {
				add(id(i), slices.Repeat([]string{"x"}, runs.KeptEntries/2)...)
			}
			pieces(0)
			add("last", large)
			pieces(3)
			now = now.Add(25 * time.Hour)
			sweep(t, s)
			if n := s.Rows(t.Context(), t); n != before {
				t.Errorf("%d rows are left, there were %d", n, before)
			}
		})
	}
}
