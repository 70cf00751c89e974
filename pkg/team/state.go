package team

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// State is what a scheduler knows about a run: the fold of the recorded events of one scope.
// Schedulers must not modify it.
type State struct {
	// Team is the team's configuration.
	Team *Config
	// Root is the id of the root task.
	Root string
	// Scope is the scope of the run within its root task, and Path the path of its agent.
	Scope, Path string
	// Input is the message that the run began with, or in later rounds of revision the input of the
	// round; see Review.
	Input *a2av1.Message
	// History is the conversation before the run, oldest message first.
	History []*a2av1.Message
	// Roster holds the info and health of the members as recorded, in the order of Team.Members.
	Roster []*teamv1.Observed_Member
	// Messages are the current messages: the input first, later the last response.
	Messages []*a2av1.Message
	// Last is the last response: the joined result of the last batch of members. nil before the
	// first batch has ended.
	Last *Result
	// Brief of the collaboration that the run is part of; nil if it is part of none.
	Brief *teamv1.Brief
	// Context is the run's key/value map. It starts with the context of the brief and what the
	// agent remembers of the conversation.
	Context map[string]*structpb.Value
	// Inputs are the values that the caller has given by name, with the defaults of the others.
	Inputs map[string]*structpb.Value
	// Steps are all steps of the current round of revision, in the order in which they were
	// decided.
	Steps []*StepState
	// Rounds counts the decisions in Steps that dispatched members.
	Rounds int
	// Plan is that of the last decision with one in the current round of revision; nil if none had.
	Plan *structpb.Struct
	// MaxParallel is how many steps of members run at the same time.
	MaxParallel int
	// Received are the follow-up messages of the user, oldest first.
	Received []*a2av1.Message
	// Posted are the messages of others that model turns were shown, oldest first; see
	// agent.Mailbox.
	Posted []Posted
	// Tools are the tools that the team's tool sets offered when the run began.
	Tools []agent.ToolSpec
	// Window is the number of input tokens that the model takes in one request; 0 means unknown. It is set
	// for Prompt only.
	Window int64
	// Limit is what the run may spend at most, of its own budget and of those above it; zero if there is no
	// budget.
	Limit agent.Cost
	// MissingTools are texts, each of which says that the tools of a tool set are missing in the run.
	MissingTools []string
	// Transfers are the members of the calling team that the run may hand over to.
	Transfers []*teamv1.TransferTarget
	// Earlier are the steps of earlier rounds of revision.
	Earlier []*StepState
	// Ended counts the steps that have ended.
	Ended int
	// Now is the time of the last event.
	Now time.Time

	// done is the number of leading entries of Steps that have ended; open steps can only come
	// after them.
	done int

	// review is the result that was submitted to the judge last in this round; nil if none was.
	review *review
	// revision is the current round, from 2; 0 in the first round.
	revision int
	// originalMessage is the input of the first round, set from the second round on.
	originalMessage *a2av1.Message
	// earlierReceived are the follow-up messages of earlier rounds.
	earlierReceived []*a2av1.Message
	// hiddenSteps counts the judge's steps that were removed from Steps.
	hiddenSteps int
}

// Result is the response of one member, or of one batch of members.
type Result struct {
	// Member that answered. The ids of several members are joined by ", ".
	Member string
	// Message that the member answered with; nil if it failed.
	Message *a2av1.Message
	// Outcome of the step; in a batch, of its last member's step.
	Outcome teamv1.Outcome

	// Joins are the ids of the steps whose results Message joins; nil for a single result.
	Joins []string
}

// StepState is a step and what is on record about it.
type StepState struct {
	// Step as it was decided.
	Step *teamv1.Step
	// Round is the number of decisions that dispatched members before the one that the step belongs
	// to.
	Round int
	// Done reports whether the step has ended. The fields below hold its outcome and result.
	Done     bool
	Outcome  teamv1.Outcome
	Message  *a2av1.Message
	Turn     *teamv1.Turn
	Tool     *teamv1.ToolResult
	Transfer *teamv1.Transfer
	Verdict  *teamv1.Verdict
	Err      *agent.Error
	Spent    *teamv1.Spent
	// Approval is what people have decided, if the step asks them to approve something.
	Approval *teamv1.Approval
	// Dropped reports whether the scheduler canceled the step (Decision.Cancel). A dropped step
	// does not fail the run.
	Dropped bool

	// Scope of the step.
	Scope string
	// Given is the message that the step was given.
	Given *a2av1.Message
	// Refusal says why the step must not start; nil if it may.
	Refusal *agent.Error
	// Began is the time of the step's first attempt; zero if it has not started.
	Began time.Time
	// ReceivedBefore counts the follow-up messages that had arrived when the step was decided.
	ReceivedBefore int
	// PostedBefore counts the messages of State.Posted that were on record when the step was
	// decided.
	PostedBefore int
	// EndedBefore counts the steps that had ended when the step was decided.
	EndedBefore int
	// EndIndex counts the steps that ended before this one.
	EndIndex int
	// EndSeq is the sequence number of the event that ended the step. Without a journal it is a
	// unique negative number.
	EndSeq int64

	// index of the step among all steps of the run, from 0.
	index int
	// seq is the sequence number of the event that holds Message.
	seq int64
	// earlier are the EndSeq of the steps whose results are handed over with Given.
	earlier []int64
	// clock measures how long the step waited for people or was paused.
	clock journal.Clock
	// expired reports whether the step's own question expired.
	expired bool
	// past is what the step's attempts have recorded.
	past step.Past
}

// ByMember reports whether the step is work of a member.
func (st *StepState) ByMember() bool { return agent.ByMember(st.Step.GetKind()) }

// MustAnswer reports whether the run may not end with an empty answer: it is the run of a task, and not
// allowed to. What a member that says nothing means is for its team to decide.
func (s *State) MustAnswer() bool { return !s.Team.AllowEmpty && !strings.Contains(s.Path, "/") }

// Open returns the steps that have not ended.
func (s *State) Open() []*StepState { return slices.Collect(s.pending()) }

// pending iterates over the steps that have not ended. Unlike Open it does not allocate: the loop
// calls it for every event.
func (s *State) pending() iter.Seq[*StepState] {
	return func(yield func(*StepState) bool) {
		for _, st := range s.Steps[s.done:] {
			if !st.Done && !yield(st) {
				return
			}
		}
	}
}

// indexOf returns the index of a step in Steps; -1 if it is not one of them.
func (s *State) indexOf(st *StepState) int {
	if i := st.index - len(s.Earlier); i >= 0 && i < len(s.Steps) && s.Steps[i] == st {
		return i
	}
	return slices.Index(s.Steps, st) // a State that was built by hand
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

// Outputs returns, by the name of their output, the last steps that have succeeded and for which visible is true.
func (s *State) Outputs(visible func(*StepState) bool) map[string]*StepState {
	all := map[string]*StepState{}
	for _, st := range s.Steps {
		name := st.Step.GetOutput()
		if name == "" || !st.Done || st.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED || !visible(st) {
			continue
		}
		if before := all[name]; before == nil || before.EndIndex < st.EndIndex {
			all[name] = st
		}
	}
	return all
}

// named returns the values that a step's member is given by name: the inputs of the run, and the results with a name
// that there were when the step was decided.
func (s *State) named(st *StepState) map[string]*structpb.Value {
	values := maps.Clone(s.Inputs)
	for name, of := range s.Outputs(func(of *StepState) bool { return of.EndIndex < st.EndedBefore }) {
		if values == nil {
			values = map[string]*structpb.Value{}
		}
		values[name] = outputValue(of.Message)
	}
	return values
}

// outputValue returns the data of a result that has a data part, or its text.
func outputValue(m *a2av1.Message) *structpb.Value {
	for _, p := range m.GetParts() {
		if d := p.GetData(); d != nil {
			return d
		}
	}
	return structpb.NewStringValue(agent.Text(m))
}

// Failure returns the error of a member's or a human step that failed, timed out, was rejected or
// was canceled. It returns nil for all other steps, and for dropped ones.
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

// BeyondLimit reports whether the step was refused by limits.max_steps. Such a refusal ends the run
// even where other failures go to the scheduler.
func (st *StepState) BeyondLimit() bool {
	return st.Refusal != nil && st.Refusal.Reason == agent.ReasonMaxIterations
}

// waitsForOwnAnswer reports whether a step has asked a question itself and waits for the answer.
func (st *StepState) waitsForOwnAnswer() bool {
	return st.past.Asked.From(func(scope string) bool { return scope == st.Scope })
}

// Parked reports whether a step waits for people.
func (st *StepState) Parked() bool { return !st.clock.Waits().IsZero() || st.waitsForOwnAnswer() }

// round returns the current round of revision, from 1.
func (s *State) round() int { return max(s.revision, 1) }

// originalInput returns the message that the run began with, in every round.
func (s *State) originalInput() *a2av1.Message {
	if s.originalMessage != nil {
		return s.originalMessage
	}
	return s.Input
}

// All returns the steps of all rounds of revision.
func (s *State) All() []*StepState {
	if len(s.Earlier) == 0 {
		return s.Steps
	}
	return slices.Concat(s.Earlier, s.Steps)
}

// nextID returns the id of the i-th step of the next decision; i starts at 0.
func (s *State) nextID(i int) string {
	return strconv.Itoa(len(s.Earlier) + len(s.Steps) + s.hiddenSteps + i + 1)
}

// spent returns the total cost of the steps that have ended.
func (s *State) spent() *teamv1.Spent {
	var sum *teamv1.Spent
	for _, st := range s.All() {
		sum = agent.AddSpent(sum, st.Spent)
	}
	return sum
}

// detached returns a function that returns how the task of a detached step ended; nil if it has not
// ended or cannot be read. The function reads each task at most once.
func (p *process) detached(ctx context.Context) func(*StepState) *teamv1.Ended {
	var ends map[*StepState]*teamv1.Ended
	return func(st *StepState) *teamv1.Ended {
		if !st.isDetachedTask() || p.run.Detacher == nil {
			return nil
		}
		if e, ok := ends[st]; ok {
			return e
		}
		e, err := p.run.Detacher.Detached(ctx, p.TaskID(st))
		if err != nil {
			e = nil
		}
		if ends == nil {
			ends = map[*StepState]*teamv1.Ended{}
		}
		ends[st] = e
		return e
	}
}

// isDetachedTask reports whether the step has become a task of its own.
func (st *StepState) isDetachedTask() bool {
	return st.Step.GetDetached() && st.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED
}

// EndedAs returns a copy of a detached step with the end e of the task that it became; if e is nil
// the copy is open. Other steps are returned unchanged.
func (st *StepState) EndedAs(e *teamv1.Ended) *StepState {
	if !st.isDetachedTask() {
		return st
	}
	c := *st
	c.Done, c.Outcome, c.Message, c.Err = e != nil, e.GetOutcome(), e.GetReply(), agent.FromProto(e.GetError())
	return &c
}

// TaskID returns the id of the task that belongs to a step: a root task if the step is detached,
// else a child of the run's task.
func (s *State) TaskID(st *StepState) string { return s.taskID(st.Scope, st.Step.GetDetached()) }

// NextTaskID returns the task id of the i-th step of the next decision; i starts at 0.
func (s *State) NextTaskID(i int, detached bool) string {
	return s.taskID(agent.Scope(s.Scope, s.nextID(i)), detached)
}

func (s *State) taskID(scope string, detached bool) string {
	if detached {
		return step.DetachedID(s.Root, scope)
	}
	return agent.ChildTask(s.Root, scope)
}
