package monitor

import (
	"cmp"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// tracer folds the events of a root into a trace: how the work stands, and beside
// it what was said, and why. One goroutine at a time.
type tracer struct {
	*run
	told  map[string]*teamv1.TraceStep // by scope
	input map[string]*a2av1.Message    // of steps, by scope, as it was given
	texts map[int64]*a2av1.Message     // messages on record, by sequence
	teams map[string]bool              // scopes that give work to members
	open  map[string]asked             // questions without an answer, by id
}

type asked struct {
	scope string
	*teamv1.TraceQuestion
}

func newTracer(root string) *tracer {
	return &tracer{
		run: newRun(root, ""), told: map[string]*teamv1.TraceStep{}, input: map[string]*a2av1.Message{}, texts: map[int64]*a2av1.Message{},
		teams: map[string]bool{"": true}, open: map[string]asked{},
	}
}

// take folds the next event.
func (t *tracer) take(ev *teamv1.Event) {
	if m := agent.MessageOf(t.root, ev); m != nil {
		t.texts[ev.GetSeq()] = m
	}
	t.run.take(ev)
	scope := ev.GetScope()
	if a := ev.GetAccepted(); a != nil && t.told[""] == nil {
		t.told[""] = &teamv1.TraceStep{Id: t.root, Path: a.GetAgent(), Input: a.GetMessage(), Decided: ev.GetTime()}
		t.input[""] = a.GetMessage()
		return
	}
	s := t.told[scope]
	if s == nil {
		return
	}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		t.decided(s, ev, k.Decided)
	case *teamv1.Event_Started:
		t.started(s, ev, k.Started)
	case *teamv1.Event_Retried:
		if a := last(s); a != nil {
			a.Ended, a.Error, a.Spent = ev.GetTime(), k.Retried.GetError(), k.Retried.GetSpent()
		}
	case *teamv1.Event_Ended:
		t.ended(s, ev, a2a.Public(ev).GetEnded())
	case *teamv1.Event_Spawned:
		s.SpawnedTaskId = k.Spawned.GetTaskId()
	case *teamv1.Event_Bound:
		s.Bound = k.Bound
	case *teamv1.Event_Asked:
		q := &teamv1.TraceQuestion{
			Question: k.Asked.GetQuestion(), Kind: k.Asked.GetKind(), Message: k.Asked.GetMessage(), Roles: k.Asked.GetRoles(),
			Asked: ev.GetTime(), Expires: k.Asked.GetExpires(),
		}
		s.Questions = append(s.Questions, q)
		t.open[q.GetQuestion()] = asked{scope, q}
	case *teamv1.Event_Answered:
		t.answered(ev, k.Answered)
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			t.lapse(scope, ev)
		}
		s.Notes = append(s.Notes, ev)
	case *teamv1.Event_Received, *teamv1.Event_Commanded, *teamv1.Event_Checked, *teamv1.Event_Noted:
		s.Notes = append(s.Notes, ev)
	default: // what is said as it comes is in the task; the rest is in the state
	}
}

func last(s *teamv1.TraceStep) *teamv1.TraceAttempt {
	if n := len(s.GetAttempts()); n > 0 {
		return s.GetAttempts()[n-1]
	}
	return nil
}

func (t *tracer) id(scope string) string { return agent.ChildTask(t.root, scope) }

func (t *tracer) decided(s *teamv1.TraceStep, ev *teamv1.Event, d *teamv1.Decided) {
	ids := func(steps []string) []string {
		var out []string
		for _, id := range steps {
			out = append(out, t.id(agent.Scope(ev.GetScope(), id)))
		}
		return out
	}
	td := &teamv1.TraceDecision{
		Seq: ev.GetSeq(), Time: ev.GetTime(), Reason: d.GetReason(), Rule: d.GetRule(), Values: d.GetValues(), Ask: d.GetAsk(), Plan: d.GetPlan(),
		Updates: d.GetUpdates(), Finished: d.GetReply() != nil || d.GetTransfer() != nil, Cancel: ids(d.GetCancel()), Joins: ids(d.GetJoins()),
		Round: d.GetRound(), Failure: d.GetFailure(),
	}
	s.Decisions = append(s.Decisions, td)
	for _, st := range d.GetSteps() {
		scope := agent.Scope(ev.GetScope(), st.GetId())
		child := &teamv1.TraceStep{
			Id: t.id(scope), Path: t.steps[scope].path, Kind: st.GetKind(), Member: st.GetMember(), Name: st.GetName(), CallId: st.GetCallId(),
			Decided: ev.GetTime(), Async: st.GetAsync(),
		}
		t.teams[ev.GetScope()] = t.teams[ev.GetScope()] || t.steps[scope].given()
		t.give(child, scope, st.GetInput())
		if child.Input == nil && st.GetAsk() != nil {
			child.Input = &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: agent.TextParts(st.GetAsk().GetQuestion())}
		}
		td.Steps = append(td.Steps, child.GetId())
		s.Steps = append(s.Steps, child)
		t.told[scope] = child
	}
}

// give notes what a step is given: a message, one on record, or what the step it
// is part of was given. A model and a tool see more than one message.
func (t *tracer) give(s *teamv1.TraceStep, scope string, in *teamv1.Input) {
	switch m := in.GetMessage(); {
	case in == nil:
	case m != nil:
		t.input[scope] = m
	case in.GetRef() > 0:
		t.input[scope] = t.texts[in.GetRef()]
	default:
		t.input[scope] = t.input[agent.Parent(scope)]
	}
	s.Input = t.input[scope]
}

func (t *tracer) started(s *teamv1.TraceStep, ev *teamv1.Event, st *teamv1.Started) {
	if s.Started == nil {
		s.Started = ev.GetTime()
	}
	s.Attempts = append(s.Attempts, &teamv1.TraceAttempt{
		Attempt: st.GetAttempt(), Started: ev.GetTime(), Model: st.GetModel(), Endpoint: st.GetEndpoint(), Revision: st.GetRevision(),
	})
	if in := st.GetInput(); in != nil && (in.GetMessage() != nil || in.GetRef() > 0) {
		t.give(s, ev.GetScope(), in)
	}
}

func (t *tracer) ended(s *teamv1.TraceStep, ev *teamv1.Event, e *teamv1.Ended) {
	switch r := e.GetResult().(type) {
	case *teamv1.Ended_Reply:
		s.Result = &teamv1.TraceStep_Reply{Reply: r.Reply}
	case *teamv1.Ended_ReplyRef:
		if m := t.texts[r.ReplyRef]; m != nil {
			s.Result = &teamv1.TraceStep_Reply{Reply: m}
		}
	case *teamv1.Ended_Turn:
		s.Result = &teamv1.TraceStep_Turn{Turn: r.Turn}
	case *teamv1.Ended_Tool:
		s.Result = &teamv1.TraceStep_Tool{Tool: r.Tool}
	case *teamv1.Ended_Transfer:
		s.Result = &teamv1.TraceStep_Transfer{Transfer: r.Transfer}
	}
	if m := s.GetReply(); m != nil {
		t.texts[ev.GetSeq()] = m
	}
	s.Error, s.Warnings, s.Ended, s.Verdict = e.GetError(), e.GetWarnings(), ev.GetTime(), e.GetVerdict()
	if a := last(s); a != nil && a.GetEnded() == nil {
		a.Ended, a.Error = ev.GetTime(), e.GetError()
	}
	t.lapse(ev.GetScope(), ev)
}

func (t *tracer) answered(ev *teamv1.Event, a *teamv1.Answered) {
	if q, ok := t.open[a.GetQuestion()]; ok {
		q.Answer, q.By, q.Closed = a.GetMessage(), a.GetBy(), ev.GetTime()
		delete(t.open, a.GetQuestion())
	}
}

// lapse closes the questions of a step and of those below it.
func (t *tracer) lapse(scope string, ev *teamv1.Event) {
	for id, q := range t.open {
		if agent.Within(q.scope, scope) {
			q.Closed = ev.GetTime()
			delete(t.open, id)
		}
	}
}

// trace is the trace of a scope; nil where there is none. It is the tracer's own
// until the next event: a copy is kept by whoever keeps it.
func (t *tracer) trace(scope, account string) *teamv1.Trace {
	top := t.steps[scope]
	if top == nil || t.told[scope] == nil {
		return nil
	}
	t.settle(top)
	tr := &teamv1.Trace{
		TaskId: t.id(scope), AgentId: t.agent, ContextId: t.contextID, State: taskState(t.run, top), Seq: t.seq, Step: t.told[scope],
		Cost: t.rollup(top, account),
	}
	for _, q := range t.questions {
		if _, asker := agent.SplitTask(q.GetQuestion().GetDelegationId()); agent.Within(asker, scope) {
			tr.Questions = append(tr.Questions, q)
		}
	}
	return tr
}

// taskState is the state of the task of a step.
func taskState(r *run, s *step) a2av1.TaskState {
	if s == r.top {
		return r.state
	}
	switch s.state {
	case teamv1.TraceStep_STATE_PENDING, teamv1.TraceStep_STATE_UNSPECIFIED:
		return a2av1.TaskState_TASK_STATE_SUBMITTED
	case teamv1.TraceStep_STATE_ENDED:
		return endState(s.outcome)
	case teamv1.TraceStep_STATE_WAITING:
		if s.heldFrom == teamv1.TraceStep_STATE_UNSPECIFIED {
			return r.waits(s.scope)
		}
	case teamv1.TraceStep_STATE_RUNNING, teamv1.TraceStep_STATE_RETRYING:
	}
	return a2av1.TaskState_TASK_STATE_WORKING
}

// settle puts into a step and those below it how they stand and what they cost.
func (t *tracer) settle(s *step) {
	told := t.told[s.scope]
	told.State, told.Outcome, told.Spent, told.Own = s.state, s.outcome, spentOr(s.spent()), spentOr(s.own())
	if s.state == teamv1.TraceStep_STATE_ENDED && told.GetEnded() == nil {
		told.Ended = stamp(s.ended)
	}
	for _, child := range s.steps {
		t.settle(child)
	}
}

// rollup says who has caused the cost of a step: whoever worked, and the team that
// it was done in.
func (t *tracer) rollup(top *step, account string) *teamv1.Rollup {
	members, teams := map[string]*teamv1.Spent{}, map[string]*teamv1.Spent{}
	var walk func(s *step, team string)
	walk = func(s *step, team string) {
		if t.teams[s.scope] {
			team = s.path
		}
		members[s.path] = agent.AddSpent(spentOr(members[s.path]), s.own())
		teams[team] = agent.AddSpent(spentOr(teams[team]), s.own())
		for _, child := range s.steps {
			walk(child, team)
		}
	}
	walk(top, t.teamOf(top))
	all := spentOr(top.spent())
	return &teamv1.Rollup{
		Spent: all, Members: shares(members), Teams: shares(teams),
		Accounts: []*teamv1.Rollup_Share{{Path: account, Own: all, Total: all}},
	}
}

// teamOf is the path of the team that a step is done in.
func (t *tracer) teamOf(s *step) string {
	for ; s.parent != nil; s = s.parent {
		if t.teams[s.scope] {
			return s.path
		}
	}
	return s.path
}

// shares are parts by path. The total of each is with all whose path is below it.
func shares(own map[string]*teamv1.Spent) []*teamv1.Rollup_Share {
	var list []*teamv1.Rollup_Share
	for path, spent := range own {
		sh := &teamv1.Rollup_Share{Path: path, Own: spent, Total: spent}
		for other, more := range own {
			if strings.HasPrefix(other, path+"/") {
				sh.Total = agent.AddSpent(sh.GetTotal(), more)
			}
		}
		list = append(list, sh)
	}
	slices.SortFunc(list, func(a, b *teamv1.Rollup_Share) int { return cmp.Compare(a.GetPath(), b.GetPath()) })
	return list
}
