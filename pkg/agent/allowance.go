package agent

import (
	"context"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Counter is one of the counts that limits bound, each apart.
type Counter int

// The counters, with the limit that bounds each.
const (
	CountSteps       Counter = iota // max_steps: decisions that dispatch members
	CountTurns                      // max_turns: turns of models
	CountDelegations                // max_delegations: delegations of leaders
	CountHandoffs                   // max_handoffs: hand-offs of swarms
	counters
)

// counterLimits say how a counter stands in limits and in errors.
var counterLimits = [counters]struct{ name, reason string }{
	CountSteps:       {"max_steps", ReasonMaxIterations},
	CountTurns:       {"max_turns", ReasonMaxIterations},
	CountDelegations: {"max_delegations", ReasonMaxDelegations},
	CountHandoffs:    {"max_handoffs", ReasonMaxHandoffs},
}

// Counts are values of all counters. As a limit, 0 is none.
type Counts [counters]int64

// CountsOf are the counters that limits set themselves; the defaults bind only
// the run of the agent that they are the defaults of.
func CountsOf(l *teamv1.Limits) Counts {
	return Counts{
		CountSteps: int64(l.GetMaxSteps()), CountTurns: int64(l.GetMaxTurns()),
		CountDelegations: int64(l.GetMaxDelegations()), CountHandoffs: int64(l.GetMaxHandoffs()),
	}
}

// Within are the counts that bind where both do: the smaller one of each.
func (c Counts) Within(other Counts) Counts {
	for i, n := range other {
		if n > 0 && (c[i] == 0 || n < c[i]) {
			c[i] = n
		}
	}
	return c
}

// Allowance is a node of the counters that hold for the work of one process: what
// the limits of an agent set binds everything below it, on this server. A
// nil Allowance is no limit. Safe for concurrent use.
type Allowance struct {
	parent *Allowance
	mu     *sync.Mutex // of all nodes of a root
	setBy  string      // path of the agent whose limits these are
	limit  Counts
	used   Counts // of the node and below; guarded by mu
}

// Child returns a node below a, of which used is gone already.
func (a *Allowance) Child(setBy string, limit, used Counts) *Allowance {
	c := &Allowance{parent: a, mu: new(sync.Mutex), setBy: setBy, limit: limit, used: used}
	if a != nil {
		c.mu = a.mu
	}
	return c
}

type allowanceKey struct{}

// WithAllowance returns a context whose work is bound by a.
func WithAllowance(ctx context.Context, a *Allowance) context.Context {
	return context.WithValue(ctx, allowanceKey{}, a)
}

// AllowanceOf returns what binds the work of ctx; nil is no limit.
func AllowanceOf(ctx context.Context) *Allowance {
	a, _ := ctx.Value(allowanceKey{}).(*Allowance)
	return a
}

// Take counts one of each in a and every node above, or nothing. The error has
// the reason of the counter that is used up, which limit it is, its value, and who
// set it; see Binds.
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

// Used is what is gone of a, of the node and everything below.
func (a *Allowance) Used() Counts {
	if a == nil {
		return Counts{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

func (a *Allowance) usedUp(c Counter) *Error {
	name, value := counterLimits[c].name, count(a.limit[c])
	return Errorf(CodeInternal, counterLimits[c].reason,
		"limits.%s of %q is %s, and it and what works for it have used that up; raise it, or have it answer with what there is (on_limit)", name, a.setBy, value).
		With(DetailLimit, name).With(DetailValue, value).With(DetailSetBy, a.setBy)
}

// CountsOn counts what is on record of a call: what has begun of it, and below it.
func CountsOn(recorded []*teamv1.Event) Counts {
	var sum Counts
	type decided struct {
		step  *teamv1.Step
		round *bool // whether the decision counts as a step already
	}
	waiting := map[string]decided{}
	for _, ev := range recorded {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Decided:
			round := new(bool)
			for _, step := range k.Decided.GetSteps() {
				waiting[Scope(ev.GetScope(), step.GetId())] = decided{step, round}
			}
		case *teamv1.Event_Started:
			d, ok := waiting[ev.GetScope()]
			if !ok {
				continue
			}
			delete(waiting, ev.GetScope()) // a further attempt counts nothing
			for _, c := range AppendCounters(nil, d.step, !*d.round) {
				sum[c]++
				*d.round = *d.round || c == CountSteps
			}
		}
	}
	return sum
}

// AppendCounters appends what the beginning of a step counts as. first: no other member
// of its decision has begun.
func AppendCounters(each []Counter, step *teamv1.Step, first bool) []Counter {
	switch step.GetKind() {
	case teamv1.Step_KIND_MODEL:
		return append(each, CountTurns)
	case teamv1.Step_KIND_TRANSFER:
		each = append(each, CountHandoffs)
	case teamv1.Step_KIND_DELEGATE:
		if step.GetCallId() != "" { // by a leader's call
			each = append(each, CountDelegations)
		}
	case teamv1.Step_KIND_STEP:
	default:
		return each
	}
	if first {
		each = append(each, CountSteps)
	}
	return each
}
