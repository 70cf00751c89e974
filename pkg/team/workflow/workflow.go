// Package workflow has the scheduler of fixed steps.
package workflow

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Config is what a Workflow is made of.
type Config struct {
	// Steps in the order of the file: the order in which results are joined.
	Steps []Step
}

// Step is one step: work of a member, a question to people, or a group
// of steps that run at the same time.
type Step struct {
	// ID of the step: letters, digits, "_" and "-". Optional for a group; in
	// After it then stands for all steps of the group.
	ID string
	// Member that works.
	Member string
	// Task is an [expr.Template] of what the member is given; empty: the results of
	// After, joined, and without those the run's input.
	Task string
	// After lists the steps that it follows, by ID. nil means the After of its group;
	// outside of a group the step starts with the run, wherever it is in the list. (In a
	// file a step without after follows the steps above it.)
	After []string
	// Join says how many of them it waits for. Those that were skipped do not count.
	Join Join
	// Quorum is how many with JoinQuorum.
	Quorum int
	// When is a condition in CEL (see [expr.Expr]), asked once After has ended; false
	// skips the step. Empty is true.
	When string
	// Repeat runs the step again until its result is good.
	Repeat *Repeat
	// Parallel are the steps of a group. Those without After use the group's.
	Parallel []Step
	// Human makes the step a question to people; their answer is its result.
	Human *Human
	// Timeout of the step with its retries, or how long its question stays open; 0
	// is the member's, for a question 168 h.
	Timeout time.Duration
	// Retry says how failures of the step are repeated; unset fields are the member's.
	Retry *teamv1.Retry
}

// Join says how many of the steps before have to succeed.
type Join string

// The joins; empty is JoinAll.
const (
	JoinAll    Join = "ALL"
	JoinAny    Join = "ANY"
	JoinQuorum Join = "QUORUM"
)

// Repeat runs a step until a condition is true. From its second round on the
// step also gets its own last result.
type Repeat struct {
	// Until is a condition in CEL, asked after each round. Required.
	Until string
	// Max rounds; 0 is 3. The step fails with MAX_ROUNDS_EXCEEDED when Until is
	// still not true then.
	Max int
}

// Human is a question to people.
type Human struct {
	// Question is an [expr.Template].
	Question string
	// Options to choose from; none is free text.
	Options []string
	// Roles that may answer; none is the task's owner.
	Roles []string
}

// defaultRounds of a repeat.
const defaultRounds = 3

// Workflow is the scheduler of fixed steps: sequential, parallel, and any order
// between. A step starts as soon as those before it have
// ended, not in step with unrelated ones. A step whose `when` is not true is
// skipped, and so is, in a team that goes on after errors, one whose steps
// before failed. A step before which everything was skipped still runs. Steps
// that a JoinAny or JoinQuorum went on without are canceled, or skipped where
// they have not begun, as soon as nothing that is still to come names them.
//
// The run's answer is the result of the last step that ran and asked no people:
// of the last wave, counted by the longest way from the start; several in it
// are joined. Safe for concurrent use.
type Workflow struct {
	team.Base
	nodes []*node
	index map[string]int
	lang  *expr.Language

	backwards []int // places of the nodes, those of later waves first
}

var _ team.Scheduler = (*Workflow)(nil)

// Next implements [team.Scheduler].
func (w *Workflow) Next(s *team.State) (team.Decision, error) {
	if w.hasMembers() {
		if err := team.Staffed(s); err != nil {
			return team.Decision{}, err
		}
	}
	v, err := w.look(s)
	if err != nil {
		return team.Decision{}, err
	}
	var d decided
	v.judge()
	for i, n := range w.nodes {
		if err := v.advance(&d, i, n); err != nil {
			return team.Decision{}, err
		}
	}
	switch {
	case len(d.Steps)+len(d.Cancel) > 0:
		return d.decision(), nil
	case v.finished():
		return v.answer()
	}
	return team.Decision{}, nil // wait
}

func (w *Workflow) hasMembers() bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.Human == nil })
}

// advance decides on one step: run it, run it again, skip it, or nothing yet.
func (v *view) advance(d *decided, i int, n *node) error {
	switch v.status[i] {
	case again:
		if v.needed[i] {
			d.add(v.again(i, n), n.ID+" again: until is not true yet", nil)
		}
	case running:
		if st := v.last[i]; !v.needed[i] && !st.Dropped && st.Step.GetRefusal() == nil {
			d.drop(v.last[i], n.ID+" canceled: the steps after it went on without it")
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

// begin runs a step whose time has come, or skips it.
func (v *view) begin(d *decided, n *node) error {
	reason := n.ID
	if len(n.After) > 0 {
		reason += " after " + strings.Join(n.After, ", ")
	}
	if n.when == nil {
		d.add(v.start(n, v.input(n)), reason, nil)
		return nil
	}
	matched, values, err := v.eval(n.when, n, false)
	if err != nil {
		return agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "step %q: when: %s", n.ID, err).Because(err)
	}
	if matched {
		d.add(v.start(n, v.input(n)), reason+": "+n.When, values)
		return nil
	}
	d.add(skip(n, "", "when is not true: "+agent.Quote(n.When)), n.ID+" skipped, not true: "+n.When, values)
	return nil
}

// joined reports whether the steps before have ended as the join wants it, or
// can no longer do so.
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

// start returns the step as the loop runs it.
func (v *view) start(n *node, input *a2av1.Message) *teamv1.Step {
	step := n.step()
	if n.Human != nil {
		step.Ask = &teamv1.Ask{
			Question: n.question.Text(v.facts.Given(v.text)), Options: n.Human.Options, Roles: n.Human.Roles,
		}
		return step
	}
	step.Input = &teamv1.Input{Message: input}
	return step
}

// again returns the next round of a repeated step: its input with its own last result.
func (v *view) again(i int, n *node) *teamv1.Step {
	input := v.input(n)
	var j prompt.Joiner
	j.Add(input.GetParts())
	j.Section("Your last result", v.last[i].Content())
	m := j.Message()
	m.Role = a2av1.Role_ROLE_USER
	return v.start(n, m)
}

// input is what a step is given: its task, else what the steps before answered,
// else the run's input. The messages are those of the state, so that the record
// refers to them.
func (v *view) input(n *node) *a2av1.Message {
	if n.task != nil {
		return n.task.Message(v.facts.Given(v.text))
	}
	if before := v.before(n); len(before) > 0 {
		return team.Joined(before)
	}
	return v.state.Input
}

// before returns the results that a step without a task is given: those of the
// steps right before it. Where all of these were skipped, what they would have
// been given.
func (v *view) before(n *node) []*team.StepState {
	take := map[int]bool{}
	v.collect(n, take)
	var results []*team.StepState
	for i := range v.last {
		if take[i] {
			results = append(results, v.last[i])
		}
	}
	return results
}

func (v *view) collect(n *node, take map[int]bool) {
	passed := true
	for _, i := range n.after {
		if v.status[i] == done {
			take[i] = true
		}
		passed = passed && v.status[i] == skipped
	}
	if !passed {
		return
	}
	for _, i := range n.after {
		v.collect(v.nodes[i], take)
	}
}

// skip returns a step that is not run.
func skip(n *node, reason, message string) *teamv1.Step {
	step := n.step()
	step.Refusal = &teamv1.Refusal{
		Outcome: teamv1.Outcome_OUTCOME_SKIPPED, Error: &teamv1.Error{Reason: reason, Message: message},
	}
	return step
}

// decided gathers what one decision does about several steps.
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

// drop cancels a step that runs.
func (d *decided) drop(st *team.StepState, reason string) {
	d.Cancel = append(d.Cancel, st.Step.GetId())
	d.reasons = append(d.reasons, reason)
}

func (d *decided) decision() team.Decision {
	d.Reason = strings.Join(d.reasons, "; ")
	return d.Decision
}
