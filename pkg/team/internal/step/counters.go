package step

import (
	"slices"
	"sync"

	"github.com/agentteams/team-server/pkg/agent"
)

// Counters limit a run together with the runs above it. Safe for concurrent use; nil means
// no limit.
type Counters struct {
	allowance *agent.Allowance
	final     string // the turn that a limit leaves

	mu    sync.Mutex
	begun map[int]bool // rounds that count as a step; guarded by mu
}

// NewCounters returns the counters of a run in which rounds have begun. final is the name
// of the turn that a limit leaves. The map is taken over.
func NewCounters(a *agent.Allowance, final string, begun map[int]bool) *Counters {
	return &Counters{allowance: a, final: final, begun: begun}
}

// take counts a step that is about to begin for the first time; the error is that
// of the limit in its way.
func (c *Counters) take(w *Work) error {
	if c == nil || w.Attempts > 0 || c.final != "" && c.final == w.Step.GetName() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var room [2]agent.Counter
	each := agent.AppendCounters(room[:0], w.Step, !c.begun[w.Round])
	if err := c.allowance.Take(each...); err != nil {
		return err
	}
	if slices.Contains(each, agent.CountSteps) {
		c.begun[w.Round] = true
	}
	return nil
}
