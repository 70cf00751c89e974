package team

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
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
