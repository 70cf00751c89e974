package step

import (
	"context"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// Work is a step as the layers see it. It holds copies, so that layers never read the state of the
// loop. The loop sets the exported fields; after that the Work belongs to the goroutine that runs
// the step.
type Work struct {
	// Step as decided, and the round of the run that it belongs to.
	Step  *teamv1.Step
	Round int
	// Scope of the step.
	Scope string
	// Emit yields an event of the step's scope or below it. The step must end when Emit returns an
	// error.
	Emit func(ev *teamv1.Event) error
	// Target is what the step calls.
	Target Target
	// Refused says why the step has no target; the step then ends as REJECTED.
	Refused error
	// Limit is the name of the limit that bounds the step's time.
	Limit string
	// Begins is the start time of the step. Steps that start together have the same one.
	Begins time.Time
	// Peers counts those that share the rest of the budget, this step included.
	Peers int

	// Input and History are what a member is given. Branch says that the history contains only the
	// present run. Transfers are the agents that the member may hand over to.
	Input     *a2av1.Message
	History   []*a2av1.Message
	Branch    bool
	Transfers []*teamv1.TransferTarget
	// Accepts has the media types that a member accepts; nil means all.
	Accepts *teamv1.AgentInfo
	// Fill returns a message with the values that the member wants by name; nil if it wants none.
	Fill func(*a2av1.Message) *a2av1.Message
	// Prompt is the request of a MODEL step.
	Prompt *agent.ModelRequest
	// Approve returns who decides whether a delegation with this message may begin, or nil if it needs no
	// approval. The function may be nil.
	Approve func(*a2av1.Message) *agent.Approvers
	// Arguments of a tool call. Unsafe says that a second call could have a second effect.
	Arguments string
	Unsafe    bool

	Past

	by       *Runner
	path     string          // path of the step's events; set by the first one
	run      context.Context // context of the run, which may outlive that of the step
	yielding bool            // the loop or its consumer has control: a panic is theirs
	effect   string          // idempotency key of the current effect; set by key
	cut      cut             // the last turn, if a limit cut it
	partial  string          // the text of the last turn of a model that was not whole and had one
	cost     cost            // set by the layer budget
	edited   bool            // people have changed the arguments, or what the member is given
	heard    bool            // the callee has begun to answer the current attempt; set by delegate
}

// Past is the record of a step's earlier attempts, as the next attempt needs it. The loop folds it
// from events; the layers continue with a copy.
type Past struct {
	// Attempts counts the attempts that have started, Failures those whose outcome is known to be a
	// failure.
	Attempts int32
	Failures int64
	// Open says that an attempt has started and not ended. Unknown says that the last attempt that
	// ended may have had its effect. Held says that the open attempt has a part of the budget, which
	// its agent may still spend.
	Open, Unknown, Held bool
	// Key is the idempotency key of the last attempt that has started.
	Key string
	// Deadline of the step; zero means none. NotBefore is the earliest time of the next attempt.
	Deadline, NotBefore time.Time
	// Reserved is the reservation of the last attempt. Spent is the cost of the attempts that were
	// repeated, and Lost the number of those whose cost is an estimate.
	Reserved, Spent *teamv1.Spent
	Lost            int
	// MaxOutput is the raised limit of output tokens, after a turn that was cut; 0 means that it was not
	// raised. Cut is the error of the last turn that was cut; nil means that none was.
	// From is the number of models that are not asked any more, because they were cut.
	MaxOutput int64
	Cut       *teamv1.Error
	From      int
	// Billed is the money in millionths of a USD that was booked for earlier attempts at a call whose
	// outcome is unknown, and which the next attempt may continue.
	Billed int64
	// Asked are the open questions of the step and below it. Questions counts the step's own.
	Asked     journal.Questions
	Questions int64
	// Declined says that people were asked for more budget and have granted nothing.
	Declined bool
	// Approval is the answer of people to the request to approve the step; nil without an answer.
	Approval *Approval
	// Ruling is the answer of people about an attempt whose outcome is unknown; nil if there is
	// none.
	Ruling *a2av1.Message
	// ToolAnswers are the questions that a tool has asked during the call, with their answers. Answered
	// says that the last one was answered after the last start, so that the call continues.
	ToolAnswers []agent.AnsweredTool
	Answered    bool
	// Checks is the record of the team's middlewares.
	Checks Checks
	// Recorded are the events of the step's scope and below it.
	Recorded []*teamv1.Event
}

// Copy returns a copy of p for the next attempt. An attempt that is still open counts as Unknown:
// the process that made it is gone, and the attempt may have had its effect, and may be billed.
func (p *Past) Copy() Past {
	c := *p
	if c.Open {
		c.Unknown = true
		c.lose(spending.LostOn(c.Reserved))
	}
	c.Checks.Warnings = slices.Clone(c.Checks.Warnings)
	return c
}

// Start folds the start of an attempt.
func (p *Past) Start(s *teamv1.Started) {
	if p.Open { // the attempt that was open was interrupted
		p.lose(spending.LostOn(p.Reserved))
	}
	p.Attempts, p.Reserved, p.Key, p.Open, p.Ruling, p.Answered = s.GetAttempt(), s.GetReserved(), s.GetKey(), true, nil, false
	p.Held = p.Reserved != nil && p.Reserved.GetModelCalls() == 0
}

// Park folds that the attempt waits.
func (p *Past) Park() { p.Held = false }

// Retry folds the failure of an attempt that is repeated. If the outcome of the attempt is known,
// the next one starts a new effect.
func (p *Past) Retry(r *teamv1.Retried) {
	p.Open, p.Unknown, p.Held, p.Answered = false, !r.GetFresh(), false, false
	p.lose(r.GetSpent())
	p.Billed = max(p.Billed, r.GetSpent().GetCostMicros())
	if r.GetFresh() {
		p.Failures++
		p.Recorded, p.Billed = nil, 0
	}
	if r.GetError().GetReason() == agent.ReasonAnswerTruncated {
		p.Cut = r.GetError()
	}
	if r.GetMaxOutputTokens() > 0 {
		p.MaxOutput = r.GetMaxOutputTokens()
	}
	p.From = max(p.From, int(r.GetFromModel()))
	if t := r.GetNotBefore(); t != nil {
		p.NotBefore = t.AsTime()
	}
}

// lose adds the cost of an attempt that is repeated.
func (p *Past) lose(spent *teamv1.Spent) {
	p.Spent = agent.AddSpent(p.Spent, spent)
	if spent.GetEstimated() {
		p.Lost++
	}
}

// Target is what the attempts of a step call. One of Agent, Model and Check is set; none is for a
// tool.
type Target struct {
	// Agent that is called, and the id that it is registered under. HandDown returns the context
	// of the call, with what the team passes on to the agent.
	Agent    agent.Agent
	AgentID  string
	HandDown func(context.Context) context.Context
	// Model that makes a turn.
	Model agent.Model
	// Check judges a result without a model or an agent.
	Check func() *teamv1.Reply

	// Leaf says that the target has an effect of its own, so it can be retried. A target that is
	// not a leaf has steps of its own, and these are retried.
	Leaf bool
	// Rounds says that Agent judges the results of the member, which it calls once in each round. These
	// calls, not the step, ask the breaker and pass the result middlewares.
	Rounds bool
	// Spends says that only the target itself knows what it spends, so it gets a part of the
	// budget.
	Spends bool
	// Timeout of the step including its retries; 0 means none.
	Timeout time.Duration
	// DefaultTimeout says that Timeout is a default.
	DefaultTimeout bool
	// Retry is the retry policy.
	Retry Retry
	// Upstream names what the attempts call, for the retry budget.
	Upstream string
}

// emit yields an event. A panic during the call is the consumer's.
func (w *Work) emit(ev *teamv1.Event) error {
	w.yielding = true
	err := w.Emit(ev)
	w.yielding = false
	return err
}

// event sets the scope and agent of an event of the step.
func (w *Work) event(ev *teamv1.Event) *teamv1.Event {
	if w.path == "" {
		w.path = w.by.path(w.Step)
	}
	ev.Scope, ev.Agent = w.Scope, w.path
	return ev
}

// key returns the idempotency key of the step's effect. It changes only after an attempt that is
// known to have failed.
func (w *Work) key() string {
	switch {
	case w.effect != "":
	case w.Unknown && w.Key != "": // which is that of another run if this one retries it
		w.effect = w.Key
	default:
		w.effect = w.by.Run.ID(w.Scope, "key", w.Failures+1)
	}
	return w.effect
}

// remember adds an event to the record of the step if the next attempt of the same effect needs it.
func (p *Past) remember(ev *teamv1.Event) {
	p.Asked.Apply(ev)
	switch ev.GetKind().(type) {
	case *teamv1.Event_Asked, *teamv1.Event_Answered, *teamv1.Event_Bound:
		p.Recorded = append(slices.Clip(p.Recorded), ev)
	default:
	}
}
