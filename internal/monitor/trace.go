package monitor

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// trace returns the trace of a scope, nil if the scope does not exist. It needs a run with
// the whole journal.
func (r *run) trace(scope, account string) *teamv1.Trace {
	top := r.Node(scope)
	if top == nil || r.Accepted == nil {
		return nil
	}
	return &teamv1.Trace{
		TaskId: r.id(scope), AgentId: r.Accepted.GetAgent(), ContextId: r.Accepted.GetMessage().GetContextId(), State: r.taskState(top), Seq: r.Seq,
		Step: r.step(top), Cost: r.rollup(top, account), Questions: r.open(scope), Retries: r.Accepted.GetRetries(),
	}
}

// id returns the task ID of a scope.
func (r *run) id(scope string) string { return agent.ChildTask(r.Root, scope) }

// step returns a step and the steps below it as a part of a trace.
func (r *run) step(n *journal.Node) *teamv1.TraceStep {
	s := &teamv1.TraceStep{
		Id: r.id(n.Scope), Path: n.Path, Kind: n.Step.GetKind(), Member: n.Step.GetMember(), Name: n.Step.GetName(), CallId: n.Step.GetCallId(),
		Async: n.Step.GetAsync(), Input: n.Given, Decided: stamp(n.Since), Started: stamp(n.Begun), Ended: stamp(n.Ended),
		State: stepState(n.State), Outcome: n.Outcome, Spent: spentOr(n.Spent()), Own: spentOr(n.Own()),
		Error: n.End.GetError(), Warnings: n.End.GetWarnings(), Verdict: n.End.GetVerdict(),
		SpawnedTaskId: n.Spawned.GetTaskId(), Bound: n.Bound, Notes: n.Notes,
	}
	if ask := n.Step.GetAsk(); s.Input == nil && ask != nil {
		s.Input = &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: agent.TextParts(ask.GetQuestion())}
	}
	result(s, n)
	for _, a := range n.Attempts {
		st := a.Started.GetStarted()
		s.Attempts = append(s.Attempts, &teamv1.TraceAttempt{
			Attempt: st.GetAttempt(), Started: a.Started.GetTime(), Model: st.GetModel(), Endpoint: st.GetEndpoint(), Revision: st.GetRevision(),
			Ended: a.Ended, Error: a.Error, Spent: a.Spent,
		})
	}
	for _, ev := range n.Decisions {
		s.Decisions = append(s.Decisions, r.decision(ev))
	}
	for _, q := range n.Asked {
		a := q.Event.GetAsked()
		s.Questions = append(s.Questions, &teamv1.TraceQuestion{
			Question: a.GetQuestion(), Kind: a.GetKind(), Message: a.GetMessage(), Roles: a.GetRoles(), Asked: q.Event.GetTime(), Expires: a.GetExpires(),
			Answer: q.Answer.GetAnswered().GetMessage(), By: q.Answer.GetAnswered().GetBy(), Closed: q.Closed, Approval: a.GetApproval(), ToolQuestion: a.GetToolQuestion(),
		})
	}
	for _, below := range n.Steps {
		s.Steps = append(s.Steps, r.step(below))
	}
	return s
}

// result sets the result of an ended step.
func result(s *teamv1.TraceStep, n *journal.Node) {
	if n.End == nil {
		return
	}
	end := project.Public(&teamv1.Event{Kind: &teamv1.Event_Ended{Ended: n.End}}).GetEnded()
	switch e := end.GetResult().(type) {
	case *teamv1.Ended_Reply, *teamv1.Ended_ReplyRef:
		if n.Reply != nil {
			s.Result = &teamv1.TraceStep_Reply{Reply: n.Reply}
		}
	case *teamv1.Ended_Turn:
		s.Result = &teamv1.TraceStep_Turn{Turn: e.Turn}
	case *teamv1.Ended_Tool:
		s.Result = &teamv1.TraceStep_Tool{Tool: e.Tool}
	case *teamv1.Ended_Transfer:
		s.Result = &teamv1.TraceStep_Transfer{Transfer: e.Transfer}
	}
}

// decision returns a decision as a part of a trace.
func (r *run) decision(ev *teamv1.Event) *teamv1.TraceDecision {
	ids := func(steps []string) []string {
		var out []string
		for _, id := range steps {
			out = append(out, r.id(agent.Scope(ev.GetScope(), id)))
		}
		return out
	}
	d := ev.GetDecided()
	td := &teamv1.TraceDecision{
		Seq: ev.GetSeq(), Time: ev.GetTime(), Reason: d.GetReason(), Rule: d.GetRule(), Values: d.GetValues(), Ask: d.GetAsk(), Plan: d.GetPlan(),
		Updates: d.GetUpdates(), Finished: d.GetReply() != nil || d.GetTransfer() != nil, Cancel: ids(d.GetCancel()), Joins: ids(d.GetJoins()),
		Round: d.GetRound(), Failure: d.GetFailure(),
	}
	for _, st := range d.GetSteps() {
		td.Steps = append(td.Steps, r.id(agent.Scope(ev.GetScope(), st.GetId())))
	}
	return td
}

// rollup returns the cost of a step by the path of the member that caused it, by team and by model.
func (r *run) rollup(top *journal.Node, account string) *teamv1.Rollup {
	members, teams, models := map[string]*teamv1.Spent{}, map[string]*teamv1.Spent{}, map[string]*teamv1.Spent{}
	var walk func(n *journal.Node, team string)
	walk = func(n *journal.Node, team string) {
		if isTeam(n) {
			team = n.Path
		}
		members[n.Path] = agent.AddSpent(spentOr(members[n.Path]), n.Own())
		if teams[team] != nil || delegates(n) || !isZero(n.Own()) { // a team that has done nothing yet is not listed
			teams[team] = agent.AddSpent(spentOr(teams[team]), n.Own())
		}
		addByModel(models, n)
		for _, child := range n.Steps {
			walk(child, team)
		}
	}
	walk(top, teamOf(top))
	byModel := shares(models)
	for _, s := range byModel {
		s.Total = s.GetOwn() // a name is no path, even if it has a slash
	}
	all := spentOr(top.Spent())
	return &teamv1.Rollup{
		Spent: all, Members: shares(members), Teams: shares(teams), Models: byModel,
		Accounts: []*teamv1.Rollup_Share{{Path: account, Own: all, Total: all}},
	}
}

// addByModel adds the own cost of a step to the models of its attempts: what a failed or interrupted
// attempt cost to its model, and the rest to that of the last attempt.
func addByModel(models map[string]*teamv1.Spent, n *journal.Node) {
	rest, model := n.Own(), ""
	if agent.CostOf(rest) == (agent.Cost{}) && rest.GetModelCalls() == 0 && rest.GetToolCalls() == 0 {
		return
	}
	for i, a := range n.Attempts {
		started := a.Started.GetStarted()
		if model = started.GetModel(); i == len(n.Attempts)-1 {
			break
		}
		spent := a.Spent
		if spent == nil && a.Error == nil {
			spent = spending.LostOn(started.GetReserved())
		}
		models[model] = agent.AddSpent(spentOr(models[model]), spent)
		rest = agent.LessSpent(rest, spent)
	}
	models[model] = agent.AddSpent(spentOr(models[model]), rest)
}

// isTeam reports whether a step is the work of a team. The costs across tasks go by the note alone, see
// cost.Book; journals of earlier versions may lack it.
func isTeam(n *journal.Node) bool {
	return delegates(n) || slices.ContainsFunc(n.Notes, func(ev *teamv1.Event) bool { return ev.GetNoted().GetCode() == agent.NoteTeamPrepared })
}

// delegates reports whether a step is the root step, or has delegated steps.
func delegates(n *journal.Node) bool {
	return n.Parent == nil || slices.ContainsFunc(n.Steps, (*journal.Node).Delegated)
}

// isZero reports whether nothing was spent.
func isZero(s *teamv1.Spent) bool { return s == nil || proto.Equal(s, &teamv1.Spent{}) }

// teamOf returns the path of the team that a step belongs to.
func teamOf(n *journal.Node) string {
	for !isTeam(n) {
		n = n.Parent
	}
	return n.Path
}

// shares converts costs by path to a sorted list. The total of a path includes the paths
// below it.
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
