// Package workflow has the scheduler of teams that run a fixed graph of steps.
package workflow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/facts"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Config is the configuration of a Workflow.
type Config struct {
	// Steps in the order of the configuration file. Results are joined in this order.
	Steps []Step
	// Inputs are the names of the team's inputs.
	Inputs []string
}

// Step is a step of a workflow: work of a member, a question to people, or a group of steps that
// run at the same time.
type Step struct {
	// ID of the step: letters, digits, "_" and "-". It is optional for a group. In After, the id of
	// a group stands for all its steps.
	ID string
	// Member is the id of the member that works.
	Member string
	// Task is an [expr.Template] for the member's input. If it is empty, the input is the joined
	// results of After, or the run's input if there are none.
	Task string
	// Results adds the results of After to the Task.
	Results bool
	// After lists the ids of the steps that must end first. nil means the After of the step's
	// group; outside of a group, such a step starts with the run. (In a configuration file a step
	// without after runs after the steps above it.)
	After []string
	// Join says how many steps of After have to succeed. Skipped ones do not count.
	Join Join
	// Quorum is the number of steps with JoinQuorum.
	Quorum int
	// When is a condition in CEL (see [expr.Expr]), evaluated once the steps of After have ended.
	// If it is false, the step is skipped. Empty means true.
	When string
	// Repeat runs the step again until a condition is true; nil runs it once.
	Repeat *Repeat
	// Parallel are the steps of a group. Those without After use that of the group.
	Parallel []Step
	// Human makes the step a question to people. Their answer is its result.
	Human *Human
	// Timeout of the step including its retries, or the time for which its question stays open. 0
	// means the member's timeout, or 168 h for a question.
	Timeout time.Duration
	// Retry is the retry policy of the step; unset fields are those of the member.
	Retry *teamv1.Retry
	// Required says that the result of the step is part of the answer, unless its When is not true:
	// a run that would end without it fails with REQUIRED_WORK_FAILED. A join does not cancel it.
	Required bool
	// Output is the name of the step's result, which later steps and their members read; empty means that it has none.
	// Several steps may have the same name: the latest result counts.
	Output string
}

// Join says how many of the steps before have to succeed.
type Join string

// The joins; empty is JoinAll.
const (
	JoinAll    Join = "ALL"
	JoinAny    Join = "ANY"
	JoinQuorum Join = "QUORUM"
)

// Repeat runs a step until a condition is true. From the second round on, the step's input includes
// its own last result.
type Repeat struct {
	// Until is a condition in CEL, evaluated after each round. Required.
	Until string
	// Max is the maximum number of rounds; 0 means 3. If Until is not true after the last one, the
	// step fails with MAX_ROUNDS_EXCEEDED.
	Max int
}

// Human is a question to people.
type Human struct {
	// Question is an [expr.Template].
	Question string
	// Options to choose from; empty means free text.
	Options []string
	// Roles whose holders may answer; empty means the owner of the task.
	Roles []string
}

// defaultRounds is the default of Repeat.Max.
const defaultRounds = 3

// Workflow is the scheduler of a fixed graph of steps. A step starts as soon as the steps before it
// have ended, independently of all others. A step whose When is not true is skipped. In a team with
// ReportErrors, a step is also skipped if the steps before it failed. A step whose predecessors
// were all skipped still runs. If a JoinAny or JoinQuorum continues without some steps, these are
// canceled, or skipped if they have not started, as soon as no later step needs their results.
// Required steps, and steps of required members, are not.
//
// The answer of the run is the result of the last member's step: the steps are grouped into waves
// by the longest path from the start, and the results of the last wave that has some are joined.
// Safe for concurrent use.
type Workflow struct {
	team.Base
	nodes []*node
	index map[string]int
	lang  *expr.Language

	backwards []int // places of the nodes, latest wave first
}

var _ team.Scheduler = (*Workflow)(nil)

// Next implements [team.Scheduler].
func (w *Workflow) Next(s *team.State) (team.Decision, error) {
	if w.hasMembers() {
		if err := team.Staffed(s); err != nil {
			return team.Decision{}, err
		}
	}
	v, err := w.newView(s, s.Steps)
	if err != nil {
		return team.Decision{}, err
	}
	d, err := v.next()
	switch {
	case err != nil:
		return team.Decision{}, err
	case len(d.Steps)+len(d.Cancel) > 0:
		return d.decision(), nil
	case v.finished():
		return v.answer()
	}
	return team.Decision{}, nil // wait
}

// next decides on all steps.
func (v *view) next() (d decided, err error) {
	v.markNeeded()
	for i, n := range v.nodes {
		if err := v.advance(&d, i, n); err != nil {
			return decided{}, err
		}
	}
	return d, nil
}

func (w *Workflow) hasMembers() bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.Human == nil })
}

// Traits implements [team.Scheduler]. The message of the run is given to the members of the first
// steps without a task, and of all steps whose task uses it, unless a condition decides whether they
// run.
func (w *Workflow) Traits() team.Traits {
	var t team.Traits
	for _, n := range w.nodes {
		given := n.task == nil && n.wave == 0 || n.task != nil && n.task.UsesInput()
		if given && n.Human == nil && n.when == nil {
			t.Entry.Members = append(t.Entry.Members, n.Member)
		}
	}
	return t
}

// advance decides on one step: to start, repeat or skip it, or nothing yet.
func (v *view) advance(d *decided, i int, n *node) error {
	switch v.status[i] {
	case again:
		if v.needed[i] {
			step, err := v.again(i, n)
			if err != nil {
				return err
			}
			d.add(step, n.ID+" again: until is not true yet", nil)
		}
	case running:
		if st := v.last[i]; !v.needed[i] && !st.Dropped && st.Step.GetRefusal() == nil {
			d.cancel(v.last[i], n.ID+" canceled: the steps after it went on without it")
		}
	case waiting:
		switch ready, blocked := v.joined(n); {
		case !v.needed[i]:
			d.add(skip(n, "", "the steps after it went on without it"), n.ID+" skipped: the steps after it went on without it", nil)
		case blocked:
			d.add(skip(n, agent.ReasonDelegationFailed, "a step before it failed"), n.ID+" skipped: a step before it failed", nil)
		case ready:
			return v.begin(d, n)
		}
	case done, skipped, failed:
	}
	return nil
}

// begin starts a step whose predecessors have ended, or skips it if its When is not true.
func (v *view) begin(d *decided, n *node) error {
	reason := n.ID
	if len(n.After) > 0 {
		reason += " after " + agent.Quote(strings.Join(n.After, ", "))
	}
	var values *structpb.Struct
	if n.when != nil {
		matched, seen, err := v.eval(n.when, n, false)
		switch {
		case err != nil:
			return facts.Failed(fmt.Sprintf("team %q: step %q: when", v.state.Team.ID, n.ID), err)
		case !matched:
			d.add(skip(n, "", "when is not true: "+agent.Quote(n.When)), n.ID+" skipped, not true: "+agent.Quote(n.When), seen)
			return nil
		}
		reason, values = reason+": "+agent.Quote(n.When), seen
	}
	step, err := v.first(n)
	if err != nil {
		return err
	}
	d.add(step, reason, values)
	return nil
}

// joined reports whether the predecessors of a step satisfy its join (ready), or can no longer do
// so (blocked).
func (v *view) joined(n *node) (ready, blocked bool) {
	var ok, open, bad int
	for _, i := range n.after {
		switch v.status[i] {
		case done:
			ok++
		case failed:
			bad++
		case waiting, running, again:
			open++
		case skipped:
		}
	}
	switch {
	case n.need > 0 && ok >= n.need:
		return true, false
	case open > 0:
		return false, false
	}
	return bad == 0, bad > 0
}

// first returns the first round of a step: a question, or its input for the member.
func (v *view) first(n *node) (*teamv1.Step, error) {
	if n.Human == nil {
		input, err := v.input(n)
		return v.start(n, input), err
	}
	question, err := n.question.Text(fmt.Sprintf("team %q: the question of step %q", v.state.Team.ID, n.ID), v.given(n))
	step := n.step()
	step.Ask = &teamv1.Ask{Question: question, Options: n.Human.Options, Roles: n.Human.Roles}
	return step, err
}

// start returns the next round of a member's step with an input.
func (v *view) start(n *node, input *a2av1.Message) *teamv1.Step {
	step := n.step()
	step.Input = &teamv1.Input{Message: input}
	return step
}

// again returns the next round of a repeated step. Its input includes its own last result.
func (v *view) again(i int, n *node) (*teamv1.Step, error) {
	input, err := v.input(n)
	var j prompt.Joiner
	j.Add(input.GetParts())
	j.Section("Your last result", v.last[i].Content())
	m := j.Message()
	m.Role = a2av1.Role_ROLE_USER
	return v.start(n, m), err
}

// input returns the input of a step: its task, with the results of the steps before if it has
// Results; or the joined results of the steps before; or the run's input. Messages are returned as
// they are in the state, so that the record can refer to them. The error is that of a task that would become too long.
func (v *view) input(n *node) (*a2av1.Message, error) {
	if n.task == nil {
		if before := v.before(n); len(before) > 0 {
			return team.Joined(before), nil
		}
		return v.state.Input, nil
	}
	m, err := n.task.Message(fmt.Sprintf("team %q: the task of step %q", v.state.Team.ID, n.ID), v.given(n))
	if err != nil || !n.Results {
		return m, err
	}
	var j prompt.Joiner
	j.Add(m.GetParts())
	for _, st := range v.before(n) {
		j.Section("Result of "+st.Step.GetName()+" ("+st.Step.GetMember()+")", st.Content())
	}
	m.Parts = j.Message().GetParts()
	return m, nil
}

// given returns the values for the templates of a step.
func (v *view) given(n *node) *expr.Given {
	v.facts.Visible = v.sees(n, n.Repeat != nil)
	return v.facts.Given(v.text)
}

// before returns the results that are the input of a step without a task: those of its direct
// predecessors or, if all of these were skipped, of their predecessors.
func (v *view) before(n *node) []*team.StepState {
	found := map[int]bool{}
	v.collect(n, found)
	var results []*team.StepState
	for i := range v.last {
		if found[i] {
			results = append(results, v.last[i])
		}
	}
	return results
}

// collect adds the places of those results to found.
func (v *view) collect(n *node, found map[int]bool) {
	passed := true
	for _, i := range n.after {
		if v.status[i] == done {
			found[i] = true
		}
		passed = passed && v.status[i] == skipped
	}
	if !passed {
		return
	}
	for _, i := range n.after {
		v.collect(v.nodes[i], found)
	}
}

// skip returns a step that ends as SKIPPED without running.
func skip(n *node, reason, message string) *teamv1.Step {
	step := n.step()
	step.Refusal = &teamv1.Refusal{
		Outcome: teamv1.Outcome_OUTCOME_SKIPPED, Error: &teamv1.Error{Reason: reason, Message: message},
	}
	return step
}

// decided collects what one decision does about several steps.
type decided struct {
	team.Decision
	reasons []string
}

func (d *decided) add(step *teamv1.Step, reason string, values *structpb.Struct) {
	d.Steps = append(d.Steps, step)
	d.reasons = append(d.reasons, reason)
	if values == nil {
		return
	}
	if d.Values == nil {
		d.Values = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	d.Values.Fields[step.GetName()] = structpb.NewStructValue(values)
}

// cancel cancels a running step.
func (d *decided) cancel(st *team.StepState, reason string) {
	d.Cancel = append(d.Cancel, st.Step.GetId())
	d.reasons = append(d.reasons, reason)
}

func (d *decided) decision() team.Decision {
	d.Reason = strings.Join(d.reasons, "; ")
	return d.Decision
}
