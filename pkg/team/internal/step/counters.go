package step

import (
	"slices"
	"sync"

	"github.com/agentteams/team-server/internal/allowance"
)

// Counters bound the steps of a run and of the runs above it. A nil *Counters means no limit. Safe
// for concurrent use.
type Counters struct {
	allowance *allowance.Allowance
	final     string // name of the final turn, which is not counted; empty if there is none

	mu    sync.Mutex
	begun map[int]bool // rounds that are counted already; guarded by mu
}

// NewCounters returns the counters of a run. begun holds the rounds that have begun; NewCounters
// takes ownership of the map. final is the name of the turn that may run after a limit is reached.
func NewCounters(a *allowance.Allowance, final string, begun map[int]bool) *Counters {
	return &Counters{allowance: a, final: final, begun: begun}
}

// take counts a step that is about to start for the first time. The error is that of the limit that
// was reached.
func (c *Counters) take(w *Work) error {
	if c == nil || w.Attempts > 0 || c.final != "" && c.final == w.Step.GetName() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var room [2]allowance.Counter
	each := allowance.AppendCounters(room[:0], w.Step, !c.begun[w.Round])
	if err := c.allowance.Take(each...); err != nil {
		return err
	}
	if slices.Contains(each, allowance.Steps) {
		c.begun[w.Round] = true
	}
	return nil
}
