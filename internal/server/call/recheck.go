package call

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/identity"
)

// rechecks are the calls that last, whose callers are checked again until they end. The zero value
// is valid.
type rechecks struct {
	mu    sync.Mutex
	calls map[*call]struct{} // guarded by mu
}

// enter adds a call until leave is called.
func (r *rechecks) enter(c *call) (leave func()) {
	if c.in.Caller == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[*call]struct{}{}
	}
	r.calls[c] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.calls, c)
	}
}

// list returns the calls that last at present.
func (r *rechecks) list() []*call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.calls))
}

// Recheck ends calls whose callers have lost the right to call, until ctx ends.
func (s *Chain) Recheck(ctx context.Context) {
	if s.config.Auth == nil {
		return
	}
	tick := time.NewTicker(s.config.RecheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, c := range s.rechecks.list() {
			if err := c.still(); err != nil {
				s.logRefusal(c.in, err)
				c.cancel(err)
			}
		}
	}
}

// Unknown returns the error for a call that had no valid credentials when it began.
func (s *Chain) Unknown(in *Inbound) error {
	if _, err := s.config.Auth.Authenticate(in.request(true)); err != nil { // it says what to send
		return err
	}
	return unauthenticated("the call had no valid credentials when it began; call again")
}

// Still returns UNAUTHENTICATED if the caller of a call that was accepted has lost the right to call.
func (s *Chain) Still(in *Inbound) error {
	if s.config.Auth == nil {
		return nil
	}
	_, err := s.again(in)
	return err
}

// again authenticates the caller of a call once more.
func (s *Chain) again(in *Inbound) (identity.Caller, error) {
	who, err := s.config.Auth.Authenticate(in.request(true))
	if err == nil && who.Owner() != in.Caller.Owner() {
		err = unauthenticated("the credentials of this call belong to another caller by now; call again")
	}
	return who, err
}

// still returns UNAUTHENTICATED or PERMISSION_DENIED if the caller has lost the right to make the call, or the permission
// WATCH, which calls that read may have used.
func (c *call) still() error {
	who, err := c.chain.again(c.in)
	if err != nil {
		return err
	}
	used := needs(c.method)
	if used&identity.PermissionRead != 0 {
		used |= identity.PermissionWatch
	}
	if lost := used & c.in.Caller.Permissions &^ who.Permissions; lost != 0 {
		return identity.Denied(lost)
	}
	return nil
}
