package agent

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

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
