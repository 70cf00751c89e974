package monitor

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// figures are the counters and sums of one run or of several. They are computed from the
// projected journal; those of ended runs are cached.
type figures struct {
	runs, tasks counts
	spent       *teamv1.Spent
	took        []time.Duration // durations of ended runs
	members     map[string]*part
	lead        part // the model turns and tool calls of the team itself
}

// part holds the figures of one member.
type part struct {
	tasks counts
	took  []time.Duration // durations of the steps that succeeded
	spent *teamv1.Spent
}

// counts are the fields of teamv1.TaskCounts, without the total. Active includes waiting.
type counts struct{ pending, active, waiting, done, failed, canceled int64 }

func (c *counts) add(o counts) {
	c.pending, c.active, c.waiting = c.pending+o.pending, c.active+o.active, c.waiting+o.waiting
	c.done, c.failed, c.canceled = c.done+o.done, c.failed+o.failed, c.canceled+o.canceled
}

func (c counts) proto() *teamv1.TaskCounts {
	return &teamv1.TaskCounts{
		Total: c.pending + c.active + c.done + c.failed + c.canceled, Pending: c.pending, Active: c.active, Waiting: c.waiting,
		Done: c.done, Failed: c.failed, Canceled: c.canceled,
	}
}

// count counts a step by its state.
func (c *counts) count(n *journal.Node) {
	switch n.State {
	case journal.Pending:
		c.pending++
	case journal.Waiting:
		c.waiting++
		c.active++
	case journal.Running, journal.Retrying:
		c.active++
	case journal.Ended:
		c.countEnd(n.Outcome)
	}
}

func (c *counts) countEnd(o teamv1.Outcome) {
	switch o {
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_UNSPECIFIED:
		c.done++
	case teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_SKIPPED:
		c.canceled++
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT, teamv1.Outcome_OUTCOME_REJECTED:
		c.failed++
	}
}

// countRun counts a run by the state of its task.
func (c *counts) countRun(s a2av1.TaskState) {
	switch s {
	case a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_UNSPECIFIED:
		c.pending++
	case a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, a2av1.TaskState_TASK_STATE_AUTH_REQUIRED:
		c.waiting++
		c.active++
	case a2av1.TaskState_TASK_STATE_WORKING:
		c.active++
	case a2av1.TaskState_TASK_STATE_COMPLETED:
		c.done++
	case a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_REJECTED:
		c.failed++
	case a2av1.TaskState_TASK_STATE_CANCELED:
		c.canceled++
	}
}

// figures computes the figures of a run.
func (r *run) figures() *figures {
	f := &figures{members: map[string]*part{}}
	for _, p := range r.parts {
		f.runs.countRun(r.taskState(p))
		f.spent = agent.AddSpent(f.spent, p.Spent())
		if !p.Open() {
			f.took = append(f.took, p.Ended.Sub(p.Since))
		}
		f.below(p)
		for _, n := range ownSteps(p) {
			f.count(n)
		}
	}
	return f
}

// ownSteps returns the steps that the agent of a node has decided on, in all rounds if the results of the
// node were judged.
func ownSteps(n *journal.Node) []*journal.Node {
	var list []*journal.Node
	for _, child := range n.Steps {
		if child.Step.GetKind() == teamv1.Step_KIND_ROUND {
			list = append(list, child.Steps...)
		} else {
			list = append(list, child)
		}
	}
	return list
}

// below counts the delegated steps below a step.
func (f *figures) below(top *journal.Node) {
	for _, n := range top.Steps {
		if n.Delegated() {
			f.tasks.count(n)
		}
		f.below(n)
	}
}

// count counts a step that the team itself decided on.
func (f *figures) count(n *journal.Node) {
	p, member := &f.lead, n.Step.GetMember()
	if n.Delegated() {
		if p = f.members[member]; p == nil {
			p = &part{}
			f.members[member] = p
		}
		p.tasks.count(n)
	}
	p.spent = agent.AddSpent(p.spent, n.Spent())
	good := n.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED || n.Outcome == teamv1.Outcome_OUTCOME_EMPTY
	if !n.Open() && good && (n.Delegated() || n.Step.GetKind() == teamv1.Step_KIND_MODEL) {
		p.took = append(p.took, took(n))
	}
}

// add adds the figures of o to f.
func (f *figures) add(o *figures) {
	f.runs.add(o.runs)
	f.tasks.add(o.tasks)
	f.spent = agent.AddSpent(f.spent, o.spent)
	f.took = append(f.took, o.took...)
	f.lead.add(&o.lead)
	for id, p := range o.members {
		if f.members == nil {
			f.members = map[string]*part{}
		}
		if f.members[id] == nil {
			f.members[id] = &part{}
		}
		f.members[id].add(p)
	}
}

func (p *part) add(o *part) {
	p.tasks.add(o.tasks)
	p.took = append(p.took, o.took...)
	p.spent = agent.AddSpent(p.spent, o.spent)
}

// copy returns a deep copy of f.
func (f *figures) copy() *figures {
	c := &figures{runs: f.runs, tasks: f.tasks, spent: f.spent, took: slices.Clone(f.took), lead: f.lead.copy(), members: maps.Clone(f.members)}
	for id, p := range c.members {
		own := p.copy()
		c.members[id] = &own
	}
	return c
}

func (p *part) copy() part { return part{tasks: p.tasks, took: slices.Clone(p.took), spent: p.spent} }

// quantile returns the smallest measured duration that at least of100 percent of took do
// not exceed; nil if took is empty. It sorts took.
func quantile(took []time.Duration, of100 int) *durationpb.Duration {
	if len(took) == 0 {
		return nil
	}
	slices.Sort(took)
	return durationpb.New(took[(len(took)*of100+99)/100-1])
}

// spentOr returns s, or an empty message if s is nil.
func spentOr(s *teamv1.Spent) *teamv1.Spent {
	if s == nil {
		return &teamv1.Spent{}
	}
	return s
}
