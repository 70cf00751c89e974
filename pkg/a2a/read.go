package a2a

import (
	"context"
	"iter"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// pageEvents is the maximum number of events that are read from the store at once.
const pageEvents = 256

// tasks reads tasks: as they are stored or, where that does not say enough, from their journals. Its errors are those
// of the API.
type tasks struct {
	store runs.Store
	feeds *feed.Feeds
}

// fold reads all events of a root task and applies them to a Fold of the scope.
func (t tasks) fold(ctx context.Context, root runs.Key, scope string) (*project.Fold, error) {
	f := project.New(root.ID, scope)
	for ev, err := range t.feeds.Recorded(ctx, root.Owner, root.ID) {
		if err != nil {
			return nil, err
		}
		f.Apply(ev)
	}
	return f, nil
}

// visible is like fold, for a task of its owner that a request for a tenant may access. Otherwise the error is
// TASK_NOT_FOUND.
func (t tasks) visible(ctx context.Context, tenant string, k runs.Key) (*project.Fold, error) {
	root, scope := agent.SplitTask(k.ID)
	f, err := t.fold(ctx, runs.Key{Owner: k.Owner, ID: root}, scope)
	if err != nil {
		return nil, notFoundAs(err, k.ID)
	}
	if !f.Visible() || !f.Serves(tenant) {
		return nil, a2aerror.TaskNotFound(k.ID)
	}
	return f, nil
}

// standing returns the standing of a task that a request for a tenant may access. Otherwise the error is
// TASK_NOT_FOUND. It reads events only of a delegation.
func (t tasks) standing(ctx context.Context, tenant string, k runs.Key) (runs.Standing, error) {
	if _, scope := agent.SplitTask(k.ID); scope != "" {
		f, err := t.visible(ctx, tenant, k)
		if err != nil {
			return runs.Standing{}, err
		}
		return standingOf(f), nil
	}
	st, err := t.store.Standing(ctx, k)
	if err == nil && tenant != "" && tenant != st.Agent {
		err = runs.ErrNotFound
	}
	if err != nil {
		return runs.Standing{}, runs.StoreError(k.ID, err)
	}
	return st, nil
}

// standingOf returns the standing of a task that was folded.
func standingOf(f *project.Fold) runs.Standing {
	return runs.Standing{Agent: f.Agent(), Account: f.Account(), ContextID: f.ContextID(), State: f.State()}
}

// task returns a task that a request for a tenant may access, and the sequence number of the last event that it
// includes. It is the task as stored, unless the caller wants details, or a tenant asks for a delegation: only the
// journal has these, and the agent of a delegation.
func (t tasks) task(ctx context.Context, tenant string, k runs.Key) (*a2av1.Task, int64, error) {
	_, scope := agent.SplitTask(k.ID)
	if details(ctx) || tenant != "" && scope != "" {
		f, err := t.visible(ctx, tenant, k)
		if err != nil {
			return nil, 0, err
		}
		return f.Snapshot(details(ctx)), f.Last(), nil
	}
	if tenant != "" {
		if _, err := t.standing(ctx, tenant, k); err != nil {
			return nil, 0, err
		}
	}
	task, seq, err := t.store.Task(ctx, k)
	if err != nil {
		return nil, 0, runs.StoreError(k.ID, err)
	}
	return task, seq, nil
}

// over reports whether a task has ended.
func over(t *a2av1.Task) bool { return taskstate.Final(t.GetStatus().GetState()) }

// keyOf validates the id of a task and returns its key for the caller of ctx.
func keyOf(ctx context.Context, tenant, id string) (runs.Key, error) {
	var c checker
	c.task(tenant, id)
	if err := c.Err(); err != nil {
		return runs.Key{}, err
	}
	who, err := identity.Authenticated(ctx)
	return runs.Key{Owner: who.Owner(), ID: id}, err
}

// Owned returns the id of the agent of a task of the caller: of a root task, or of that of a delegation by its id
// root~scope. Errors: INVALID_REQUEST, and TASK_NOT_FOUND, also for a task of another owner.
func (h *Handler) Owned(ctx context.Context, id string) (string, error) {
	k, err := keyOf(ctx, "", id)
	if err != nil {
		return "", err
	}
	st, err := h.tasks.standing(ctx, "", k)
	return st.Agent, err
}

// Readable returns the key of the root of a task that the caller may see: its own or, with the permission WATCH, any of
// its account; of a delegation by its id root~scope as well. Errors: INVALID_REQUEST, and TASK_NOT_FOUND.
func (h *Handler) Readable(ctx context.Context, id string) (runs.Key, error) {
	k, err := keyOf(ctx, "", id)
	if err != nil {
		return runs.Key{}, err
	}
	root, _ := agent.SplitTask(id)
	_, err = h.tasks.standing(ctx, "", k)
	if who, _ := identity.CallerOf(ctx); a2aerror.IsNotFound(err) && who.May(identity.PermissionWatch) && h.c.Approvals != nil {
		of, rerr := h.c.Approvals.Root(ctx, who.Account, root)
		if rerr != nil {
			return runs.Key{}, runs.StoreError(id, rerr)
		}
		k.Owner = of.Owner
		_, err = h.tasks.standing(ctx, "", k)
	}
	return runs.Key{Owner: k.Owner, ID: root}, err
}

// WatchEvents yields the events of a root task after the sequence number after: those that are recorded,
// and then further ones as they are recorded, until ctx ends. The events are shared; do not
// modify them. The sequence ends with an error: TASK_NOT_FOUND, another error of the store, or
// the cause of ctx. It can be read only once. The caller checks the permission to read the task.
func (h *Handler) WatchEvents(ctx context.Context, root runs.Key, after int64) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		tail := h.feeds.Tail(root.Owner, root.ID, after)
		defer tail.Close()
		tail.Events(ctx)(func(ev feed.Event, err error) bool { return yield(ev.Event, err) })
	}
}

// Page returns recorded events of a root task after the sequence number after, and whether there
// are more.
func (h *Handler) Page(ctx context.Context, root runs.Key, after int64) (page []runs.Record, more bool, err error) {
	page, err = h.c.Store.Events(ctx, root, after, pageEvents+1)
	if err != nil {
		return nil, false, runs.StoreError(root.ID, err)
	}
	return page[:min(len(page), pageEvents)], len(page) > pageEvents, nil
}

// notFoundAs replaces the id in a TASK_NOT_FOUND error with the one that the caller sent, which
// may be that of a delegation and not of the root task.
func notFoundAs(err error, id string) error {
	if a2aerror.IsNotFound(err) {
		return a2aerror.TaskNotFound(id)
	}
	return err
}

// details reports whether the call has activated the team-run extension, so that the response
// includes the details of the run.
func details(ctx context.Context) bool {
	return slices.Contains(ExtensionsOf(ctx), TeamRunURI)
}

// source implements feed.Source with a Store. It returns errors as callers of the API see them.
type source struct{ runs.Store }

// Events implements feed.Source.
func (s source) Events(ctx context.Context, owner, root string, after int64, limit int) ([]*teamv1.Event, error) {
	page, err := s.Store.Events(ctx, runs.Key{Owner: owner, ID: root}, after, limit)
	if err != nil {
		return nil, runs.StoreError(root, err)
	}
	events := make([]*teamv1.Event, len(page))
	for i, rec := range page {
		events[i] = rec.Event
	}
	return events, nil
}

// Task implements feed.Source.
func (s source) Task(ctx context.Context, owner, id string) (*a2av1.Task, error) {
	t, _, err := s.Store.Task(ctx, runs.Key{Owner: owner, ID: id})
	if err != nil {
		return nil, runs.StoreError(id, err)
	}
	return t, nil
}
