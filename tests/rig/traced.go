package rig

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// traced checks invariant I5 of Invariants for the monitor: the trace of a task that has
// ended shows what its events say, and the costs of its leaves add up to that of the root.
func (i Invariants) traced(t testing.TB, id string, all []*teamv1.Event) {
	t.Helper()
	f := project.New(id, "")
	for _, ev := range all {
		f.Apply(ev)
	}
	if _, err := wire.Fits(f.Task()); err != nil { // the trace contains the task and is too large as well
		return
	}
	m := Monitors(t, i.Target)
	tr, err := m[len(all)%len(m)].Trace(context.Background(), id)
	if err != nil {
		t.Errorf("I5: the trace of %s: %v", id, err)
		return
	}
	if tr.GetState() != f.State() || tr.GetSeq() != int64(len(all)) || tr.GetContextId() != f.ContextID() || tr.GetAgentId() != f.Agent() {
		t.Errorf("I5: the trace of %s is of %v, seq %d; the task is %v, seq %d", id, tr.GetState(), tr.GetSeq(), f.State(), len(all))
	}
	want, got := recount(id, all), map[string]*node{}
	flatten(tr.GetStep(), got)
	if diff := cmp.Diff(want, got, protocmp.Transform(), cmp.AllowUnexported(node{})); diff != "" {
		t.Errorf("I5: the trace of %s is not what its events say (-events +trace):\n%s", id, diff)
	}
	root := want[id].spent
	for name, list := range map[string][]*teamv1.Rollup_Share{
		"members": tr.GetCost().GetMembers(), "teams": tr.GetCost().GetTeams(), "accounts": tr.GetCost().GetAccounts(), "models": tr.GetCost().GetModels(),
	} {
		sum := &teamv1.Spent{}
		for _, s := range list {
			sum = agent.AddSpent(sum, s.GetOwn())
		}
		if !proto.Equal(sum, root) || !proto.Equal(tr.GetCost().GetSpent(), root) {
			t.Errorf("I5: by %s %s cost %v, its end says %v", name, id, sum, root)
		}
	}
}

// node holds the compared properties of a step: recomputed from events, or read from a
// trace.
type node struct {
	outcome            teamv1.Outcome
	attempts           int32
	reasons            []string
	steps              []string
	spent, own         *teamv1.Spent
	questions, answers int
}

// recount computes the steps of a root from its events in one pass.
func recount(id string, all []*teamv1.Event) map[string]*node {
	nodes := map[string]*node{id: {}}
	asker := map[string]*node{}
	for _, ev := range all {
		at := agent.ChildTask(id, ev.GetScope())
		if nodes[at] == nil { // there was no decision for it
			nodes[at] = &node{}
		}
		n := nodes[at]
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Decided:
			n.reasons = append(n.reasons, k.Decided.GetRule()+" "+k.Decided.GetReason())
			for _, s := range k.Decided.GetSteps() {
				child := agent.ChildTask(id, agent.Scope(ev.GetScope(), s.GetId()))
				n.steps = append(n.steps, child)
				nodes[child] = &node{}
			}
		case *teamv1.Event_Started:
			n.attempts++
		case *teamv1.Event_Asked:
			n.questions++
			asker[k.Asked.GetQuestion()] = n
		case *teamv1.Event_Answered:
			if q := asker[k.Answered.GetQuestion()]; q != nil {
				q.answers++
			}
		case *teamv1.Event_Ended:
			n.outcome, n.spent = k.Ended.GetOutcome(), agent.AddSpent(&teamv1.Spent{}, k.Ended.GetSpent())
		}
	}
	for _, n := range nodes {
		if n.outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED { // a step that never started ends with its parent
			n.outcome, n.spent = teamv1.Outcome_OUTCOME_CANCELED, &teamv1.Spent{}
		}
		if n.own = n.spent; len(n.steps) > 0 { // only leaves have a cost of their own
			n.own = &teamv1.Spent{}
		}
	}
	return nodes
}

// flatten collects the steps of a trace.
func flatten(s *teamv1.TraceStep, into map[string]*node) {
	n := &node{outcome: s.GetOutcome(), attempts: int32(len(s.GetAttempts())), spent: s.GetSpent(), own: s.GetOwn(), questions: len(s.GetQuestions())} //nolint:gosec // few
	for _, d := range s.GetDecisions() {
		n.reasons = append(n.reasons, d.GetRule()+" "+d.GetReason())
	}
	for _, q := range s.GetQuestions() {
		if q.GetAnswer() != nil {
			n.answers++
		}
	}
	for _, child := range s.GetSteps() {
		n.steps = append(n.steps, child.GetId())
		flatten(child, into)
	}
	into[s.GetId()] = n
}
