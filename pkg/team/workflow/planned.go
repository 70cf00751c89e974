package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// PlannedConfig is the configuration of a Planned.
type PlannedConfig struct {
	// Instructions for the model. The prompt adds the members and how to plan.
	Instructions string
	// Members of the team. At most MaxSteps of them may be required.
	Members []team.Member
	// MaxSteps is the maximum number of steps of a plan, without those that have finished; 0 means 20,
	// or limits.max_steps if that is less.
	MaxSteps int
	// MaxRevisions is the maximum number of times that the model revises the plan in a run; nil means 1.
	MaxRevisions *int
	// Approve are the people who approve each plan; nil means that no one is asked.
	Approve *agent.Approvers
	// Limits of a run. The scheduler itself reads max_steps.
	Limits *teamv1.Limits
}

// DefaultPlanSteps is the default maximum number of steps of a plan.
const DefaultPlanSteps = 20

const defaultMaxRevisions = 1

// Names of the turns of the model, and of the question whether a plan is approved.
const (
	planTurn    = "plan"
	reviseTurn  = "revise"  // plan the rest anew
	correctTurn = "correct" // write the plan of the last turn without its faults
	answerTurn  = "answer"
	approval    = "plan approval"
)

// planAttempts is how often the model is asked for one plan.
const planAttempts = 2

// Planned is the scheduler of teams whose model, the leader, plans a workflow when the run begins. The
// plan is checked, approved by people if the configuration says so, and recorded. From then on it does
// not change, and a [Workflow] runs it. When every step has ended, the leader writes the answer from the
// results.
//
// The leader revises the plan at most MaxRevisions times: if people reject it, and if a step fails. Steps
// that have finished, because they succeeded, returned nothing, or were skipped by their condition, stay
// part of the plan; the others are planned anew, once nothing runs any more. If no revision is left, a plan that people reject fails the run, and a failed step does what it does in a
// Workflow.
//
// It requires a Model in [team.Config]. Safe for concurrent use.
type Planned struct {
	team.Base
	instructions string
	maxSteps     int
	maxRevisions int
	approve      *agent.Approvers
	flows        flows
}

var _ team.Scheduler = (*Planned)(nil)

// NewPlanned returns a scheduler of planned workflows. The error joins a *team.Fault for each fault of
// the configuration.
func NewPlanned(c PlannedConfig) (*Planned, error) {
	p := &Planned{instructions: c.Instructions, maxSteps: c.MaxSteps, maxRevisions: defaultMaxRevisions, approve: c.Approve}
	if c.MaxRevisions != nil {
		p.maxRevisions = *c.MaxRevisions
	}
	limit := cmp.Or(int(c.Limits.GetMaxSteps()), team.DefaultSteps)
	if p.maxSteps == 0 {
		p.maxSteps = min(DefaultPlanSteps, limit)
	}
	var fs team.Faults
	switch {
	case p.maxSteps < 0:
		fs.Addf("plan.max_steps", "plan", "max_steps is %d; it must be at least 1, or left out for %d", p.maxSteps, DefaultPlanSteps)
	case p.maxSteps > limit:
		fs.Addf("plan.max_steps", "plan", "max_steps is %d, but a run has at most %d steps (limits.max_steps of the team); lower it, or raise the limit", p.maxSteps, limit)
	}
	required := 0
	for i := range c.Members {
		if !c.Members[i].Required {
			continue
		}
		if required++; required == p.maxSteps+1 {
			fs.Addf(fmt.Sprintf("members[%d].required", i), "plan", "more members are required than the %d steps that a plan may have (plan.max_steps); raise it, or require fewer", p.maxSteps)
		}
	}
	if p.maxRevisions < 0 {
		fs.Addf("plan.max_revisions", "plan", "max_revisions is %d; it must be 0 or more", p.maxRevisions)
	}
	return p, fs.Err()
}

// Traits implements [team.Scheduler]. Repetitions are bounded by the plan and the number of revisions.
func (*Planned) Traits() team.Traits {
	return team.Traits{DetectsCycles: true, Entry: team.Entry{Model: true}}
}

// Handles implements [team.Scheduler]. Next decides what a failure means: it may lead to a revision.
func (*Planned) Handles(st *team.StepState) bool { return !st.BeyondLimit() }

// Next implements [team.Scheduler].
func (p *Planned) Next(s *team.State) (team.Decision, error) {
	if err := team.Staffed(s); err != nil {
		return team.Decision{}, err
	}
	at := lastOwn(s)
	if at < 0 {
		return turn(planTurn, "the message is new", ""), nil
	}
	st := s.Steps[at]
	switch {
	case at < len(s.Steps)-1:
		return p.run(s)
	case !st.Done:
		return team.Decision{}, nil
	case st.Step.GetKind() == teamv1.Step_KIND_HUMAN:
		return p.afterQuestion(s, st)
	case st.Err != nil:
		return team.Decision{}, st.Err
	case st.Step.GetName() == answerTurn:
		return answered(s, st)
	}
	return p.afterPlan(s)
}

// lastOwn returns the index of the last step that is no step of a plan: a turn of the leader, or the
// question about a plan. It returns -1 if there is none.
func lastOwn(s *team.State) int {
	for i, st := range slices.Backward(s.Steps) {
		if !st.ByMember() {
			return i
		}
	}
	return -1
}

// turn returns the decision to ask the leader. text is what it is told besides its prompt.
func turn(name, reason, text string) team.Decision {
	step := &teamv1.Step{Kind: teamv1.Step_KIND_MODEL, Name: name}
	if text != "" {
		step.Ask = &teamv1.Ask{Question: text}
	}
	return team.Decision{Steps: []*teamv1.Step{step}, Reason: reason}
}

// planTurns returns the last turns of the leader that were about one plan: the request, and if the plan
// was faulty the second request.
func planTurns(s *team.State) []*team.StepState {
	for i, st := range slices.Backward(s.Steps) {
		if name := st.Step.GetName(); !st.ByMember() && (name == planTurn || name == reviseTurn) {
			return s.Steps[i:]
		}
	}
	return nil
}

// afterPlan returns the decision after the leader has planned. A faulty plan is returned to it once.
func (p *Planned) afterPlan(s *team.State) (team.Decision, error) {
	turns := planTurns(s)
	rules, err := p.rules(s)
	if err != nil {
		return team.Decision{}, err
	}
	made, err := readTurn(rules, turns[len(turns)-1].Turn)
	switch {
	case err != nil && len(turns) < planAttempts:
		return turn(correctTurn, "the plan is faulty, and the leader is asked once more: "+agent.Quote(err.Error()), ""), nil
	case err != nil:
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError,
			"team %q: the leader made no valid plan in %d attempts: %s; say in its instructions how to plan, or give it another model", s.Team.ID, len(turns), agent.Quote(err.Error()))
	case p.approve != nil:
		return p.ask(s, rules, made), nil
	}
	reason := "the leader has planned"
	if s.Plan != nil {
		reason = "the leader has planned the rest"
	}
	return p.begin(s, made, reason)
}

// readTurn parses the plan of a turn: a call of the tool, or a JSON object as text.
func readTurn(rules *teamv1.PlanRules, t *teamv1.Turn) (*plan, error) {
	var found []*teamv1.ToolCall
	for _, call := range t.GetToolCalls() {
		if call.GetName() == planTool {
			found = append(found, call)
		}
	}
	switch len(found) {
	case 0:
	case 1:
		return readPlan(rules, found[0].GetArguments())
	default:
		return nil, fmt.Errorf("%s was called %d times; call %s once, with all steps", planTool, len(found), planTool)
	}
	return readPlan(rules, cmp.Or(agent.JSONIn(t.GetText()), t.GetText()))
}

// rules returns the rules of the next plan.
func (p *Planned) rules(s *team.State) (*teamv1.PlanRules, error) {
	r := &teamv1.PlanRules{MaxSteps: int32(p.maxSteps)} //nolint:gosec // at most the limit of a run
	for _, m := range s.Enabled() {
		id := team.MemberID(m)
		r.Members = append(r.Members, id)
		if s.Owes(id) {
			r.Required = append(r.Required, id)
		}
	}
	if s.Plan == nil {
		return r, nil
	}
	v, err := p.view(s)
	if err != nil {
		return nil, err
	}
	var finished planSteps
	for i, step := range stepsOf(s.Plan).Steps {
		if v.status[i] == done || v.status[i] == skipped {
			finished.Steps = append(finished.Steps, step)
		}
	}
	if len(finished.Steps) > 0 {
		r.Finished = finished.record()
	}
	return r, nil
}

// view returns the view of the recorded plan.
func (p *Planned) view(s *team.State) (*view, error) {
	flow, err := p.flows.of(s.Plan)
	if err != nil {
		return nil, fmt.Errorf("the recorded plan: %w", err)
	}
	return flow.newView(s, ofPlan(s))
}

// ofPlan returns the steps of members that belong to the current plan: those after the last turn of
// the leader and, of earlier plans, those that did not fail.
func ofPlan(s *team.State) []*team.StepState {
	at := lastOwn(s)
	var steps []*team.StepState
	for i, st := range s.Steps {
		if st.ByMember() && (i > at || hasFinished(st)) {
			steps = append(steps, st)
		}
	}
	return steps
}

// hasFinished reports whether a step has ended and does not have to be planned again.
func hasFinished(st *team.StepState) bool {
	switch st.Outcome {
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY:
		return st.Done
	case teamv1.Outcome_OUTCOME_SKIPPED:
		return st.Step.GetRefusal().GetError().GetReason() == "" // its condition was not true
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT, teamv1.Outcome_OUTCOME_REJECTED, teamv1.Outcome_OUTCOME_CANCELED,
		teamv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return false
}

// ask returns the question whether a plan is approved.
func (p *Planned) ask(s *team.State, rules *teamv1.PlanRules, made *plan) team.Decision {
	text := made.json()
	lines, whole := made.lines()
	var b strings.Builder
	fmt.Fprintf(&b, "The team %q wants to run this plan:\n%s", s.Path, lines)
	if !whole {
		fmt.Fprintf(&b, "What ends with … is cut. The approval of this question has the whole plan: %d bytes of JSON, SHA-256 %s\n", len(text), agent.HashOf(text))
	}
	if finished := stepsOf(rules.GetFinished()); len(finished.Steps) > 0 {
		fmt.Fprintf(&b, "These steps have finished and stay as they are: %s\n", finished.String())
	}
	b.WriteString(`Answer "approve", "reject: REASON", or "edit: " and all steps as changed, as JSON: ` + planForm)
	step := &teamv1.Step{Kind: teamv1.Step_KIND_HUMAN, Name: approval, Ask: &teamv1.Ask{
		Question: b.String(), Options: []string{agent.WordApprove, agent.WordReject}, Roles: p.approve.Roles,
		Approval: &teamv1.ApprovalRequest{By: s.Path, Arguments: text, Hash: agent.HashOf(text), Plan: rules},
	}}
	if p.approve.Expires > 0 {
		step.Timeout = durationpb.New(p.approve.Expires)
	}
	return team.Decision{Steps: []*teamv1.Step{step}, Reason: "the plan needs approval: " + made.String()}
}

// afterQuestion returns the decision after people have decided about a plan, or have not in time.
func (p *Planned) afterQuestion(s *team.State, st *team.StepState) (team.Decision, error) {
	request := st.Step.GetAsk().GetApproval()
	why := "a person rejected it"
	switch d := st.Approval.GetDecision(); {
	case st.Outcome == teamv1.Outcome_OUTCOME_TIMED_OUT:
		return p.rejected(s, "it was not approved in time")
	case st.Outcome == teamv1.Outcome_OUTCOME_CANCELED:
		return p.rejected(s, "the question about it was canceled")
	case st.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED:
		return p.rejected(s, "people could not be asked about it")
	case d == teamv1.Approval_DECISION_APPROVE || d == teamv1.Approval_DECISION_APPROVE_ALL:
		made, err := readPlan(request.GetPlan(), cmp.Or(st.Approval.GetArguments(), request.GetArguments()))
		if err != nil { // the server that took the answer did not check it
			return team.Decision{}, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "team %q: the plan that was approved is faulty: %s", s.Team.ID, agent.Quote(err.Error()))
		}
		reason := "a person approved the plan"
		if st.Approval.GetArguments() != "" {
			reason = "a person changed the plan"
		}
		return p.begin(s, made, reason)
	case st.Approval.GetReason() != "":
		why += ": " + st.Approval.GetReason()
	}
	if p.revisions(s) == 0 {
		return p.rejected(s, why)
	}
	return turn(reviseTurn, "the plan is revised: "+agent.Quote(why), "The plan did not begin, because "+why+". Plan again."), nil
}

// rejected returns the decision that ends a run whose plan was not approved. The results that the run
// has are kept as an artifact.
func (p *Planned) rejected(s *team.State, why string) (team.Decision, error) {
	err := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonApprovalRejected,
		"the plan of team %q did not begin, because %s; send the message again, with what the plan has to observe", s.Team.ID, agent.Quote(why))
	var results []*team.StepState
	for _, st := range ofPlan(s) {
		if st.Message != nil {
			results = append(results, st)
		}
	}
	if len(results) == 0 {
		return team.Decision{}, err
	}
	return team.Decision{Reply: team.Joined(results), Joins: team.JoinedIDs(results), Failure: err, Reason: "the plan is not approved: " + agent.Quote(why)}, nil
}

// revisions returns how often the leader may still revise the plan.
func (p *Planned) revisions(s *team.State) int {
	left := p.maxRevisions
	for _, st := range s.All() {
		if !st.ByMember() && st.Step.GetName() == reviseTurn {
			left--
		}
	}
	return max(left, 0)
}

// begin returns the decision with which a plan begins, and that records it. If no step is left to run,
// the leader writes the answer.
func (*Planned) begin(s *team.State, made *plan, reason string) (team.Decision, error) {
	v, err := made.flow.newView(s, ofPlan(s))
	if err != nil {
		return team.Decision{}, err
	}
	d, err := v.next()
	if err != nil {
		return team.Decision{}, err
	}
	next := d.decision()
	if len(next.Steps) == 0 {
		next = turn(answerTurn, "", "")
	}
	next.Plan, next.Reason = made.all.record(), reason+": "+made.String()
	return next, nil
}

// run returns the next decision while the plan runs.
func (p *Planned) run(s *team.State) (team.Decision, error) {
	v, err := p.view(s)
	if err != nil {
		return team.Decision{}, err
	}
	failure := v.failure()
	if failure != nil && p.revisions(s) > 0 {
		if len(s.Open()) > 0 {
			return hold(s, failure), nil
		}
		name, text := failure.Step.GetName(), agent.Quote(failure.Failure().Message)
		return turn(reviseTurn, "the plan is revised: step "+name+" failed: "+text,
			fmt.Sprintf("The plan cannot go on, because step %s failed, with the error %q. Plan the rest again.", name, text)), nil
	}
	if failure != nil && !s.Team.ReportErrors {
		return team.Decision{}, failure.Failure()
	}
	d, err := v.next()
	switch {
	case err != nil:
		return team.Decision{}, err
	case len(d.Steps) > 0:
		return d.decision(), nil
	case !v.finished():
		return team.Decision{}, nil // wait
	case failure != nil:
		if _, err := v.answer(); err != nil { // there is no result to answer from
			return team.Decision{}, err
		}
	}
	return turn(answerTurn, "every step has ended", ""), nil
}

// hold returns the decision after a failure while steps are open. Those that run may end. Those that
// have not begun, because they wait for one of the s.MaxParallel places or for approval, are canceled,
// so that they are planned again.
func hold(s *team.State, failure *team.StepState) team.Decision {
	var d team.Decision
	places := s.MaxParallel
	for _, st := range s.Steps {
		if !st.ByMember() || st.Done && st != failure {
			continue
		}
		asks := st.Parked() // takes no place
		if !asks {
			places-- // the failed step had one, too
		}
		if (asks || places < 0) && st.Began.IsZero() && !st.Done && !st.Dropped && st.Step.GetRefusal() == nil {
			d.Cancel = append(d.Cancel, st.Step.GetId())
		}
	}
	if len(d.Cancel) > 0 {
		d.Reason = fmt.Sprintf("step %s failed: the steps that have not begun are planned again", failure.Step.GetName())
	}
	return d
}

// failure returns the first step that failed itself; nil if there is none.
func (v *view) failure() *team.StepState {
	for i, st := range v.last {
		if v.status[i] == failed && st.Failure() != nil {
			return st
		}
	}
	return nil
}

// answered returns the decision after the leader has written the answer.
func answered(s *team.State, st *team.StepState) (team.Decision, error) {
	switch {
	case st.ReceivedBefore < len(s.Received):
		return turn(answerTurn, "the user has said more", ""), nil
	case !s.MustAnswer() || !prompt.Blank(st.Message):
	case st.Step.GetAsk().GetQuestion() == "":
		return turn(answerTurn, "the answer is empty: the leader is asked once more", prompt.WasEmpty), nil
	default:
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
			"team %q: its leader wrote no answer from the results of the steps; say in its instructions what to write", s.Team.ID)
	}
	return team.Decision{Reply: st.Message, Reason: "the leader answered"}, nil
}
