package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// OpenKeep is like Open, for a store that keeps as long as keep says what is not part of a task.
type OpenKeep func(t testing.TB, clock func() time.Time, keep store.Keep) Sweeper

const day = 24 * time.Hour

// RunKeep tests what a store deletes by itself, apart from tasks.
func RunKeep(t *testing.T, open OpenKeep) {
	for _, s := range []struct {
		name string
		test func(*testing.T, OpenKeep)
	}{{"T-49 Audit", keepAudit}, {"Boards", keepBoards}, {"Conversations", keepConversations}} {
		t.Run(s.name, func(t *testing.T) { s.test(t, open) })
	}
}

func sweepNow(t *testing.T, s Sweeper) {
	t.Helper()
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// keepAudit checks that the rest of a chain can be verified after its first records were deleted.
func keepAudit(t *testing.T, open OpenKeep) {
	c := NewClock()
	s := open(t, c.Now, store.Keep{Audit: 10 * day})
	add := func(account string, n int) {
		t.Helper()
		for i := range n {
			r := audit.New(context.Background(), c.Now(), "halt", fmt.Sprint(i))
			r.Account = account
			if err := s.AppendAudit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	verify := func(account string, seq int64, hash string) (audit.Entry, error) {
		return audit.Verify(t.Context(), s, account, seq, hash)
	}
	const old = audit.MaxTrim + 5
	add("acme", old)
	add("idle", 1)
	noted, err := s.Audit(t.Context(), "acme", old-1, 1)
	if err != nil || len(noted) != 1 {
		t.Fatalf("%v, %v", noted, err)
	}
	c.Move(5 * day)
	add("acme", 3)
	c.Move(5*day + time.Hour)
	sweepNow(t, s)
	d, err := s.AuditDropped(t.Context(), "acme")
	if err != nil || d.Seq != old {
		t.Fatalf("dropped up to %d, %v, want %d", d.Seq, err, old)
	}
	entries, err := s.Audit(t.Context(), "acme", 0, 100)
	if err != nil || len(entries) != 3 || entries[0].Seq != old+1 {
		t.Fatalf("%d records are left, %v", len(entries), err)
	}
	head, err := verify("acme", 0, "")
	if err != nil || head.Seq != old+3 {
		t.Fatalf("Verify = %d, %v", head.Seq, err)
	}
	if _, err := verify("acme", old, fmt.Sprintf("%x", noted[0].Hash)); err != nil {
		t.Errorf("with the noted head of the last deleted record: %v", err)
	}
	if _, err := verify("acme", old, "00"); !errors.Is(err, audit.ErrBroken) {
		t.Errorf("with another hash of the last deleted record: %v", err)
	}
	if _, err := verify("acme", old-1, "00"); agent.AsError(err).Reason != agent.ReasonAuditRecordDeleted {
		t.Errorf("with the noted head of a record before it: %v", err)
	}
	if _, err := verify("acme", old+1, "00"); err == nil {
		t.Error("another hash of a kept record was accepted")
	}
	if got, err := s.Audit(t.Context(), "idle", 0, 10); err != nil || len(got) != 1 {
		t.Errorf("a chain has lost its last record: %v, %v", got, err)
	}
	sweepNow(t, s)
	if after, err := verify("acme", 0, ""); err != nil || after.Seq != head.Seq {
		t.Errorf("a sweep with nothing to delete has appended: %d, %v", after.Seq, err)
	}
	add("acme", 1)
	if after, err := verify("acme", head.Seq, fmt.Sprintf("%x", head.Hash)); err != nil || after.Seq != head.Seq+1 {
		t.Errorf("continued: %d, %v", after.Seq, err)
	}
}

// keepBoards checks that open items, what they depend on, and the position of a board stay.
func keepBoards(t *testing.T, open OpenKeep) {
	c := NewClock()
	s := open(t, c.Now, store.Keep{Boards: 10 * day})
	k := board.Key{Account: "acme", Team: "desk"}
	put := func(op string, it *teamv1.WorkItem) {
		t.Helper()
		it.TeamId, it.Changed = k.Team, timestamppb.New(c.Now())
		_, err := s.ChangeBoard(t.Context(), k, board.Op{ID: op, Digest: []byte(op)}, func(v board.View) (*board.Change, error) {
			it.Number = v.Seq() + 1
			return &board.Change{Event: &teamv1.BoardEvent{Time: timestamppb.New(v.Now()), Kind: teamv1.BoardEvent_KIND_ADDED, Item: it}, Put: []*teamv1.WorkItem{it}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ended := teamv1.WorkItem_STATE_COMPLETED
	put("1", &teamv1.WorkItem{Id: "old", State: ended})
	put("2", &teamv1.WorkItem{Id: "needed", State: ended})
	put("3", &teamv1.WorkItem{Id: "open", State: teamv1.WorkItem_STATE_PENDING, DependsOn: []string{"needed"}})
	c.Move(9 * day)
	put("4", &teamv1.WorkItem{Id: "young", State: ended})
	sweepNow(t, s)
	check := func(items string, events int) {
		t.Helper()
		list, err := s.WorkItems(t.Context(), k, board.Filter{Limit: 100})
		var ids []string
		for _, it := range list {
			ids = append(ids, it.GetId())
		}
		if err != nil || fmt.Sprint(ids) != items {
			t.Errorf("items %v, %v, want %s", ids, err, items)
		}
		evs, err := s.BoardEvents(t.Context(), k, 0, 100)
		if err != nil || len(evs) != events {
			t.Errorf("%d events, %v, want %d", len(evs), err, events)
		}
	}
	check("[old needed open young]", 4)
	c.Move(2 * day)
	sweepNow(t, s)
	check("[needed open young]", 1)
	c.Move(30 * day)
	sweepNow(t, s)
	check("[needed open]", 0)
	put("5", &teamv1.WorkItem{Id: "open", State: ended, DependsOn: []string{"needed"}})
	evs, err := s.BoardEvents(t.Context(), k, 4, 10)
	if err != nil || len(evs) != 1 || evs[0].GetSeq() != 5 {
		t.Errorf("the board begins anew: %v, %v", evs, err)
	}
	c.Move(30 * day)
	sweepNow(t, s)
	check("[]", 0)
}

// keepConversations checks that the conversation of a task that has not ended stays.
func keepConversations(t *testing.T, open OpenKeep) {
	c := NewClock()
	s := open(t, c.Now, store.Keep{Conversations: 10 * day})
	r := &rig{failer: t, Sweeper: s, clock: c}
	r.create(task("t1")) // in the conversation mine
	idle := runs.Thread{Owner: me, ContextID: "idle"}
	r.remember(mine, said("t1", "lead", "x"))
	r.remember(idle, said("t0", "lead", "y"))
	c.Move(9 * day)
	sweepNow(t, s)
	r.wantHistory(idle, "lead", 100, "y?", "y!")
	c.Move(2 * day)
	sweepNow(t, s)
	r.wantHistory(idle, "lead", 100)
	r.wantHistory(mine, "lead", 100, "x?", "x!")
	claim := r.claim("t1")
	if err := claim.Journal.Append(t.Context(), succeeded()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Park(t.Context(), claim, runs.Park{Done: true}); err != nil {
		t.Fatal(err)
	}
	sweepNow(t, s)
	r.wantHistory(mine, "lead", 100)
}
