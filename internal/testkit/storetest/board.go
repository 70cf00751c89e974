package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
)

var desk = board.Key{Account: "acme", Team: "desk"}

// deskOf is a store with a board, and the methods with which a test changes it.
type deskOf struct {
	testing.TB
	store.Store
	clock *Clock
	n     int
}

func newDesk(t testing.TB, open Open) *deskOf {
	c := NewClock()
	return &deskOf{TB: t, Store: open(t, c.Now), clock: c}
}

// change stores items on the board with a new op.
func (d *deskOf) change(k board.Key, items ...*teamv1.WorkItem) *teamv1.BoardEvent {
	d.Helper()
	d.n++
	return d.put(k, fmt.Sprint("op", d.n), &board.Change{Event: &teamv1.BoardEvent{Kind: teamv1.BoardEvent_KIND_UPDATED, Actor: by("ann")}, Put: items})
}

func (d *deskOf) put(k board.Key, op string, c *board.Change) *teamv1.BoardEvent {
	d.Helper()
	ev, err := d.ChangeBoard(d.Context(), k, board.Op{ID: op, Digest: []byte(op)}, func(board.View) (*board.Change, error) { return c, nil })
	if err != nil {
		d.Fatal(err)
	}
	return ev
}

// post adds a message to the board and returns its sequence number.
func (d *deskOf) post(from, to, text string) int64 {
	d.Helper()
	d.n++
	ev, err := d.ChangeBoard(d.Context(), desk, board.Op{ID: fmt.Sprint("op", d.n)}, func(v board.View) (*board.Change, error) {
		m := &teamv1.BoardMessage{Seq: v.Seq() + 1, From: by(from), To: to, Text: text}
		return &board.Change{Event: &teamv1.BoardEvent{Kind: teamv1.BoardEvent_KIND_MESSAGE, Actor: m.GetFrom(), Message: m}}, nil
	})
	if err != nil {
		d.Fatal(err)
	}
	return ev.GetSeq()
}

func by(agent string) *teamv1.BoardActor {
	return &teamv1.BoardActor{Principal: "acme/ann", Agent: agent}
}

// work returns an item with the number n and the id w followed by n.
func work(n int64, s teamv1.WorkItem_State, priority int32, needs ...string) *teamv1.WorkItem {
	return &teamv1.WorkItem{Id: fmt.Sprint("w", n), Number: n, State: s, Priority: priority, DependsOn: needs, Title: "x"}
}

// list returns the ids of the items that a filter selects.
func (d *deskOf) list(f board.Filter) string {
	d.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	items, err := d.WorkItems(d.Context(), desk, f)
	if err != nil {
		d.Fatal(err)
	}
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.GetId()
	}
	return strings.Join(ids, " ")
}

// messages returns the messages that a filter selects, with the names of those who have
// acknowledged them.
func (d *deskOf) messages(f board.MessageFilter) string {
	d.Helper()
	f.Limit = 100
	list, err := d.BoardMessages(d.Context(), desk, f)
	if err != nil {
		d.Fatal(err)
	}
	texts := make([]string, len(list))
	for i, m := range list {
		texts[i] = fmt.Sprint(m.GetText(), m.GetAcknowledgedBy())
	}
	return strings.Join(texts, " ")
}

const (
	pending  = teamv1.WorkItem_STATE_PENDING
	blocked  = teamv1.WorkItem_STATE_BLOCKED
	held     = teamv1.WorkItem_STATE_IN_PROGRESS
	complete = teamv1.WorkItem_STATE_COMPLETED
)

// boards tests the contract of board.Store.
func boards(t *testing.T, open Open) {
	boardChanges(t, open)
	boardViews(t, open)
	boardLists(t, open)
	boardMessages(t, open)
	boardOrder(t, open)
}

func boardChanges(t *testing.T, open Open) {
	t.Run("R-003-18 what is put is there, with its event, on its board alone", func(t *testing.T) {
		d := newDesk(t, open)
		if o, err := d.BoardOverview(t.Context(), desk); err != nil || o.Seq != 0 || o.Counters.GetTotal() != 0 {
			t.Errorf("an empty one: %v, %v", o, err)
		}
		first := d.change(desk, work(1, pending, 3), work(2, blocked, 5, "w1"))
		second := d.change(desk, work(3, complete, 3))
		other := board.Key{Account: "other", Team: desk.Team}
		if ev := d.change(other, work(1, pending, 1)); first.GetSeq() != 1 || second.GetSeq() != 2 || ev.GetSeq() != 1 {
			t.Errorf("sequences %d, %d, and %d elsewhere", first.GetSeq(), second.GetSeq(), ev.GetSeq())
		}
		got, err := d.BoardEvents(t.Context(), desk, 0, 10)
		if diff := cmp.Diff([]*teamv1.BoardEvent{first, second}, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if got, err := d.BoardEvents(t.Context(), desk, 1, 1); err != nil || len(got) != 1 || got[0].GetSeq() != 2 {
			t.Errorf("behind the first: %v, %v", got, err)
		}
		it, err := d.WorkItem(t.Context(), desk, "w2")
		if diff := cmp.Diff(work(2, blocked, 5, "w1"), it, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		for _, k := range []board.Key{other, {Account: "acme", Team: "none"}} {
			if _, err := d.WorkItem(t.Context(), k, "w2"); !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("on %v: %v", k, err)
			}
		}
		if got := d.list(board.Filter{}); got != "w1 w2 w3" {
			t.Errorf("listed %s", got)
		}
	})
	t.Run("R-003-18 the same op is done once, and another one of its name is refused", func(t *testing.T) {
		d := newDesk(t, open)
		calls := 0
		do := func(digest string) (*teamv1.BoardEvent, error) {
			return d.ChangeBoard(t.Context(), desk, board.Op{ID: "op", Digest: []byte(digest)}, func(board.View) (*board.Change, error) {
				calls++
				return &board.Change{Event: &teamv1.BoardEvent{Item: work(1, pending, 3)}, Put: []*teamv1.WorkItem{work(1, pending, 3)}}, nil
			})
		}
		first, err := do("one")
		if err != nil {
			t.Fatal(err)
		}
		d.change(desk, work(1, complete, 3))
		again, err := do("one")
		if diff := cmp.Diff(first, again, protocmp.Transform()); err != nil || diff != "" || calls != 1 {
			t.Errorf("%d calls, %v\n%s", calls, err, diff)
		}
		if _, err := do("two"); !errors.Is(err, runs.ErrReused) {
			t.Errorf("another one: %v", err)
		}
		if o, _ := d.BoardOverview(t.Context(), desk); o.Seq != 2 {
			t.Errorf("seq %d", o.Seq)
		}
	})
	t.Run("R-003-18 a change that is refused keeps nothing", func(t *testing.T) {
		d := newDesk(t, open)
		refusal := errors.New("no")
		if _, err := d.ChangeBoard(t.Context(), desk, board.Op{ID: "op"}, func(board.View) (*board.Change, error) { return nil, refusal }); !errors.Is(err, refusal) {
			t.Errorf("%v", err)
		}
		if ev := d.change(desk, work(1, pending, 3)); ev.GetSeq() != 1 {
			t.Errorf("seq %d", ev.GetSeq())
		}
	})
}

func boardViews(t *testing.T, open Open) {
	t.Run("R-003-25 a view shows the board", func(t *testing.T) {
		d := newDesk(t, open)
		d.change(desk, work(2, complete, 3), work(1, pending, 3), work(3, blocked, 3, "w1", "w2"), work(4, blocked, 3, "w1"))
		m := d.post("ann", "", "hello")
		_, _ = d.ChangeBoard(t.Context(), desk, board.Op{ID: "look"}, func(v board.View) (*board.Change, error) {
			it, err := v.Item("w3")
			none, nerr := v.Item("none")
			ids, derr := v.Dependents("w1")
			n, ended, cerr := v.Count()
			said, merr := v.Message(m)
			no, oerr := v.Message(1)
			if err := errors.Join(err, nerr, derr, cerr, merr, oerr); err != nil {
				t.Error(err)
			}
			if it.GetId() != "w3" || none != nil || !slices.Equal(ids, []string{"w3", "w4"}) || n != 4 || ended != "w2" ||
				said.GetText() != "hello" || no != nil || v.Seq() != 2 || !v.Now().Equal(d.clock.Now()) {
				t.Error(it, none, ids, n, ended, said, no, v.Seq(), v.Now())
			}
			return nil, errors.New("only looked")
		})
		d.put(desk, "drop", &board.Change{Event: &teamv1.BoardEvent{}, Delete: "w3"})
		_, _ = d.ChangeBoard(t.Context(), desk, board.Op{ID: "look"}, func(v board.View) (*board.Change, error) {
			if it, err := v.Item("w3"); it != nil || err != nil {
				t.Error("what was deleted is there", it, err)
			}
			if ids, err := v.Dependents("w1"); !slices.Equal(ids, []string{"w4"}) || err != nil {
				t.Error(ids, err)
			}
			return nil, errors.New("only looked")
		})
	})
}

func boardLists(t *testing.T, open Open) {
	t.Run("R-003-19 lists by state, holder, priority and page, as of now", func(t *testing.T) {
		d := newDesk(t, open)
		mine := work(5, held, 5)
		mine.Assignee, mine.LeaseExpires = by("writer"), timestamppb.New(d.clock.Now().Add(time.Minute))
		d.change(desk, work(1, pending, 1), work(2, pending, 5), work(3, pending, 5), work(4, blocked, 5, "w1"), mine)
		open := board.Filter{State: pending, ByPriority: true}
		if got := d.list(open); got != "w2 w3 w1" {
			t.Errorf("by priority %s", got)
		}
		page := open
		page.Limit, page.AfterPriority, page.AfterNumber = 1, 5, 2
		if got := d.list(page); got != "w3" {
			t.Errorf("the next is %s", got)
		}
		page.AfterNumber = 3
		if got := d.list(page); got != "w1" {
			t.Errorf("the next is %s", got)
		}
		if got := d.list(board.Filter{AfterNumber: 3}); got != "w4 w5" {
			t.Errorf("behind the third %s", got)
		}
		if got := d.list(board.Filter{Assignee: "writer", State: held}); got != "w5" {
			t.Errorf("the writer's are %s", got)
		}
		o, err := d.BoardOverview(t.Context(), desk)
		if want := (&teamv1.BoardCounters{Total: 5, Pending: 3, Blocked: 1, InProgress: 1}); err != nil || cmp.Diff(want, o.Counters, protocmp.Transform()) != "" ||
			len(o.Held) != 1 || o.Held[0].GetId() != "w5" || !o.Lapses.Equal(mine.GetLeaseExpires().AsTime()) {
			t.Errorf("%v, %v", o, err)
		}
		d.clock.Move(time.Minute)
		if got := d.list(open); got != "w2 w3 w5 w1" {
			t.Errorf("when the claim has lapsed %s", got)
		}
		if got := d.list(board.Filter{Assignee: "writer"}) + d.list(board.Filter{State: held}); got != "" {
			t.Errorf("the writer's are %s", got)
		}
		if o, err := d.BoardOverview(t.Context(), desk); err != nil || o.Counters.GetPending() != 4 || len(o.Held) != 0 {
			t.Errorf("%v, %v", o, err)
		}
	})
}

func boardMessages(t *testing.T, open Open) {
	t.Run("R-003-26 messages by reader, and what was acknowledged", func(t *testing.T) {
		d := newDesk(t, open)
		d.post("ann", "", "all")
		two := d.post("ann", "bob", "bob")
		d.change(desk, work(1, pending, 3))
		d.post("bob", "ann", "ann")
		for f, want := range map[board.MessageFilter]string{
			{}: "all[] bob[] ann[]", {Reader: "bob"}: "all[] bob[] ann[]", {Reader: "eve"}: "all[]",
			{Reader: "bob", Unread: true}: "all[] bob[]", {Reader: "ann", Unread: true}: "ann[]", {After: 1}: "bob[] ann[]",
		} {
			if got := d.messages(f); got != want {
				t.Errorf("%+v: %s, want %s", f, got, want)
			}
		}
		for _, upTo := range []int64{two, 1} { // it never goes back
			if n, err := d.AckBoard(t.Context(), desk, "bob", upTo); n != two || err != nil {
				t.Errorf("acknowledged up to %d, %v", n, err)
			}
		}
		if n, err := d.AckBoard(t.Context(), desk, "eve", two); n != two || err != nil {
			t.Errorf("acknowledged up to %d, %v", n, err)
		}
		if got := d.messages(board.MessageFilter{Reader: "bob", Unread: true}); got != "" {
			t.Errorf("unread is %s", got)
		}
		if got := d.messages(board.MessageFilter{}); got != "all[bob eve] bob[bob] ann[]" {
			t.Errorf("acknowledged: %s", got)
		}
	})
}

func boardOrder(t *testing.T, open Open) {
	t.Run("R-003-30 a change wakes the watchers of its account only", func(t *testing.T) {
		d := newDesk(t, open)
		for owner, want := range map[string]bool{desk.Account + "/ann": true, desk.Account + "/bob": true, "globex/ann": false} {
			wake, stop := d.WatchAll(owner)
			woken := wakes(wake, func(i int) {
				_, err := d.ChangeBoard(t.Context(), desk, board.Op{ID: owner + id(i)}, func(v board.View) (*board.Change, error) {
					return &board.Change{Event: &teamv1.BoardEvent{Time: timestamppb.New(v.Now())}, Put: []*teamv1.WorkItem{work(v.Seq()+1, pending, 3)}}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
			if stop(); woken != want {
				t.Errorf("the watcher of %s is woken: %v, want %v", owner, woken, want)
			}
		}
	})
	t.Run("R-003-30 changes side by side have one order without gaps, and wake", func(t *testing.T) {
		d := newDesk(t, open)
		wake, stop := d.WatchAll(desk.Account + "/ann")
		defer stop()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				_, err := d.ChangeBoard(t.Context(), desk, board.Op{ID: fmt.Sprint("side", i)}, func(v board.View) (*board.Change, error) {
					return &board.Change{Event: &teamv1.BoardEvent{Time: timestamppb.New(v.Now())}, Put: []*teamv1.WorkItem{work(v.Seq()+1, pending, 3)}}, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		select {
		case <-wake:
		case <-time.After(10 * time.Second):
			t.Error("the watcher was not woken")
		}
		events, err := d.BoardEvents(t.Context(), desk, 0, 100)
		if err != nil || len(events) != 20 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		for i, ev := range events {
			if ev.GetSeq() != int64(i+1) {
				t.Errorf("event %d has seq %d", i+1, ev.GetSeq())
			}
		}
		if items, err := d.WorkItems(t.Context(), desk, board.Filter{Limit: 100}); len(items) != 20 || err != nil {
			t.Errorf("%d items, %v", len(items), err)
		}
	})
}
