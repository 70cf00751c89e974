package a2a

import (
	"context"
	"iter"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// What monitors share with the streams of A2A: whose a task is, what of a journal
// may be shown, how it is followed, and how many may do so.

// Owned returns a task of the caller: a root, or a child by its id root~scope.
// Errors: INVALID_REQUEST, TASK_NOT_FOUND, also for a foreign task.
func (h *Handler) Owned(ctx context.Context, id string) (*Fold, error) {
	return h.owned(ctx, "", id)
}

// Tell yields the events of a root behind a sequence: what is on record, then what
// comes, until ctx ends. The events are shared: read only. Errors: TASK_NOT_FOUND; the
// cause of ctx's end. The sequence is read once.
func (h *Handler) Tell(ctx context.Context, root Key, after int64) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		r := h.journals.read(root, after)
		defer r.stop()
		for ev, err := range r.events(ctx) {
			if !yield(ev.Event, err) {
				return
			}
		}
	}
}

// Page returns events of a root that are on record, behind a sequence, and whether
// there are more.
func (h *Handler) Page(ctx context.Context, root Key, after int64) (page []Record, more bool, err error) {
	page, err = h.c.Store.Events(ctx, root, after, pageEvents+1)
	if err != nil {
		return nil, false, storeError(root.ID, err)
	}
	return page[:min(len(page), pageEvents)], len(page) > pageEvents, nil
}

// Overview returns that of the configuration, nil if it has none.
func (h *Handler) Overview() Overview { return h.c.Overview }

// StoreError is an error of a store as a caller sees it.
func StoreError(id string, err error) error { return storeError(id, err) }

// Agents are those that the handler serves.
func (h *Handler) Agents() Agents { return h.c.Agents }

// Caller returns who calls. The error is UNAUTHENTICATED if ctx does not say it.
func (h *Handler) Caller(ctx context.Context) (Caller, error) { return caller(ctx) }

// SitAtTask counts a stream of a task and of its owner. leave must be called.
// INSUFFICIENT_RESOURCES when there are as many as there may be.
func (h *Handler) SitAtTask(k Key) (leave func(), err error) {
	s, err := h.seats.sit(k.Owner)
	if err != nil {
		return nil, err
	}
	if err := s.at(k); err != nil {
		s.leave()
		return nil, err
	}
	return s.leave, nil
}

// SitAtTeam is SitAtTask for a stream of a team.
func (h *Handler) SitAtTeam(owner, team string) (leave func(), err error) {
	s, err := h.seats.sit(owner)
	if err != nil {
		return nil, err
	}
	if err := s.atTeam(owner, team); err != nil {
		s.leave()
		return nil, err
	}
	return s.leave, nil
}
