package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

const (
	// flushInterval is how often refusals are recorded.
	flushInterval = 5 * time.Second
	// maxRefusals is the number of different refusals that are recorded in one interval. Further ones are
	// counted in one record.
	maxRefusals = 100
)

// Refusals records calls that were refused: equal ones within a few seconds in one record with their
// number, so that refusals cost a bounded number of writes. It is safe for concurrent use.
type Refusals struct {
	// Store has the chains; nil records nothing.
	Store Store
	// Clock returns the current time. Required.
	Clock func() time.Time
	// Log receives that refusals cannot be recorded. Required.
	Log *zap.Logger

	mu    sync.Mutex
	count map[Refusal]int // guarded by mu
}

// Refusal is why a call was refused.
type Refusal struct {
	// Account is the account of the caller, ServerAccount if it is unknown; Actor its owner.
	Account, Actor string
	// Action is denied for a call without its permission, and sign-in for one without valid
	// credentials.
	Action string
	// Subject is the method, or why the credentials are not valid. Address is that of the caller.
	Subject, Address string
}

// Add counts a refusal.
func (r *Refusals) Add(f Refusal) {
	if r == nil || r.Store == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = map[Refusal]int{}
	}
	if _, known := r.count[f]; !known && len(r.count) >= maxRefusals {
		f = Refusal{Account: ServerAccount, Action: f.Action, Subject: "others"}
	}
	r.count[f]++
}

// Serve records refusals until ctx ends, and then those that are left.
func (r *Refusals) Serve(ctx context.Context) {
	if r.Store == nil {
		return
	}
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.Flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushInterval)
			defer cancel()
			r.Flush(last)
			return
		}
	}
}

// Flush records the refusals that were added since the last call.
func (r *Refusals) Flush(ctx context.Context) {
	r.mu.Lock()
	count := r.count
	r.count = nil
	r.mu.Unlock()
	var records []*teamv1.AuditRecord
	for f, n := range count {
		record := New(ctx, r.Clock(), f.Action, f.Subject)
		record.Account, record.Actor = f.Account, f.Actor
		record.Details = map[string]string{"count": fmt.Sprint(n)}
		if f.Address != "" {
			record.Details["address"] = f.Address
		}
		records = append(records, record)
	}
	if len(records) == 0 {
		return
	}
	if err := r.Store.AppendAudit(ctx, records...); err != nil {
		r.Log.Warn("refused calls cannot be recorded in the audit log", zap.Int("records", len(records)), zap.Error(err))
	}
}
