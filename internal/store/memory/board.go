package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// boards holds the boards of a Store. The zero value is empty.
type boards struct {
	mu sync.Mutex
	by map[board.Key]*boardState // guarded by mu
}

// boardState is a board. The messages in it are never changed, only replaced.
type boardState struct {
	seq    int64
	items  map[string]*teamv1.WorkItem
	events []boardRecord // the newest events, in order
	// read holds the sequence number up to which each reader has read.
	read map[string]int64
}

// boardRecord is an event with the op that caused it.
type boardRecord struct {
	op    board.Op
	event *teamv1.BoardEvent
}

// at returns a board, an empty one if it does not exist. The caller must hold mu.
func (b *boards) at(k board.Key) *boardState {
	if s := b.by[k]; s != nil {
		return s
	}
	return &boardState{items: map[string]*teamv1.WorkItem{}, read: map[string]int64{}}
}

// keep stores a board. The caller must hold mu.
func (b *boards) keep(k board.Key, s *boardState) {
	if b.by == nil {
		b.by = map[board.Key]*boardState{}
	}
	b.by[k] = s
}

// ChangeBoard implements board.Store.
func (s *Store) ChangeBoard(_ context.Context, k board.Key, op board.Op, f func(board.View) (*board.Change, error)) (*teamv1.BoardEvent, error) {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	b := s.boards.at(k)
	for _, r := range b.events {
		if r.op.ID == op.ID && !bytes.Equal(r.op.Digest, op.Digest) {
			return nil, a2a.ErrReused
		}
		if r.op.ID == op.ID {
			return proto.CloneOf(r.event), nil
		}
	}
	c, err := f(boardView{b, s.clock().Truncate(time.Millisecond)})
	if err != nil {
		return nil, err
	}
	b.seq++
	c.Event.Seq = b.seq
	delete(b.items, c.Delete)
	for _, it := range c.Put {
		b.items[it.GetId()] = proto.CloneOf(it)
	}
	b.events = append(b.events, boardRecord{op, proto.CloneOf(c.Event)})
	b.events = b.events[max(0, len(b.events)-board.MaxEvents):]
	s.boards.keep(k, b)
	s.all.Ring(store.EveryoneOf(k.Account))
	return c.Event, nil
}

// boardView implements board.View for a board while it is changed.
type boardView struct {
	*boardState
	now time.Time
}

func (v boardView) Seq() int64     { return v.seq }
func (v boardView) Now() time.Time { return v.now }

func (v boardView) Item(id string) (*teamv1.WorkItem, error) { return proto.CloneOf(v.items[id]), nil }

func (v boardView) Dependents(id string) (ids []string, _ error) {
	for other, it := range v.items {
		if slices.Contains(it.GetDependsOn(), id) {
			ids = append(ids, other)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (v boardView) Count() (items int, ended string, _ error) {
	for _, it := range v.sorted() {
		if board.Ended(it.GetState()) {
			return len(v.items), it.GetId(), nil
		}
	}
	return len(v.items), "", nil
}

func (v boardView) Message(seq int64) (*teamv1.BoardMessage, error) {
	if i, ok := v.find(seq); ok {
		return proto.CloneOf(v.events[i].event.GetMessage()), nil
	}
	return nil, nil //nolint:nilnil // the contract
}

// find returns the index of the first event with at least a sequence number, and whether it has
// exactly that number.
func (b *boardState) find(seq int64) (int, bool) {
	return slices.BinarySearchFunc(b.events, seq, func(r boardRecord, seq int64) int { return cmp.Compare(r.event.GetSeq(), seq) })
}

// sorted returns the items by number.
func (b *boardState) sorted() []*teamv1.WorkItem {
	return slices.SortedFunc(maps.Values(b.items), func(x, y *teamv1.WorkItem) int { return cmp.Compare(x.GetNumber(), y.GetNumber()) })
}

// now returns the items by number, as of a time. The caller may change them.
func (b *boardState) now(now time.Time) []*teamv1.WorkItem {
	items := b.sorted()
	for i, it := range items {
		items[i] = board.AsOf(proto.CloneOf(it), now)
	}
	return items
}

// WorkItem implements board.Store.
func (s *Store) WorkItem(_ context.Context, k board.Key, id string) (*teamv1.WorkItem, error) {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	it := s.boards.at(k).items[id]
	if it == nil {
		return nil, a2a.ErrNotFound
	}
	return proto.CloneOf(it), nil
}

// WorkItems implements board.Store.
func (s *Store) WorkItems(_ context.Context, k board.Key, f board.Filter) ([]*teamv1.WorkItem, error) {
	s.boards.mu.Lock()
	items := s.boards.at(k).now(s.clock())
	s.boards.mu.Unlock()
	order := func(priority int32, number int64) func(*teamv1.WorkItem) int {
		return func(it *teamv1.WorkItem) int {
			if !f.ByPriority {
				return cmp.Compare(it.GetNumber(), number)
			}
			return cmp.Or(cmp.Compare(priority, it.GetPriority()), cmp.Compare(it.GetNumber(), number))
		}
	}
	slices.SortFunc(items, func(a, b *teamv1.WorkItem) int { return order(b.GetPriority(), b.GetNumber())(a) })
	behind := order(f.AfterPriority, f.AfterNumber)
	items = slices.DeleteFunc(items, func(it *teamv1.WorkItem) bool {
		return f.AfterNumber != 0 && behind(it) <= 0 || f.State != 0 && it.GetState() != f.State ||
			f.Assignee != "" && board.Name(it.GetAssignee()) != f.Assignee
	})
	return items[:min(len(items), f.Limit)], nil
}

// BoardEvents implements board.Store.
func (s *Store) BoardEvents(_ context.Context, k board.Key, after int64, limit int) ([]*teamv1.BoardEvent, error) {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	b := s.boards.at(k)
	i, _ := b.find(after + 1)
	var list []*teamv1.BoardEvent
	for _, r := range b.events[i:min(len(b.events), i+limit)] {
		list = append(list, proto.CloneOf(r.event))
	}
	return list, nil
}

// BoardMessages implements board.Store.
func (s *Store) BoardMessages(_ context.Context, k board.Key, f board.MessageFilter) ([]*teamv1.BoardMessage, error) {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	b := s.boards.at(k)
	after := f.After
	if f.Unread {
		after = max(after, b.read[f.Reader])
	}
	i, _ := b.find(after + 1)
	var list []*teamv1.BoardMessage
	for _, r := range b.events[i:] {
		if len(list) == f.Limit {
			break
		}
		if m := r.event.GetMessage(); m != nil && f.Takes(m) {
			m = proto.CloneOf(m)
			m.AcknowledgedBy = board.Acknowledged(m, b.read)
			list = append(list, m)
		}
	}
	return list, nil
}

// BoardOverview implements board.Store.
func (s *Store) BoardOverview(_ context.Context, k board.Key) (board.Overview, error) {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	b := s.boards.at(k)
	return board.Look(b.seq, b.now(s.clock())), nil
}

// AckBoard implements board.Store.
func (s *Store) AckBoard(_ context.Context, k board.Key, reader string, upTo int64) (int64, error) {
	s.boards.mu.Lock()
	defer s.boards.mu.Unlock()
	b := s.boards.at(k)
	b.read[reader] = max(b.read[reader], upTo)
	s.boards.keep(k, b)
	return b.read[reader], nil
}
