package a2a

import (
	"context"
	"iter"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// The methods in this file are for the monitor and collaboration services, which use the same
// permissions, journals and limits of streams as the operations of A2A.

// Owned returns a task of the caller: a root task, or a delegation by its id root~scope. Errors:
// INVALID_REQUEST, and TASK_NOT_FOUND, also for a task of another owner.
func (h *Handler) Owned(ctx context.Context, id string) (*Fold, error) {
	return h.owned(ctx, "", id)
}

// WatchEvents yields the events of a root task after the sequence number after: those that are recorded,
// and then further ones as they are recorded, until ctx ends. The events are shared; do not
// modify them. The sequence ends with an error: TASK_NOT_FOUND, another error of the store, or
// the cause of ctx. It can be read only once. The caller checks the permission to read the task.
func (h *Handler) WatchEvents(ctx context.Context, root Key, after int64) iter.Seq2[*teamv1.Event, error] {
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

// Page returns recorded events of a root task after the sequence number after, and whether there
// are more.
func (h *Handler) Page(ctx context.Context, root Key, after int64) (page []Record, more bool, err error) {
	page, err = h.c.Store.Events(ctx, root, after, pageEvents+1)
	if err != nil {
		return nil, false, storeError(root.ID, err)
	}
	return page[:min(len(page), pageEvents)], len(page) > pageEvents, nil
}

// Overview returns the Overview of the configuration, or nil if it has none.
func (h *Handler) Overview() Overview { return h.c.Overview }

// StoreError returns an error of the store as the callers of the API see it. id is the task
// concerned, for messages.
func StoreError(id string, err error) error { return storeError(id, err) }

// Agents returns the agents that the handler serves.
func (h *Handler) Agents() Agents { return h.c.Agents }

// AcquireTaskStream counts a stream of a task and its owner. The caller must call release when the stream
// ends. The error is INSUFFICIENT_RESOURCES if too many are open.
func (h *Handler) AcquireTaskStream(k Key) (release func(), err error) {
	s, err := h.streams.acquire(k.Owner)
	if err != nil {
		return nil, err
	}
	if err := s.acquireTask(k); err != nil {
		s.release()
		return nil, err
	}
	return s.release, nil
}

// AcquireTeamStream is like AcquireTaskStream, for a stream of a team.
func (h *Handler) AcquireTeamStream(owner, team string) (release func(), err error) {
	s, err := h.streams.acquire(owner)
	if err != nil {
		return nil, err
	}
	if err := s.acquireTeam(owner, team); err != nil {
		s.release()
		return nil, err
	}
	return s.release, nil
}
