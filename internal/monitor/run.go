package monitor

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxText is how many characters of a text are shown of what was asked.
const maxText = 200

// run folds the events of a root into how its work stands: who works on what,
// since when, and what it cost. One goroutine at a time.
type run struct {
	root, agent, contextID string
	of                     string            // the agent whose parts of it are looked at; empty: all of it
	revisions              map[string]string // of definitions, by agent
	ids                    map[called]string // of the agents that members are, as their teams have observed them

	state     a2av1.TaskState
	top       *step
	parts     []*step          // top, or what its agent began as a member of others; none is within another
	steps     map[string]*step // by scope
	questions []*teamv1.OpenQuestion
	seq       int64
	at        time.Time // of the last event
	changed   bool      // what is shown of it, since somebody looked
}

// called is what a team calls a member.
type called struct{ scope, member string }

// step is one piece of work. The root's is the task itself.
type step struct {
	scope, path, member, name, text string
	kind                            teamv1.Step_Kind
	detached                        bool // it is done in a task of its own
	cancel                          bool // that is under way

	parent *step
	steps  []*step

	state    teamv1.TraceStep_State
	heldFrom teamv1.TraceStep_State // state before it was held while the run is paused; unset: it is not held
	outcome  teamv1.Outcome
	asks     int // its own open questions
	decided  time.Time
	started  time.Time
	ended    time.Time
	at       *teamv1.Spent // at its end, including everything below it
	wasted   *teamv1.Spent // by failed attempts, until its end includes them
}

func newRun(root, of string) *run {
	return &run{root: root, of: of, steps: map[string]*step{}, ids: map[called]string{}}
}

// take folds the next event.
func (r *run) take(ev *teamv1.Event) {
	r.seq, r.at = ev.GetSeq(), ev.GetTime().AsTime()
	if a := ev.GetAccepted(); a != nil && r.top == nil {
		r.accept(ev, a)
		return
	}
	s := r.steps[ev.GetScope()]
	if s == nil {
		return
	}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Delta, *teamv1.Event_Artifact, *teamv1.Event_Progress, *teamv1.Event_Claimed:
		return
	case *teamv1.Event_Decided:
		r.decide(s, ev, k.Decided)
	case *teamv1.Event_Started:
		r.start(s)
	case *teamv1.Event_Observed:
		r.observe(s, k.Observed)
	case *teamv1.Event_Retried:
		s.state, s.wasted = teamv1.TraceStep_STATE_RETRYING, agent.AddSpent(s.wasted, k.Retried.GetSpent())
	case *teamv1.Event_Asked:
		r.ask(s, ev)
	case *teamv1.Event_Answered:
		r.close(func(q *teamv1.OpenQuestion) bool { return q.GetQuestion().GetQuestion() == k.Answered.GetQuestion() })
		r.resume(s)
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			r.closeBelow(s.scope)
			r.resume(s)
		}
	case *teamv1.Event_Waiting:
		if k.Waiting.GetPaused() {
			r.hold(s)
		} else {
			r.wait(s)
		}
	case *teamv1.Event_Commanded:
		r.commanded(s, k.Commanded)
	case *teamv1.Event_Ended:
		r.end(s, k.Ended)
	default:
	}
	r.changed = true
}

func (r *run) commanded(s *step, c *teamv1.Commanded) {
	switch cmd := c.GetCommand(); {
	case cmd == teamv1.Commanded_COMMAND_CANCEL:
		s.cancel = true
	case s != r.top:
	case cmd == teamv1.Commanded_COMMAND_STOP:
		s.cancel = true
	case cmd == teamv1.Commanded_COMMAND_RESUME:
		r.goOn()
		r.resume(s)
	}
}

// canceling reports whether a step, or what it works for, is being canceled.
func (s *step) canceling() bool {
	return s.cancel || s.parent != nil && s.parent.canceling()
}

func (r *run) accept(ev *teamv1.Event, a *teamv1.Accepted) {
	r.revisions = a.GetPins().GetRevisions()
	r.agent, r.contextID, r.state = a.GetAgent(), a.GetMessage().GetContextId(), a2av1.TaskState_TASK_STATE_SUBMITTED
	r.top = &step{path: a.GetAgent(), text: clip(agent.Text(a.GetMessage())), state: teamv1.TraceStep_STATE_PENDING, decided: r.at}
	r.steps[""] = r.top
	if r.of == "" || r.of == r.agent {
		r.parts = []*step{r.top}
	}
	r.changed = true
}

// observe notes who the members of a team are.
func (r *run) observe(s *step, o *teamv1.Observed) {
	for _, m := range o.GetMembers() {
		if id := m.GetInfo().GetId(); id != "" {
			r.ids[called{s.scope, m.GetId()}] = id
		}
	}
}

// by is the agent that works on a step: the id of the member is that, unless its team
// calls it otherwise.
func (r *run) by(s *step) string {
	if s.parent == nil {
		return r.agent
	}
	return cmp.Or(r.ids[called{s.parent.scope, s.member}], s.member)
}

// partOf is the part that a scope belongs to; nil: it belongs to none.
func (r *run) partOf(scope string) *step {
	for _, p := range r.parts {
		if agent.Within(scope, p.scope) {
			return p
		}
	}
	return nil
}

func (r *run) decide(s *step, ev *teamv1.Event, d *teamv1.Decided) {
	for _, st := range d.GetSteps() {
		child := &step{
			scope: agent.Scope(s.scope, st.GetId()), path: ev.GetAgent(), kind: st.GetKind(), member: st.GetMember(), name: st.GetName(),
			text: clip(agent.Text(st.GetInput().GetMessage())), parent: s, state: teamv1.TraceStep_STATE_PENDING, decided: r.at,
			detached: st.GetDetached(),
		}
		if st.GetMember() != "" {
			child.path += "/" + st.GetMember()
		}
		if child.text == "" {
			child.text = clip(st.GetAsk().GetQuestion())
		}
		s.steps = append(s.steps, child)
		r.steps[child.scope] = child
	}
}

func (r *run) start(s *step) {
	if s.started.IsZero() {
		s.started = r.at
		if s.given() && !s.detached && r.by(s) == r.of && r.partOf(s.scope) == nil {
			r.parts = append(r.parts, s)
		}
	}
	s.state, s.heldFrom = teamv1.TraceStep_STATE_RUNNING, teamv1.TraceStep_STATE_UNSPECIFIED
	if s == r.top && !asksFor(r.state) {
		r.state = a2av1.TaskState_TASK_STATE_WORKING
	}
}

func asksFor(s a2av1.TaskState) bool {
	return s == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED || s == a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
}

func (r *run) ask(s *step, ev *teamv1.Event) {
	s.asks++
	s.state = teamv1.TraceStep_STATE_WAITING
	r.questions = append(r.questions, &teamv1.OpenQuestion{
		TaskId: r.root, AgentId: r.agent, ContextId: r.contextID, Since: ev.GetTime(),
		Question: a2a.QuestionOf(r.root, ev),
	})
}

// close drops questions that are not open any more.
func (r *run) close(is func(*teamv1.OpenQuestion) bool) {
	r.questions = slices.DeleteFunc(r.questions, func(q *teamv1.OpenQuestion) bool {
		if !is(q) {
			return false
		}
		_, scope := agent.SplitTask(q.GetQuestion().GetDelegationId())
		if s := r.steps[scope]; s != nil {
			s.asks--
		}
		return true
	})
}

func (r *run) closeBelow(scope string) {
	r.close(func(q *teamv1.OpenQuestion) bool {
		_, asker := agent.SplitTask(q.GetQuestion().GetDelegationId())
		return agent.Within(asker, scope)
	})
}

// wait notes that nothing of a step can go on without people.
func (r *run) wait(s *step) {
	s.state = teamv1.TraceStep_STATE_WAITING
	if s != r.top {
		return
	}
	r.state = r.waits("")
}

// hold records that a step, and everything it has begun, does not run until the run is
// resumed.
func (r *run) hold(s *step) {
	for _, below := range r.steps {
		running := below.state == teamv1.TraceStep_STATE_RUNNING || below.state == teamv1.TraceStep_STATE_RETRYING
		if running && below != r.top && agent.Within(below.scope, s.scope) {
			below.heldFrom, below.state = below.state, teamv1.TraceStep_STATE_WAITING
		}
	}
}

// goOn ends hold after the run was resumed.
func (r *run) goOn() {
	for _, s := range r.steps {
		if s.state == teamv1.TraceStep_STATE_WAITING && s.heldFrom != teamv1.TraceStep_STATE_UNSPECIFIED {
			s.state = s.heldFrom
		}
		s.heldFrom = teamv1.TraceStep_STATE_UNSPECIFIED
	}
}

// waits is the state of a task that waits: input required, or auth required where
// nothing else is asked for.
func (r *run) waits(scope string) a2av1.TaskState {
	state := a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
	for _, q := range r.questions {
		if _, asker := agent.SplitTask(q.GetQuestion().GetDelegationId()); !agent.Within(asker, scope) {
			continue
		}
		if q.GetQuestion().GetKind() != teamv1.Asked_KIND_AUTH {
			return a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
		}
		state = a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
	}
	return state
}

// resume has a step go on, and what it works for.
func (r *run) resume(s *step) {
	if asksFor(r.state) {
		r.state = a2av1.TaskState_TASK_STATE_WORKING
	}
	for ; s != nil; s = s.parent {
		if s.state == teamv1.TraceStep_STATE_WAITING && s.asks == 0 && s.heldFrom == teamv1.TraceStep_STATE_UNSPECIFIED {
			s.state = teamv1.TraceStep_STATE_RUNNING
		}
	}
}

// end closes a step. What was decided in it and has no end of its own is not
// needed any more.
func (r *run) end(s *step, e *teamv1.Ended) {
	s.at, s.wasted = e.GetSpent(), nil
	r.shut(s, e.GetOutcome())
	r.closeBelow(s.scope)
	if s == r.top {
		r.state = endState(e.GetOutcome())
	}
}

func (r *run) shut(s *step, o teamv1.Outcome) {
	s.state, s.outcome, s.ended = teamv1.TraceStep_STATE_ENDED, o, r.at
	for _, child := range s.steps {
		if child.state != teamv1.TraceStep_STATE_ENDED {
			r.shut(child, teamv1.Outcome_OUTCOME_CANCELED)
		}
	}
}

func endState(o teamv1.Outcome) a2av1.TaskState {
	switch o {
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_UNSPECIFIED:
		return a2av1.TaskState_TASK_STATE_COMPLETED
	case teamv1.Outcome_OUTCOME_REJECTED:
		return a2av1.TaskState_TASK_STATE_REJECTED
	case teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_SKIPPED:
		return a2av1.TaskState_TASK_STATE_CANCELED
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT:
	}
	return a2av1.TaskState_TASK_STATE_FAILED
}

// over reports whether the root has ended.
func (r *run) over() bool { return r.top != nil && r.top.state == teamv1.TraceStep_STATE_ENDED }

// looked reports whether something has changed since the last look.
func (r *run) looked() bool {
	was := r.changed
	r.changed = false
	return was
}

// given reports whether a step is work that a member was given.
func (s *step) given() bool {
	return s.kind == teamv1.Step_KIND_DELEGATE || s.kind == teamv1.Step_KIND_TRANSFER || s.kind == teamv1.Step_KIND_STEP
}

func (s *step) open() bool { return s.state != teamv1.TraceStep_STATE_ENDED }

// spent is what a step cost with everything below it: what its end says, and
// before that what is on record of it so far.
func (s *step) spent() *teamv1.Spent {
	if !s.open() && s.at != nil {
		return s.at
	}
	sum := s.wasted
	for _, child := range s.steps {
		sum = agent.AddSpent(sum, child.spent())
	}
	return sum
}

// own is what a step cost itself.
func (s *step) own() *teamv1.Spent {
	own := s.spent()
	for _, child := range s.steps {
		own = less(own, child.spent())
	}
	return own
}

// less is a without b, which is a part of it.
func less(a, b *teamv1.Spent) *teamv1.Spent {
	if b == nil {
		return a
	}
	return &teamv1.Spent{
		InputTokens: a.GetInputTokens() - b.GetInputTokens(), OutputTokens: a.GetOutputTokens() - b.GetOutputTokens(),
		CostMicros: a.GetCostMicros() - b.GetCostMicros(), ModelCalls: a.GetModelCalls() - b.GetModelCalls(), ToolCalls: a.GetToolCalls() - b.GetToolCalls(),
	}
}

// took is how long a step that has ended was worked on.
func (s *step) took() time.Duration {
	if s.started.IsZero() {
		return 0
	}
	return s.ended.Sub(s.started)
}

// clip is the beginning of a text, on one line or more.
func clip(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxText {
			return text[:i] + "…"
		}
	}
	return text
}

// stamp is a time for the wire; unset where there is none.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
