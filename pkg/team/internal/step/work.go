package step

import (
	"context"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// Work is a step as the layers see it: copies, so that they never read the state. The loop
// sets the exported fields; after that it belongs to the goroutine that runs the step.
type Work struct {
	// Step as decided, and the round of the run it belongs to.
	Step  *teamv1.Step
	Round int
	// Scope of the step.
	Scope string
	// Emit yields an event of the step's scope or below; ErrStopped ends the step.
	Emit func(ev *teamv1.Event) error
	// Target is what the step calls.
	Target Target
	// Refused says why the step has no target; it then ends REJECTED.
	Refused error
	// Limit names the limit that bounds the time of the step.
	Limit string
	// Begins is when the loop looked at the clock for all steps that begin with it.
	Begins time.Time
	// Peers are the members that share what is left of the budget, itself included.
	Peers int

	// Input and History are what a member is given, Branch says that the history is of the
	// present run alone, Transfers are those that it may hand over to.
	Input     *a2av1.Message
	History   []*a2av1.Message
	Branch    bool
	Transfers []*teamv1.TransferTarget
	// Prompt is the request of a turn.
	Prompt *agent.ModelRequest
	// Arguments of a tool's call. Unsafe: a second call would be a second effect.
	Arguments string
	Unsafe    bool

	Past

	by       *Runner
	path     string          // of the step's events, once there was one
	run      context.Context // of the run: it may go on when the step's has ended
	yielding bool            // control is with the loop or its consumer: a panic is theirs
	effect   string          // key of the effect under way, once it is known
	cost     cost            // see budget
	judge    func(agent.Judgement)
}

// Past is what is on record of a step, as its next attempt needs it. The loop folds it from
// events, and the layers go on from a copy.
type Past struct {
	// Attempts that have started, and Failures whose outcome is known.
	Attempts int32
	Failures int64
	// Open: an attempt has started and not ended. Unknown: the last one that ended may have
	// had its effect.
	Open, Unknown bool
	// Deadline of the step; zero is none. NotBefore is the time of the next attempt.
	Deadline, NotBefore time.Time
	// Reserved of the budget, for the last attempt. Spent on attempts that were repeated.
	Reserved, Spent *teamv1.Spent
	// Asked are the open questions of the step and below it. Questions counts its own.
	Asked     journal.Questions
	Questions int64
	// Ruling is what people say of an attempt whose outcome is not known.
	Ruling *a2av1.Message
	// Checks are what the team's middlewares have said.
	Checks Checks
	// Recorded are the events of its scope and below.
	Recorded []*teamv1.Event
}

// Copy returns p for the next attempt. An attempt that is still open counts as Unknown: the
// process that made it is gone, and it may have had its effect.
func (p *Past) Copy() Past {
	c := *p
	c.Unknown = c.Open || c.Unknown
	c.Checks.Warnings = slices.Clone(c.Checks.Warnings)
	return c
}

// Target is what the attempts of a step call: one of Agent, Model and Check is set, and for
// tools none.
type Target struct {
	// Agent that is called, and the id that it is registered under. HandDown returns the
	// context that it works in.
	Agent    agent.Agent
	AgentID  string
	HandDown func(context.Context) context.Context
	// Model that takes a turn.
	Model agent.Model
	// Check judges without anybody's help.
	Check func() *teamv1.Reply

	// Leaf: it has an effect of its own, so it is what retries repeat. Else it has steps
	// of its own.
	Leaf bool
	// Spends: what it spends is seen by itself alone, so it gets a part of the budget.
	Spends bool
	// Timeout of the step with its retries; 0 is none of its own.
	Timeout time.Duration
	// Retry is how often the step is repeated.
	Retry Retry
	// Upstream is what the attempts call, for the budget of repetitions.
	Upstream string
}

// emit yields an event. A panic that passes through it is the consumer's.
func (w *Work) emit(ev *teamv1.Event) error {
	w.yielding = true
	err := w.Emit(ev)
	w.yielding = false
	return err
}

// event completes an event of the step.
func (w *Work) event(ev *teamv1.Event) *teamv1.Event {
	if w.path == "" {
		w.path = w.by.path(w.Step)
	}
	ev.Scope, ev.Agent = w.Scope, w.path
	return ev
}

// key is the key of the step's effect: the same until an attempt's failure is known.
func (w *Work) key() string {
	if w.effect == "" {
		w.effect = w.by.Run.ID(w.Scope, "key", w.Failures+1)
	}
	return w.effect
}

// keep adds what the next attempt of the same effect needs to know, and what
// tells whether the member has parked.
func (w *Work) keep(ev *teamv1.Event) {
	w.Asked.Apply(ev)
	switch ev.GetKind().(type) {
	case *teamv1.Event_Asked, *teamv1.Event_Answered, *teamv1.Event_Bound:
		w.Recorded = append(slices.Clip(w.Recorded), ev)
	default:
	}
}
