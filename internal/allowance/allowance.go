// Package allowance counts the steps, turns, delegations and hand-offs of an agent and everything below it, within the limits
// that they set.
package allowance

import (
	"context"
	"strconv"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Counter is something that a limit bounds the number of.
type Counter int

// The counters. Each comment names the limit in the configuration that bounds the counter.
const (
	Steps       Counter = iota // max_steps: decisions that start members
	Turns                      // max_turns: model turns
	Delegations                // max_delegations: delegations by leaders
	Handoffs                   // max_handoffs: hand-offs in swarms
	counters
)

// counterLimits holds, for each counter, the name of its limit and the reason of the error that
// reports it as exceeded.
var counterLimits = [counters]struct{ name, reason string }{
	Steps:       {"max_steps", agent.ReasonMaxIterations},
	Turns:       {"max_turns", agent.ReasonMaxIterations},
	Delegations: {"max_delegations", agent.ReasonMaxDelegations},
	Handoffs:    {"max_handoffs", agent.ReasonMaxHandoffs},
}

// Counts holds one value for each counter: either how often something happened, or the limits on
// that. As a limit, 0 means no limit.
type Counts [counters]int64

// CountsOf returns the limits that l sets explicitly. Defaults are not included, because they
// apply only to the agent itself and not to the agents below it.
func CountsOf(l *teamv1.Limits) Counts {
	return Counts{
		Steps: int64(l.GetMaxSteps()), Turns: int64(l.GetMaxTurns()),
		Delegations: int64(l.GetMaxDelegations()), Handoffs: int64(l.GetMaxHandoffs()),
	}
}

// Within returns, for each counter, the stricter of the two limits c and other.
func (c Counts) Within(other Counts) Counts {
	for i, n := range other {
		if n > 0 && (c[i] == 0 || n < c[i]) {
			c[i] = n
		}
	}
	return c
}

// Allowance limits the counters for one agent and everything below it. Allowances form a tree: a
// count is added to a node and all nodes above it, and must be within the limits of all of them.
// An Allowance exists only in memory and covers the work in one process; after a crash it is
// built again from the journal, see CountsOn. A nil *Allowance has no limit. It is safe for
// concurrent use.
type Allowance struct {
	parent *Allowance
	mu     *sync.Mutex // shared by all nodes of the tree
	setBy  string      // path of the agent that set the limits
	limit  Counts
	used   Counts // by this node and all below; guarded by mu
}

// Child returns a new node below a, or a root if a is nil. setBy is the path of the agent that
// set the limits, and used is what has been counted for the new node before; the nodes above are
// not changed.
func (a *Allowance) Child(setBy string, limit, used Counts) *Allowance {
	c := &Allowance{parent: a, mu: new(sync.Mutex), setBy: setBy, limit: limit, used: used}
	if a != nil {
		c.mu = a.mu
	}
	return c
}

type allowanceKey struct{}

// With returns a context whose work is limited by a.
func With(ctx context.Context, a *Allowance) context.Context {
	return context.WithValue(ctx, allowanceKey{}, a)
}

// Of returns the Allowance that limits the work of ctx, or nil if there is no limit.
func Of(ctx context.Context) *Allowance {
	a, _ := ctx.Value(allowanceKey{}).(*Allowance)
	return a
}

// Take adds one to each of the given counters, in a and all nodes above. If that exceeds a limit,
// it changes nothing and returns an *Error. The error has the reason of the exceeded limit, and
// its Details have the name of the limit, its value, and the path of the agent that set it; see
// agent.Binds.
func (a *Allowance) Take(each ...Counter) error {
	if a == nil || len(each) == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := a; n != nil; n = n.parent {
		for _, c := range each {
			if n.limit[c] > 0 && n.used[c] >= n.limit[c] {
				return n.usedUp(c)
			}
		}
	}
	for n := a; n != nil; n = n.parent {
		for _, c := range each {
			n.used[c]++
		}
	}
	return nil
}

// Used returns what has been counted for a and everything below it.
func (a *Allowance) Used() Counts {
	if a == nil {
		return Counts{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// usedUp returns the error for a counter of a that has reached its limit.
func (a *Allowance) usedUp(c Counter) *agent.Error {
	name, value := counterLimits[c].name, strconv.FormatInt(a.limit[c], 10)
	return agent.Errorf(agent.CodeInternal, counterLimits[c].reason,
		"limits.%s of %q is %s, and it and what works for it have used that up; raise it, or have it answer with what there is (on_limit)", name, a.setBy, value).
		With(agent.DetailLimit, name).With(agent.DetailValue, value).With(agent.DetailSetBy, a.setBy)
}

// CountsOn returns what the recorded events of a call count for: all steps of the call and below
// it that have begun. Each step counts once, however often it was attempted.
func CountsOn(recorded []*teamv1.Event) Counts {
	var sum Counts
	type decided struct {
		step  *teamv1.Step
		round *bool // whether the decision was counted as a step
	}
	waiting := map[string]decided{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Decided:
			round := new(bool)
			for _, step := range k.Decided.GetSteps() {
				waiting[agent.Scope(ev.GetScope(), step.GetId())] = decided{step, round}
			}
		case *teamv1.Event_Started:
			d, ok := waiting[ev.GetScope()]
			if !ok {
				continue
			}
			delete(waiting, ev.GetScope()) // further attempts are not counted
			for _, c := range AppendCounters(nil, d.step, !*d.round) {
				sum[c]++
				*d.round = *d.round || c == Steps
			}
		}
	}
	return sum
}

// AppendCounters appends the counters that increase when step begins. first says that no other
// member that was started by the same decision has begun, so that the decision itself counts as a
// step.
func AppendCounters(each []Counter, step *teamv1.Step, first bool) []Counter {
	switch step.GetKind() {
	case teamv1.Step_KIND_MODEL:
		return append(each, Turns)
	case teamv1.Step_KIND_TRANSFER:
		each = append(each, Handoffs)
	case teamv1.Step_KIND_DELEGATE:
		if step.GetCallId() != "" { // a tool call of a leader
			each = append(each, Delegations)
		}
	case teamv1.Step_KIND_STEP:
	default:
		return each
	}
	if first {
		each = append(each, Steps)
	}
	return each
}
