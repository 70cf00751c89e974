package agent

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// RegisterCancel registers the cancel function of the step that runs in scope, so that Cancel
// ends the step. If Cancel was called already, cancel is called at once. The registration lasts
// until UnregisterCancel is called with the same scope.
func (r *Run) RegisterCancel(scope string, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels == nil {
		r.cancels = map[string]context.CancelCauseFunc{}
	}
	r.cancels[scope] = cancel
	if r.canceled[scope] {
		cancel(ErrCanceled)
	}
}

// UnregisterCancel removes the cancel function that RegisterCancel registered for scope.
func (r *Run) UnregisterCancel(scope string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cancels, scope)
}

// Cancel cancels the step of scope with the cause ErrCanceled. A running step ends now, also one
// that waits for an answer, and one that has not begun will not begin. The cancellation must be
// recorded before: the driver calls Cancel for a user's cancellation, and a team for a step that
// its decision has dropped.
func (r *Run) Cancel(scope string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canceled == nil {
		r.canceled = map[string]bool{}
	}
	r.canceled[scope] = true
	if cancel, ok := r.cancels[scope]; ok {
		cancel(ErrCanceled)
	}
	for above, l := range r.listeners {
		if Within(scope, above) {
			l.poke()
		}
	}
}

// Canceled reports whether Cancel was called for scope or one above it, except for the root: the
// cancellation of the whole run ends its context.
func (r *Run) Canceled(scope string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; scope != ""; scope = Parent(scope) {
		if r.canceled[scope] {
			return true
		}
	}
	return false
}

// CancelsIn reports whether Cancel was called for scope, or for a scope above or below it.
func (r *Run) CancelsIn(scope string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for canceled := range r.canceled {
		if Within(scope, canceled) || Within(canceled, scope) {
			return true
		}
	}
	return false
}

// Fence prevents steps in scope and below it from beginning: Begin returns ErrCanceled for them.
// Callers call Fence before they record a cancellation, so that no step begins after the
// cancellation in the journal.
func (r *Run) Fence(scope string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fenced == nil {
		r.fenced = map[string]bool{}
	}
	r.fenced[scope] = true
}

// Begin returns ErrCanceled if scope or one above it was canceled or fenced. Callers call it
// right before a step of scope has its effect, once the start of the step is durable.
func (r *Run) Begin(scope string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.fenced[scope] || r.canceled[scope] {
			return ErrCanceled
		}
		if scope == "" {
			return nil
		}
		scope = Parent(scope)
	}
}

// Reaper is an optional interface of an Agent whose work continues elsewhere if this process
// ends, such as an agent on another server. It handles a call that was canceled after a process
// died that may have begun it, but without recording the peer's task. Such a call is not made
// again; Reap is called instead, to end the peer's task if there is one.
type Reaper interface {
	// Reap asks the peer to end the task of the call. It must not send anything that could start
	// work, and must return within a bounded time. It returns an *Error that wraps ErrCanceled.
	// The error has a Receipt if the peer may still be working.
	Reap(ctx context.Context, req *teamv1.ProcessRequest) error
}
