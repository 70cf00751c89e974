package team

import (
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// Scheduler answers "who is next?". The loop of a run calls it, one method at a time;
// one Scheduler serves many runs, so its methods are safe for concurrent use.
//
// All methods but Traits are pure functions of their arguments: the same state gives the
// same result. They call nobody, read no clock but the one they are given and no
// randomness, walk no map unsorted, and do not change the state. What needs a model is a
// step of kind MODEL, whose result is in the next state.
//
// The loop knows nothing else of a scheduler: one that embeds another one and forwards
// these methods can stand in its place. A scheduler of your own embeds
// [Base] and overrides what it needs.
type Scheduler interface {
	// Traits says how the loop treats the runs of this scheduler. It is asked when the
	// team is made, and always says the same.
	Traits() Traits
	// Next decides what comes next. An error ends the run: an *agent.Error as it is, any
	// other as SCHEDULER_ERROR with its text.
	Next(s *State) (Decision, error)
	// Prompt returns the request of a MODEL step that Next decided on. nil ends the run
	// with SCHEDULER_ERROR.
	Prompt(s *State, step *teamv1.Step) *agent.ModelRequest
	// Answer returns the result of a TOOL step that the scheduler answers itself; or no
	// result and a time, until which the step waits for others; or neither: the step
	// calls a tool. The loop asks again when something has changed, and at that time.
	Answer(s *State, st *StepState, l Look) (*teamv1.ToolResult, time.Time)
	// Transfers returns those that the member of a step may hand over to.
	Transfers(s *State, st *StepState) []*teamv1.TransferTarget
	// Handles reports whether Next handles the failure of a step. Any other failure ends
	// the run, unless Config.ReportErrors is set and the failure is not that
	// limits.max_steps refused the step. It is called for steps that failed alone.
	Handles(st *StepState) bool
}

// Look is what [Scheduler.Answer] may look at besides the state.
type Look struct {
	// Now is the time.
	Now time.Time
	// Detached returns how the task of a detached step has ended; nil: it has not, or
	// cannot be read now.
	Detached func(st *StepState) *teamv1.Ended
}

// Traits are what the loop has to know of a scheduler before it asks it. The zero value
// is right for a scheduler that only decides who is next.
type Traits struct {
	// History is what members see of what was said before, where Member.History does not
	// say it; default: HistoryLastResult.
	History HistoryScope
	// FinalTurn is the name of the MODEL step by which a run ends at the limit of its
	// budget, instead of failing. What that turn will need is reserved from the
	// beginning, and grows with the prompt. The step that the budget refused is in the
	// state as any other that failed. Empty: the run fails.
	FinalTurn string
	// UsesTools says that MODEL steps call tools: the tool sets of the team are asked for
	// their tools when a run begins.
	UsesTools bool
	// ReservedTools are the names of tools that prompts offer besides those of the team.
	// A run whose tool sets have one of these names fails.
	ReservedTools []string
	// WithholdsText says that readers are shown the text of a MODEL step when the run has
	// its answer, not as it comes.
	WithholdsText bool
	// DetectsCycles says that the scheduler bounds repetitions itself. Not set: a
	// delegation that repeats an earlier one is refused with CYCLE_DETECTED.
	DetectsCycles bool
	// SetsTimeouts says that a step without a timeout has none. Not set: it is
	// limits.member_timeout.
	SetsTimeouts bool
	// Interleaves says that Next has more to decide while a single asynchronous step
	// runs, such as what a message of the user means.
	Interleaves bool
	// Detaches says that steps may be detached: each becomes a task of its own.
	Detaches bool
	// WakesOnDetachedEnd says that the end of a detached task begins a run of the team in
	// the same conversation, with the result of the task.
	WakesOnDetachedEnd bool
	// Warnings are logged when the team is made.
	Warnings []string
}

// Base implements all methods of a [Scheduler] but Next, for schedulers that have no model
// and no tools, to embed.
type Base struct{}

// Traits implements [Scheduler]: the zero value.
func (Base) Traits() Traits { return Traits{} }

// Prompt implements [Scheduler]: there are no MODEL steps.
func (Base) Prompt(*State, *teamv1.Step) *agent.ModelRequest { return nil }

// Answer implements [Scheduler]: TOOL steps call tools.
func (Base) Answer(*State, *StepState, Look) (*teamv1.ToolResult, time.Time) { return nil, time.Time{} }

// Transfers implements [Scheduler]: members do not hand over.
func (Base) Transfers(*State, *StepState) []*teamv1.TransferTarget { return nil }

// Handles implements [Scheduler]: no failure.
func (Base) Handles(*StepState) bool { return false }

// Decision is a scheduler's answer. With neither steps, Cancel, Reply, Transfer nor Ask it waits
// for the steps that run; where none runs it is the error NO_RESPONSE.
type Decision struct {
	// Steps to run; more than one run at the same time, at most max_parallel.
	// A step without an input gets the last of the current messages.
	Steps []*teamv1.Step
	// Updates of the run's context, applied when the steps have ended.
	Updates map[string]*structpb.Value
	// Reply ends the run with this message.
	Reply *a2av1.Message
	// Joins are the ids of the steps whose results Reply joins: readers get each of
	// them as an artifact besides. Unset with the last response, it is known.
	Joins []string
	// Cancel are the ids of open steps that nobody needs any more. They end
	// CANCELED, which does not fail the run.
	Cancel []string
	// Transfer ends the run, and control goes to one of State.Transfers.
	Transfer *teamv1.Transfer
	// Ask asks the user; the answer becomes the current message.
	Ask *a2av1.Message
	// Plan that is frozen from here on.
	Plan *structpb.Struct
	// Reason in words: always recorded.
	Reason string
	// Rule is the id of the rule that matched.
	Rule string
	// Values that the rule saw.
	Values *structpb.Struct
}

// State is what a scheduler knows: the fold of what is on record. Read only.
type State struct {
	// Team is the team's configuration.
	Team *Config
	// Root is the id of the root task.
	Root string
	// Scope of the run within its root, and the path of its agent.
	Scope, Path string
	// Input is the message the run began with; in a further round of revision what
	// that round is given, see Review.
	Input *a2av1.Message
	// History of the conversation, oldest first.
	History []*a2av1.Message
	// Roster: the members' info and health as recorded, in the order of Team.Members.
	Roster []*teamv1.Observed_Member
	// Messages are the current messages: the input, then the last response.
	Messages []*a2av1.Message
	// Last is the last response: the result of the last batch of members; nil before.
	Last *Result
	// Brief of the collaboration that the run is part of; nil: it is part of none.
	Brief *teamv1.Brief
	// Context is the run's key/value map. At the start it holds what the brief
	// shares, else nothing.
	Context map[string]*structpb.Value
	// Steps are all steps of the run, in its round of revision, in the order they
	// were decided.
	Steps []*StepState
	// Rounds counts the decisions that dispatched members, as Steps does.
	Rounds int
	// Received are the follow-up messages of the user, oldest first.
	Received []*a2av1.Message
	// Tools are what the team's tool sets offer, as it was when the run began.
	Tools []agent.ToolSpec
	// Transfers are the members of the caller's that the run may hand over to.
	Transfers []*teamv1.TransferTarget
	// Earlier are the steps of earlier rounds of revision.
	Earlier []*StepState
	// Ended counts the steps that have ended.
	Ended int
	// Now is the time of the last event.
	Now time.Time

	done int // the first steps, all of them ended: where to look for open ones

	review   *review          // of the result that was handed in last in the round; nil is none
	revision int              // the round, from 2; 0 is the first
	first    *a2av1.Message   // the message of the run, once a round has another
	said     []*a2av1.Message // the follow-ups of earlier rounds
	hidden   int              // judgements that are not among the steps
}

// Result is what a member answered.
type Result struct {
	// Member that answered; several of one batch are joined by ", ".
	Member string
	// Message it answered with; nil when it failed.
	Message *a2av1.Message
	// Outcome of its step.
	Outcome teamv1.Outcome

	// Joins are the ids of the steps whose results the message joins; nil for one.
	Joins []string
}

// StepState is a step and what became of it.
type StepState struct {
	// Step as decided.
	Step *teamv1.Step
	// Round is the decision of the run it belongs to, of those that dispatched members, from 0.
	Round int
	// Done: it has ended, with the outcome and result below.
	Done     bool
	Outcome  teamv1.Outcome
	Message  *a2av1.Message
	Turn     *teamv1.Turn
	Tool     *teamv1.ToolResult
	Transfer *teamv1.Transfer
	Verdict  *teamv1.Verdict
	Err      *agent.Error
	Spent    *teamv1.Spent
	// Dropped: the scheduler has canceled it (Decision.Cancel). Its end fails nothing.
	Dropped bool

	// Scope of the step.
	Scope string
	// Given is the message that the step was given.
	Given *a2av1.Message
	// Refusal says why the step must not start; nil: it may.
	Refusal *agent.Error
	// Began is the time of its first attempt; zero: it has not started.
	Began time.Time
	// Heard counts the follow-up messages that had come when the step was decided.
	Heard int
	// EndedBefore counts the steps that had ended when the step was decided.
	EndedBefore int
	// EndIndex counts the steps that had ended when the step did.
	EndIndex int
	// EndSeq is the sequence number of its end.
	EndSeq int64

	index   int       // among the steps of the run
	seq     int64     // of the event that holds the message
	earlier []int64   // results handed over behind it, by EndSeq
	waiting time.Time // since when it waits for people
	held    time.Time // since when it stands still because the run is paused
	expired bool      // its own question lapsed
	past    step.Past // what its attempts have put on record
}

// ByMember reports whether the step is work of a member.
func (st *StepState) ByMember() bool { return agent.IsDelegation(st.Step.GetKind()) }

// Open returns the steps that have not ended.
func (s *State) Open() []*StepState { return slices.Collect(s.pending()) }

// pending are the same, without a list of them: the loop looks at them for every event.
func (s *State) pending() iter.Seq[*StepState] {
	return func(yield func(*StepState) bool) {
		for _, st := range s.Steps[s.done:] {
			if !st.Done && !yield(st) {
				return
			}
		}
	}
}

// indexOf is the place of a step among all; -1: it is none of them.
func (s *State) indexOf(st *StepState) int {
	if i := st.index - len(s.Earlier); i >= 0 && i < len(s.Steps) && s.Steps[i] == st {
		return i
	}
	return slices.Index(s.Steps, st) // a state that somebody has put together
}

// LastOf returns the last ended step of a member, or nil.
func (s *State) LastOf(member string) *StepState {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if st := s.Steps[i]; st.Done && st.ByMember() && st.Step.GetMember() == member {
			return st
		}
	}
	return nil
}

// Failure returns the error of a member's or human's step that did not succeed.
func (st *StepState) Failure() *agent.Error {
	if !st.Done || st.Dropped || !st.ByMember() && st.Step.GetKind() != teamv1.Step_KIND_HUMAN {
		return nil
	}
	switch st.Outcome {
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT, teamv1.Outcome_OUTCOME_REJECTED, teamv1.Outcome_OUTCOME_CANCELED:
		if st.Err == nil {
			return agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed, "member %q failed", st.Step.GetMember())
		}
		return st.Err
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_SKIPPED, teamv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return nil
}

// BeyondLimit reports whether the step was refused by limits.max_steps, which ends the run
// also where failures go to the scheduler.
func (st *StepState) BeyondLimit() bool {
	return st.Refusal != nil && st.Refusal.Reason == agent.ReasonMaxIterations
}

// blocked reports whether a step waits for the answer to its own question.
func (st *StepState) blocked() bool {
	return st.past.Asked.From(func(scope string) bool { return scope == st.Scope })
}

// TransferTool is the name of the tool by which a member with a model hands over.
const TransferTool = "transfer_to_agent"

// refusedTransfer begins the name of a step whose member was refused a hand-over; the
// reason follows.
const refusedTransfer = "hand-off refused: "

// RefusedTransferName returns the name of a step that tells a member why its hand-over was
// refused. Such a step has the reason in its field refused_transfer, too.
func RefusedTransferName(reason string) string { return refusedTransfer + reason }

// RefusedTransfer returns the reason why a hand-over by the member of a step was refused,
// of which the step tells it; empty for other steps.
func RefusedTransfer(step *teamv1.Step) string {
	if reason := step.GetRefusedTransfer(); reason != "" {
		return reason
	}
	reason, _ := strings.CutPrefix(step.GetName(), refusedTransfer) // as earlier versions recorded it
	if reason == step.GetName() {
		return ""
	}
	return reason
}
