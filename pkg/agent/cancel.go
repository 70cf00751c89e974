package agent

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Reaper is an agent whose work goes on elsewhere when this process dies. A
// canceled call that a dead process may have begun, and that has nothing of the
// peer on record, is not made again: Reap ends what may be there. It sends
// nothing that could begin work, and returns within a bounded time.
type Reaper interface {
	// Reap ends the call at the peer. It returns an *Error that is ErrCanceled,
	// with a Receipt where there may be something left.
	Reap(ctx context.Context, req *teamv1.ProcessRequest) error
}

// Fence refuses from here on every beginning within scope. It is called before
// the cancel of the scope is put on record: what has not begun by then never does.
func (r *Run) Fence(scope string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fenced == nil {
		r.fenced = map[string]bool{}
	}
	r.fenced[scope] = true
}

// Begin is asked right before a step of scope has its effect, after its start is
// durable: ErrCanceled when a cancel came before.
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
