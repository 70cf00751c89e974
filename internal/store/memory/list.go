package memory

import (
	"context"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// List returns a page of the owner's root tasks. A task whose status changes between two pages
// moves to the front of the list.
func (s *Store) List(_ context.Context, owner string, f a2a.Filter) (a2a.Page, error) {
	now := s.clock()
	c, err := s.tokens.Open(owner, f, now)
	if err != nil {
		return a2a.Page{}, err
	}
	size := f.PageSize
	if size <= 0 {
		size = store.DefaultPageSize
	}
	entries, c := s.page(owner, f, size, c)
	page := a2a.Page{Total: c.Total}
	n := 0 // number of entries processed
	for ; n < min(len(entries), size); n++ {
		t, _ := entries[n].run.snapshot(true)
		if f.State != a2av1.TaskState_TASK_STATE_UNSPECIFIED && t.GetStatus().GetState() != f.State {
			continue
		}
		if !page.Add(f, t) {
			break
		}
	}
	if n < len(entries) {
		c.At, c.ID = entries[n-1].at, entries[n-1].id
		page.NextToken = s.tokens.Seal(owner, f, c, now)
	}
	return page, nil
}

// page returns up to one entry more than fit on a page. On the first page it also counts all tasks.
func (s *Store) page(owner string, f a2a.Filter, size int, c store.Cursor) ([]*entry, store.Cursor) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := s.owners[owner]
	if o == nil {
		return nil, c
	}
	var after *entry
	if c.ID == "" {
		c.Total = o.listed.count(f)
	} else {
		after = &entry{at: c.At, id: c.ID}
	}
	entries := make([]*entry, 0, min(size, 1000)+1)
	o.listed.scan(f, after, func(e *entry) bool {
		entries = append(entries, e)
		return len(entries) <= size
	})
	return entries, c
}

// relist moves a run in its owner's index if its status has changed. The caller must hold r.mu.
func (s *Store) relist(r *run) {
	if !r.fold.Visible() || r.entry != nil && r.entry.at == r.fold.StatusAt().UnixNano() && r.entry.state == r.fold.State() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list(r)
}

// list adds a visible run to its owner's index. The caller must hold mu, and also r.mu or the only
// reference to r.
func (s *Store) list(r *run) {
	if !r.fold.Visible() {
		return
	}
	o := s.ownerOf(r.owner)
	if r.entry != nil {
		o.listed.remove(r.entry)
	}
	r.entry = &entry{at: r.fold.StatusAt().UnixNano(), id: r.root, state: r.fold.State(), run: r}
	o.listed.add(r.entry)
	if r.briefed {
		o.briefed.Set(r)
	}
}
