package monitor

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/identity"
)

// everyBoard: every team has a board.
type everyBoard struct{}

func (everyBoard) BoardOf(context.Context, string) (members []string, has bool, err error) {
	return nil, true, nil
}
func (everyBoard) AccountOf(string) string { return "" }

func (everyBoard) PlanOf(string, string) []*teamv1.WorkItem { return nil }

// post leaves messages on the board of "a".
func (d *desk) post(b *board.Board, n int) {
	d.Helper()
	p := board.Place{Key: board.Key{Account: "acme", Team: "a"}, Actor: &teamv1.BoardActor{Principal: "acme/ann"}}
	for range n {
		if _, err := b.PostMessage(context.Background(), p, &teamv1.PostMessageRequest{Text: "x"}); err != nil {
			d.Fatal(err)
		}
	}
}

// TestR_003_30_BoardThatWentOn: if the next events of a board have been deleted, a watcher,
// and one that resumes from such a cursor, gets a new snapshot.
func TestR_003_30_BoardThatWentOn(t *testing.T) {
	d := newDesk(t)
	b := board.New(d.store)
	d.m.c.Boards, d.m.c.BoardTeams = b, everyBoard{}
	next, stop := d.watchBoard("")
	defer stop()
	if got := next(); got != "snapshot" {
		t.Fatalf("begins with %s", got)
	}
	d.post(b, 3)
	for i := range 3 {
		if got := next(); got != fmt.Sprint("event ", i+1) {
			t.Fatalf("told %s", got)
		}
	}
	cursor := cursor{upTo: d.clock.Now(), board: 3}.encode("acme/ann", "a")
	d.post(b, board.MaxEvents+1)
	if got := next(); got != "snapshot" {
		t.Fatalf("told %s, want a snapshot", got)
	}
	d.post(b, 1)
	if got := next(); got != fmt.Sprint("event ", board.MaxEvents+5) {
		t.Fatalf("told %s", got)
	}
	d.post(b, board.MaxEvents)
	late, end := d.watchBoard(cursor)
	defer end()
	if got := late(); got != "snapshot" {
		t.Errorf("behind a cursor of what is gone comes %s", got)
	}
}

// watchBoard returns a function that reads the next message of a watch as a word; it skips
// updates.
func (d *desk) watchBoard(cursor string) (next func() string, stop func()) {
	d.Helper()
	seq, err := d.m.WatchTeam(d.ctx, &teamv1.WatchTeamRequest{TeamId: "a", Cursor: cursor})
	if err != nil {
		d.Fatal(err)
	}
	pull, stop := iter.Pull2(seq)
	return func() string {
		for {
			r, err, ok := pull()
			if err != nil || !ok {
				d.Fatalf("ended: %v", err)
			}
			switch k := r.GetKind().(type) {
			case *teamv1.WatchTeamResponse_BoardEvent:
				return fmt.Sprint("event ", k.BoardEvent.GetSeq())
			case *teamv1.WatchTeamResponse_Snapshot:
				return "snapshot"
			}
		}
	}, stop
}

// TestR_003_29_LapsedClaimsAreShown: when a claim expires, the snapshot changes without an
// event.
func TestR_003_29_LapsedClaimsAreShown(t *testing.T) {
	d := newDesk(t)
	b := board.New(d.store)
	d.m.c.Boards, d.m.c.BoardTeams = b, everyBoard{}
	p := board.Place{Key: board.Key{Account: "acme", Team: "a"}, Actor: &teamv1.BoardActor{Principal: "acme/ann"}}
	if _, err := b.AddWorkItem(d.ctx, p, &teamv1.AddWorkItemRequest{ItemId: "x", Title: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ClaimWorkItem(d.ctx, p, &teamv1.ClaimWorkItemRequest{ItemId: "x"}); err != nil {
		t.Fatal(err)
	}
	ctx := identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "bob"}) // of the same account
	seq, err := d.m.WatchTeam(ctx, &teamv1.WatchTeamRequest{TeamId: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range seq {
		switch {
		case err != nil:
			t.Fatal(err)
		case r.GetSnapshot() != nil:
			if r.GetSnapshot().GetBoard().GetInProgress() != 1 || len(r.GetSnapshot().GetBoardItems()) != 1 {
				t.Errorf("begins with %v", r.GetSnapshot())
			}
			d.clock.Move(5 * time.Minute)
		case r.GetUpdate().GetBoard().GetPending() == 1 && len(r.GetUpdate().GetBoardItems()) == 0:
			return
		default:
			t.Fatalf("told %v", r)
		}
	}
}
