package sqlstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestR_003_23_CopyOfBoards: they are copied as they are, with what was read and which
// ops were done, and go on from there.
func TestR_003_23_CopyOfBoards(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("from SQLite to "+name, func(t *testing.T) {
			from, to := open(t, sqliteURL(t), sqlstore.Config{}), open(t, url(t), sqlstore.Config{})
			p := board.Place{Key: board.Key{Account: "acme", Team: "desk"}, Actor: &teamv1.BoardActor{Principal: "acme/ann"}}
			b := board.New(from)
			first := &teamv1.AddWorkItemRequest{ItemId: "a", Title: "a", Op: "once"}
			_, err := b.AddWorkItem(t.Context(), p, first)
			must(t, err)
			_, err = b.AddWorkItem(t.Context(), p, &teamv1.AddWorkItemRequest{ItemId: "b", Title: "b", DependsOn: []string{"a"}})
			must(t, err)
			_, err = b.PostMessage(t.Context(), p, &teamv1.PostMessageRequest{Text: "hello"})
			must(t, err)
			_, err = b.AckMessages(t.Context(), board.Place{Key: p.Key, Actor: &teamv1.BoardActor{Principal: "acme/bob"}}, &teamv1.AckMessagesRequest{UpTo: 3})
			must(t, err)
			if _, err := sqlstore.Copy(t.Context(), from, to); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole(t, from, p), whole(t, to, p), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			b = board.New(to)
			again, err := b.AddWorkItem(t.Context(), p, first)
			if must(t, err); again.GetVersion() != 1 {
				t.Errorf("again %v", again)
			}
			_, err = b.ClaimWorkItem(t.Context(), p, &teamv1.ClaimWorkItemRequest{ItemId: "a"})
			must(t, err)
			_, err = b.CompleteWorkItem(t.Context(), p, &teamv1.CompleteWorkItemRequest{ItemId: "a"})
			must(t, err)
			if it, err := b.GetWorkItem(t.Context(), p, "b"); err != nil || it.GetState() != teamv1.WorkItem_STATE_PENDING {
				t.Errorf("%v, %v", it, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// whole is everything that is on a board.
func whole(t *testing.T, s *sqlstore.Store, p board.Place) []any {
	t.Helper()
	b := board.New(s)
	items, _, err := b.ListWorkItems(t.Context(), p, &teamv1.ListWorkItemsRequest{})
	must(t, err)
	events, err := b.Events(t.Context(), p.Key, 0)
	must(t, err)
	messages, _, err := b.ListMessages(t.Context(), p, &teamv1.ListMessagesRequest{})
	must(t, err)
	if len(items) != 2 || len(events) != 3 || len(messages) != 1 || strings.Join(messages[0].GetAcknowledgedBy(), " ") != "acme/bob" {
		t.Fatalf("%v, %v, %v", items, events, messages)
	}
	return []any{items, events, messages}
}

// TestR_003_18_ManyBoardsAtOnce: boards are changed side by side, each in an order of
// its own.
func TestR_003_18_ManyBoardsAtOnce(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, url(t), sqlstore.Config{})
			b := board.New(s)
			errs := make(chan error, 40)
			for i := range 40 { // four boards, ten changes each
				go func() {
					p := board.Place{Key: board.Key{Account: "acme", Team: []string{"a", "b", "c", "d"}[i%4]}, Actor: &teamv1.BoardActor{Principal: "acme/ann"}}
					_, err := b.AddWorkItem(context.WithoutCancel(t.Context()), p, &teamv1.AddWorkItemRequest{Title: "x"})
					errs <- err
				}()
			}
			for range 40 {
				must(t, <-errs)
			}
			for _, team := range []string{"a", "b", "c", "d"} {
				o, err := b.Overview(t.Context(), board.Key{Account: "acme", Team: team})
				if must(t, err); o.Seq != 10 || o.Counters.GetPending() != 10 {
					t.Errorf("%s: %v", team, o)
				}
			}
		})
	}
}
