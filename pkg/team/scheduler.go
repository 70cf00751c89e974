package team

import (
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Scheduler decides which steps of a run come next. The loop of a run calls its methods one at a
// time. One Scheduler serves many runs, so its methods must be safe for concurrent use.
//
// All methods except Traits must be pure functions of their arguments: the same state gives the
// same result. They must not call other agents, read a clock except the one that they are given,
// use randomness, depend on the iteration order of maps, or modify the state. To ask a model they
// decide on a step of kind MODEL; its result is in the next state.
//
// A scheduler can wrap another one and forward these methods. Custom schedulers embed [Base] and
// override what they need.
type Scheduler interface {
	// Traits returns how the loop treats the runs of this scheduler. It is called when the team is
	// created and must always return the same value.
	Traits() Traits
	// Next returns the next decision. An error ends the run: an *agent.Error unchanged, any other
	// as SCHEDULER_ERROR with its text.
	Next(s *State) (Decision, error)
	// Prompt returns the request of a MODEL step that Next decided on. If it returns nil, the run
	// ends with SCHEDULER_ERROR.
	Prompt(s *State, step *teamv1.Step) *agent.ModelRequest
	// Answer returns the result of a TOOL step that the scheduler answers itself; or nil and the
	// time until which the step waits; or nil and the zero time if the step calls a tool. The loop
	// asks again at that time, and whenever an event was recorded before.
	Answer(s *State, st *StepState, l Look) (*teamv1.ToolResult, time.Time)
	// Transfers returns the agents that the member of a step may hand over to.
	Transfers(s *State, st *StepState) []*teamv1.TransferTarget
	// Handles reports whether Next handles the failure of a step. Any other failure ends the run,
	// unless Config.ReportErrors is set and the step was not refused by limits.max_steps. It is
	// only called for failed steps.
	Handles(st *StepState) bool
}

// Look is the input of [Scheduler.Answer] besides the state.
type Look struct {
	// Now is the current time.
	Now time.Time
	// Detached returns how the task of a detached step ended; nil if it has not ended, or cannot be
	// read now.
	Detached func(st *StepState) *teamv1.Ended
}

// Traits tell the loop how to treat the runs of a scheduler. The zero value suits a scheduler that
// only chooses members.
type Traits struct {
	// History is the default history scope of members that do not set Member.History; empty means
	// HistoryLastResult.
	History HistoryScope
	// FinalTurn is the name of the MODEL step that answers at the limit of the budget, so that the
	// run does not fail. The cost of that turn is reserved from the beginning, and the reservation
	// grows with the prompt. The step that the budget refused is in the state like any other failed
	// step. If FinalTurn is empty, the run fails at the limit.
	FinalTurn string
	// UsesTools says that MODEL steps call tools. The tool sets of the team are asked for their
	// tools when a run begins.
	UsesTools bool
	// ReservedTools are the names of tools that prompts offer besides those of the team. A run
	// fails if a tool set offers a tool with one of these names.
	ReservedTools []string
	// WithholdsText says that readers are shown the text of MODEL steps only as part of the reply,
	// not while it is generated.
	WithholdsText bool
	// DetectsCycles says that the scheduler bounds repetitions itself. If it is not set, a
	// delegation that repeats an earlier one is refused with CYCLE_DETECTED.
	DetectsCycles bool
	// SetsTimeouts says that a step without a timeout has none. If it is not set, its timeout is
	// limits.member_timeout.
	SetsTimeouts bool
	// Interleaves says that Next may have more to decide while a single asynchronous step runs, for
	// example when the user sends a message.
	Interleaves bool
	// Detaches says that steps may be detached: each becomes a task of its own.
	Detaches bool
	// WakesOnDetachedEnd says that the end of a detached task starts a run of the team in the same
	// conversation, with the result of the task as input.
	WakesOnDetachedEnd bool
	// Entry says who is given the message of a run. A team accepts the files that they take.
	Entry Entry
	// Warnings are logged when the team is created.
	Warnings []string
}

// Base implements all methods of [Scheduler] except Next. Schedulers without a model and tools
// embed it.
type Base struct{}

// Traits implements [Scheduler]. It returns the zero value.
func (Base) Traits() Traits { return Traits{} }

// Prompt implements [Scheduler]. It returns nil: there are no MODEL steps.
func (Base) Prompt(*State, *teamv1.Step) *agent.ModelRequest { return nil }

// Answer implements [Scheduler]: all TOOL steps call tools.
func (Base) Answer(*State, *StepState, Look) (*teamv1.ToolResult, time.Time) { return nil, time.Time{} }

// Transfers implements [Scheduler]: members do not hand over.
func (Base) Transfers(*State, *StepState) []*teamv1.TransferTarget { return nil }

// Handles implements [Scheduler]: no failure is handled.
func (Base) Handles(*StepState) bool { return false }

// Decision is the answer of a scheduler. A decision without Steps, Cancel, Reply, Transfer and Ask
// waits for the running steps; if none runs, the run ends with NO_RESPONSE.
type Decision struct {
	// Steps to run. Several steps run at the same time, at most max_parallel of them. A member's
	// step without an input gets the last of the current messages.
	Steps []*teamv1.Step
	// Updates of the run's context, applied when all steps have ended.
	Updates map[string]*structpb.Value
	// Reply ends the run with this message.
	Reply *a2av1.Message
	// Finalized says which limit has made the run end early with Reply, as a warning for readers; empty if
	// none has.
	Finalized string
	// Joins are the ids of the steps whose results Reply joins; readers get each of them as an
	// artifact as well. It may be left unset if Reply is the last response.
	Joins []string
	// Cancel are the ids of open steps that are not needed any more. They end as CANCELED, which
	// does not fail the run.
	Cancel []string
	// Transfer ends the run and hands control to one of State.Transfers.
	Transfer *teamv1.Transfer
	// Ask is a question to the user; the answer becomes the current message.
	Ask *a2av1.Message
	// Failed are errors of steps that count as failed although they succeeded, by the ids of the
	// steps. They matter for required work when the decision ends the run.
	Failed map[string]*agent.Error
	// Failure fails the run with this error in place of the Reply or Transfer; a Reply is kept as an
	// artifact. To fail a run without one, return an error.
	Failure *agent.Error
	// Plan is recorded with the decision, and is in State.Plan from then on. It must not change
	// afterwards.
	Plan *structpb.Struct
	// Reason of the decision in words; it is always recorded.
	Reason string
	// Rule is the id of the rule that matched, if any.
	Rule string
	// Values are those that the rule read.
	Values *structpb.Struct
}

// TransferTool is the name of the tool that a model-backed member calls to hand over.
const TransferTool = "transfer_to_agent"

// RefusedTransferName returns the name of a step that tells a member why its hand-over was refused.
// Such a step also has the reason in its field refused_transfer.
func RefusedTransferName(reason string) string { return "hand-off refused: " + reason }

// RefusedTransfer returns the reason of the refused hand-over that a step tells its member about;
// empty for other steps.
func RefusedTransfer(step *teamv1.Step) string { return step.GetRefusedTransfer() }
