package team

import (
	"fmt"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// ResultText returns the result of a member's step as text for a model that can call the tool
// read_result: a long text is cut. If people have changed the task of the member, the text says so,
// because the model knows only the task that it has decided on.
func (s *State) ResultText(st *StepState) string {
	text := st.Describe(prompt.Cut(prompt.Text(st.Message), s.TaskID(st)))
	if a := st.past.Approval; a != nil && a.Answer.GetArguments() != "" {
		text += "\n\nBefore the member began, a person changed its task to: " + agent.Excerpt(a.Answer.GetArguments(), maxChangedTask)
	}
	return text
}

// maxChangedTask is how much of a task that people have changed a model is shown, in bytes.
const maxChangedTask = 1 << 10

// Describe returns the result of a member's step as text: the member, the outcome, the reason of a
// failure, and text, which is the content of the result as the reader is to see it.
func (st *StepState) Describe(text string) string {
	switch {
	case !st.Done && st.Parked():
		return st.Step.GetMember() + ": waits for an answer of the user"
	case !st.Done:
		return st.Step.GetMember() + ": working"
	case st.Err != nil:
		return resultHeading(st) + "\n\n" + st.Err.Message
	case strings.TrimSpace(text) == "":
		return resultHeading(st) + "\n\n(member returned no content)"
	}
	return resultHeading(st) + "\n\n" + text
}

// resultHeading returns the heading of a result: the member, the outcome, and the reason of a
// failure.
func resultHeading(st *StepState) string {
	head := st.Step.GetMember() + ": " + expr.OutcomeWord(st.Outcome)
	if st.Err != nil && st.Err.Reason != "" {
		head += " (" + st.Err.Reason + ")"
	}
	return head
}

// resultParts returns a result as it is handed to another member: a long one in full, with its
// name.
func resultParts(s *State, st *StepState) []*a2av1.Part {
	text := prompt.Text(st.Message)
	if st.Err != nil || len(text) <= agent.MaxResult {
		return agent.TextParts(s.ResultText(st))
	}
	return agent.ResultParts(resultHeading(st), text, s.TaskID(st))
}

// Joined returns the results of steps as one message, in the order of the steps, each under a
// heading with its member's id. A single result is returned unchanged.
func Joined(steps []*StepState) *a2av1.Message {
	if len(steps) == 1 && steps[0].Message != nil {
		return steps[0].Message
	}
	var j prompt.Joiner
	for _, st := range steps {
		j.Section(heading(st, steps), st.Content())
	}
	return j.Message()
}

// heading names the author of a result: the member, with the step's name if the member has several
// of the results; for a human step its name.
func heading(st *StepState, among []*StepState) string {
	member, name := st.Step.GetMember(), st.Step.GetName()
	if member == "" {
		return name
	}
	for _, other := range among {
		if other != st && other.Step.GetMember() == member && name != "" {
			return member + " (" + name + ")"
		}
	}
	return member
}

// Content returns the content of the step's result, or a text that says that it failed or has no
// content.
func (st *StepState) Content() []*a2av1.Part {
	switch {
	case len(st.Message.GetParts()) > 0:
		return st.Message.GetParts()
	case st.Err != nil:
		return agent.TextParts("(failed: " + st.Err.Message + ")")
	}
	return agent.TextParts("(no content)")
}

// JoinedIDs returns the ids of the steps whose results a message of [Joined] joins, as in
// Decision.Joins; nil for a single step.
func JoinedIDs(steps []*StepState) []string {
	if len(steps) < 2 {
		return nil
	}
	ids := make([]string, len(steps))
	for i, st := range steps {
		ids[i] = st.Step.GetId()
	}
	return ids
}

// joins returns the ids of the steps whose results the reply of d joins.
func (s *State) joins(d *Decision) []string {
	if len(d.Joins) == 0 && s.Last != nil && d.Reply == s.Last.Message {
		return s.Last.Joins
	}
	return d.Joins
}

// maxShortfalls is the maximum number of pieces of required work that one error describes.
const maxShortfalls = 10

// chosen returns the choice that a decision of the scheduler makes. If the decision ends the run, but
// required work was not done, the choice has the failure that the run ends with. Like Scheduler.Next
// it is a pure function.
func (s *State) chosen(d Decision) choice {
	c := choice{Decision: d}
	if c.failure = d.Failure; c.failure == nil && (d.Reply != nil || d.Transfer != nil) {
		c.failure = s.requiredFailure(&c.Decision)
	}
	return c
}

// requiredFailure returns the error of a run that would end with the decision d although required
// work was not done; nil if all of it was. The steps of all rounds of revision count.
func (s *State) requiredFailure(d *Decision) *agent.Error {
	var short shortfalls
	called := map[string]bool{}
	all := s.All()
	for i, st := range all {
		if !s.requires(st) || s.isNoWork(st) {
			continue
		}
		called[st.Step.GetMember()] = true
		if why := st.shortfall(d); why != "" && !s.madeUpFor(all, i, d) {
			short.add(st.workName(), st.Step.GetMember(), why)
			short.tasks = append(short.tasks, s.TaskID(st))
		}
	}
	for i := range s.Team.Members {
		if id := MemberID(&s.Team.Members[i]); s.Team.Members[i].Required && !called[id] {
			short.add(memberName(id), id, "was never called")
		}
	}
	return short.failure(s.Team.ID, d)
}

// requires reports whether the work of a step is required: the step was decided as such, or is work
// of a required member.
func (s *State) requires(st *StepState) bool {
	return st.Step.GetRequired() || st.ByMember() &&
		slices.ContainsFunc(s.Team.Members, func(m Member) bool { return m.Required && MemberID(&m) == st.Step.GetMember() })
}

// Owes reports whether the work of a required member is not done so far: no step of it has succeeded,
// or one has failed that no later step makes up for. It is false for other members.
func (s *State) Owes(member string) bool {
	called, all := false, s.All()
	if !slices.ContainsFunc(s.Team.Members, func(m Member) bool { return m.Required && MemberID(&m) == member }) {
		return false
	}
	for i, st := range all {
		if !st.ByMember() || st.Step.GetMember() != member || s.isNoWork(st) {
			continue
		}
		called = true
		if st.shortfall(&Decision{}) != "" && !s.madeUpFor(all, i, &Decision{}) {
			return true
		}
	}
	return !called
}

// isNoWork reports whether a step does not count as work: it was skipped because its condition was
// not true, refused because it repeats a message that its member was given before, or canceled before
// it began so that it can be planned again.
func (s *State) isNoWork(st *StepState) bool {
	if s.Plan != nil && st.Dropped && st.Began.IsZero() {
		return true
	}
	if st.Outcome == teamv1.Outcome_OUTCOME_SKIPPED {
		return st.Err == nil || st.Err.Reason == ""
	}
	return st.Refusal != nil && st.Refusal.Reason == agent.ReasonCycleDetected
}

// shortfall returns in words why a step has not done its work; empty if it has.
func (st *StepState) shortfall(d *Decision) string {
	switch failed := d.Failed[st.Step.GetId()]; {
	case !st.Done && st.Parked():
		return "waited for an answer of the user"
	case !st.Done:
		return "was still working"
	case st.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED && st.Step.GetDetached():
		return "works in a task of its own, which the run does not wait for"
	case failed != nil:
		return "failed" + describe(failed)
	}
	switch st.Outcome {
	case teamv1.Outcome_OUTCOME_SUCCEEDED:
		return ""
	case teamv1.Outcome_OUTCOME_EMPTY:
		return "returned no content"
	case teamv1.Outcome_OUTCOME_TIMED_OUT:
		return "timed out" + describe(st.Err)
	case teamv1.Outcome_OUTCOME_REJECTED:
		return "was rejected" + describe(st.Err)
	case teamv1.Outcome_OUTCOME_CANCELED:
		return "was canceled"
	case teamv1.Outcome_OUTCOME_SKIPPED:
		return "was skipped" + describe(st.Err)
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return "failed" + describe(st.Err)
}

// describe returns the reason and the message of an error as the end of a sentence.
func describe(err *agent.Error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf(" (%s): %s", err.Reason, agent.Quote(err.Message))
}

// madeUpFor reports whether a step after all[i] has done the work that all[i] has not done.
func (s *State) madeUpFor(all []*StepState, i int, d *Decision) bool {
	replanned := false
	for _, later := range all[i+1:] {
		// In a planned run only the leader takes turns while steps are left to run: to plan them anew.
		replanned = replanned || s.Plan != nil && later.Step.GetKind() == teamv1.Step_KIND_MODEL
		if later.makesUpFor(all[i], d, replanned) {
			return true
		}
	}
	return false
}

// makesUpFor reports whether st has done the work that an earlier step has not done. This is so if
// st succeeded, is a step of the same member and, in a workflow, the same step, and was decided after
// the earlier one had ended. If the run was planned anew between the two, the step may be another one.
func (st *StepState) makesUpFor(earlier *StepState, d *Decision, replanned bool) bool {
	return earlier.Done && st.EndedBefore > earlier.EndIndex && st.Step.GetMember() == earlier.Step.GetMember() &&
		(replanned || st.workName() == earlier.workName()) && st.shortfall(d) == ""
}

// workName names the work of a step for people: its member and, in a workflow, the step.
func (st *StepState) workName() string {
	member, name := st.Step.GetMember(), st.Step.GetName()
	switch kind := st.Step.GetKind(); {
	case member == "":
		return fmt.Sprintf("step %q", name)
	case kind == teamv1.Step_KIND_STEP && name != member:
		return fmt.Sprintf("step %q of %s", name, memberName(member))
	}
	return memberName(member)
}

func memberName(id string) string { return fmt.Sprintf("member %q", id) }

// shortfalls collects required work that was not done.
type shortfalls struct {
	texts   []string // what happened, by piece of work
	names   []string // names of the pieces of work
	members []string // ids of the members concerned
	tasks   []string // task ids of the delegations
}

// add adds a piece of work. Of several delegations of the same work the last one is described.
func (f *shortfalls) add(name, member, why string) {
	if i := slices.Index(f.names, name); i >= 0 {
		f.texts[i] = name + " " + why
		return
	}
	f.names, f.texts = append(f.names, name), append(f.texts, name+" "+why)
	if member != "" && !slices.Contains(f.members, member) {
		f.members = append(f.members, member)
	}
}

// failure returns the error of the run; nil if nothing was collected.
func (f *shortfalls) failure(team string, d *Decision) *agent.Error {
	if len(f.texts) == 0 {
		return nil
	}
	text := strings.Join(f.texts[:min(len(f.texts), maxShortfalls)], "; ")
	if more := len(f.texts) - maxShortfalls; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	kept := "the answer of the team is kept as an artifact"
	if d.Transfer != nil {
		kept = "the team would have handed over to " + agent.Quote(d.Transfer.GetTo())
	}
	err := agent.Errorf(agent.CodeInternal, agent.ReasonRequiredWork,
		"team %q ended without its required work: %s; %s; see to it that each of them succeeds before the team answers, or do not require it", team, text, kept)
	if len(f.members) > 0 {
		err = err.With("members", strings.Join(f.members, ", "))
	}
	if len(f.tasks) > 0 {
		err = err.With("delegations", strings.Join(f.tasks[max(len(f.tasks)-maxShortfalls, 0):], ", "))
	}
	return err
}
