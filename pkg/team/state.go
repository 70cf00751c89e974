package team

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

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

	index   int     // among the steps of the run
	seq     int64   // of the event that holds the message
	earlier []int64 // results handed over behind it, by EndSeq
	clock   journal.Clock
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

// Parked reports whether a step waits for people and was not answered since.
func (st *StepState) Parked() bool { return !st.clock.Waits().IsZero() || st.blocked() }

// round is the round of revision, from 1.
func (s *State) round() int { return max(s.revision, 1) }

// begin is the message that the run began with.
func (s *State) begin() *a2av1.Message {
	if s.first != nil {
		return s.first
	}
	return s.Input
}

// All returns the steps of the run, those of earlier rounds too.
func (s *State) All() []*StepState {
	if len(s.Earlier) == 0 {
		return s.Steps
	}
	return slices.Concat(s.Earlier, s.Steps)
}

// nextID is the id of the i-th step that is decided next, from 0.
func (s *State) nextID(i int) string {
	return strconv.Itoa(len(s.Earlier) + len(s.Steps) + s.hidden + i + 1)
}

// spent adds up what the steps cost.
func (s *State) spent() *teamv1.Spent {
	var sum *teamv1.Spent
	for _, st := range s.All() {
		sum = agent.AddSpent(sum, st.Spent)
	}
	return sum
}
