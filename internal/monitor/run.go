package monitor

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxText is the maximum length in characters of the texts of tasks and steps in snapshots.
const maxText = 200

// run is the projected journal of a root task: which agent works on what, since when, and at
// what cost. It is not safe for concurrent use.
type run struct {
	*journal.View
	of      string                   // the agent whose work is of interest; "" for the whole run
	ids     map[called]string        // agent IDs of members, as their teams observed them
	texts   map[*journal.Node]string // the first maxText characters of the input or question of each step
	parts   []*journal.Node          // the steps that the agent works on: the root step, or its steps as a member of other teams; none contains another
	changed bool                     // a visible change occurred since the last call of takeChanged
}

// called identifies a member by the scope of its team and its member ID.
type called struct{ scope, member string }

func newRun(root, of string, d journal.Detail) *run {
	return &run{View: journal.New(root, d), of: of, ids: map[called]string{}, texts: map[*journal.Node]string{}}
}

// apply folds the next event.
func (r *run) apply(ev *teamv1.Event) {
	began := r.Accepted != nil
	n := r.Apply(ev).Node
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Delta, *teamv1.Event_Artifact, *teamv1.Event_Progress, *teamv1.Event_Claimed:
		return
	case *teamv1.Event_Accepted:
		if began {
			return
		}
		r.texts[r.Top] = clip(agent.Text(k.Accepted.GetMessage()))
		if r.of == "" || r.of == r.Accepted.GetAgent() {
			r.parts = []*journal.Node{r.Top}
		}
	case *teamv1.Event_Decided:
		if n != nil {
			r.decided(n, k.Decided)
		}
	case *teamv1.Event_Started:
		if n != nil && n.Begun.Equal(r.Now) && n.Delegated() && !n.Step.GetDetached() && r.by(n) == r.of && r.partOf(n.Scope) == nil {
			r.parts = append(r.parts, n)
		}
	case *teamv1.Event_Observed:
		r.observe(ev.GetScope(), k.Observed)
	}
	r.changed = r.changed || n != nil
}

// decided records the inputs of the steps of a decision.
func (r *run) decided(in *journal.Node, d *teamv1.Decided) {
	steps := in.Steps[len(in.Steps)-len(d.GetSteps()):]
	for i, s := range d.GetSteps() {
		text := cmp.Or(clip(agent.Text(s.GetInput().GetMessage())), clip(s.GetAsk().GetQuestion()))
		if text != "" {
			r.texts[steps[i]] = text
		}
	}
}

// observe records the agent IDs of the members of a team.
func (r *run) observe(scope string, o *teamv1.Observed) {
	for _, m := range o.GetMembers() {
		if id := m.GetInfo().GetId(); id != "" {
			r.ids[called{scope, m.GetId()}] = id
		}
	}
}

// by returns the ID of the agent that works on a step. It is the member ID, unless the team
// has recorded a different agent ID for that member.
func (r *run) by(n *journal.Node) string {
	if n.Parent == nil {
		return r.Accepted.GetAgent()
	}
	return cmp.Or(r.ids[called{n.Parent.Scope, n.Step.GetMember()}], n.Step.GetMember())
}

// partOf returns the part that contains a scope, nil if no part does.
func (r *run) partOf(scope string) *journal.Node {
	for _, p := range r.parts {
		if agent.Within(scope, p.Scope) {
			return p
		}
	}
	return nil
}

// open returns the open questions of a scope and of the scopes below.
func (r *run) open(scope string) (list []*teamv1.OpenQuestion) {
	for _, q := range r.Questions(scope) {
		list = append(list, &teamv1.OpenQuestion{
			TaskId: r.Root, AgentId: r.Accepted.GetAgent(), ContextId: r.Accepted.GetMessage().GetContextId(), Since: q.Event.GetTime(),
			Question: project.QuestionOf(r.Root, q.Event),
		})
	}
	return list
}

// taskState returns the state of the task of a step.
func (r *run) taskState(n *journal.Node) a2av1.TaskState {
	top := n == r.Top
	switch {
	case !n.Open():
		return taskstate.Of(n.Outcome)
	case top && r.Asking, !top && n.State == journal.Waiting && !n.Held():
		return project.WaitingState(r.Questions(n.Scope))
	case n.State == journal.Pending:
		return a2av1.TaskState_TASK_STATE_SUBMITTED
	}
	return a2av1.TaskState_TASK_STATE_WORKING
}

// stepState converts the state of a step to its wire form.
func stepState(s journal.State) teamv1.TraceStep_State {
	switch s {
	case journal.Running:
		return teamv1.TraceStep_STATE_RUNNING
	case journal.Retrying:
		return teamv1.TraceStep_STATE_RETRYING
	case journal.Waiting:
		return teamv1.TraceStep_STATE_WAITING
	case journal.Ended:
		return teamv1.TraceStep_STATE_ENDED
	case journal.Pending:
	}
	return teamv1.TraceStep_STATE_PENDING
}

// over reports whether the root task has ended.
func (r *run) over() bool { return !r.Top.Open() }

// takeChanged reports whether something visible has changed since the previous call, and
// resets that.
func (r *run) takeChanged() bool {
	was := r.changed
	r.changed = false
	return was
}

// took returns the duration of an ended step, from its first attempt; 0 if it was never
// started.
func took(n *journal.Node) time.Duration {
	if n.Begun.IsZero() {
		return 0
	}
	return n.Ended.Sub(n.Begun)
}

// clip returns the first maxText characters of a text.
func clip(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxText {
			return text[:i] + "…"
		}
	}
	return text
}

// stamp converts a time to its wire form, nil for the zero time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
