package tests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// outline is a trace in lines: who worked, how it stands, and why each step was decided.
func outline(s *teamv1.TraceStep) []string {
	line := fmt.Sprintf("%s %s %s", s.GetPath(), s.GetKind(), s.GetOutcome())
	if e := s.GetError(); e != nil {
		line += " " + e.GetReason()
	}
	if n := len(s.GetAttempts()); n > 1 {
		line += fmt.Sprintf(" (%d attempts, %s)", n, s.GetAttempts()[0].GetError().GetReason())
	}
	list := []string{line}
	for _, d := range s.GetDecisions() {
		list = append(list, "  "+s.GetPath()+" decides: "+d.GetRule()+" "+d.GetReason())
	}
	for _, child := range s.GetSteps() {
		list = append(list, outline(child)...)
	}
	return list
}

// TestR_003_31_Trace: a trace says of each decision why, with the rule and the values
// that it saw, and of each piece of work what was given, tried and came of it.
func TestR_003_31_Trace(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, `
models: {a: MODEL(a), b: MODEL(b)}
agents: {a: {model: a}, b: {model: b}}
teams:
  desk:
    members: [{agent: a, retry: {attempts: 2, backoff: 10ms}}, {agent: b}]
    supervisor:
      rules:
        - {id: begin, when: "turn == 1", next: [a]}
        - {id: check, when: "last.text == 'facts' && turn == 2", next: [b]}
        - {id: done, when: "true", finish: b}
`)
		s.llm.Script("a", fakellm.Turn{Status: 503}, fakellm.Turn{Text: "facts"})
		s.llm.Script("b", fakellm.Turn{Text: "checked"})
		task := s.ask(t, "desk", "tides", completedTask)
		for _, m := range rig.Monitors(t, s.Target) {
			tr, err := m.Trace(t.Context(), task.GetId())
			if err != nil {
				t.Fatal(err)
			}
			want := []string{
				"desk KIND_UNSPECIFIED OUTCOME_SUCCEEDED",
				"  desk decides: begin turn == 1", "  desk decides: check last.text == 'facts' && turn == 2", "  desk decides: done true",
				"desk/a KIND_DELEGATE OUTCOME_SUCCEEDED",
				"  desk/a decides:  the message is new", "  desk/a decides:  the model answered",
				"desk/a KIND_MODEL OUTCOME_SUCCEEDED (2 attempts, UNAVAILABLE)",
				"desk/b KIND_DELEGATE OUTCOME_SUCCEEDED",
				"  desk/b decides:  the message is new", "  desk/b decides:  the model answered",
				"desk/b KIND_MODEL OUTCOME_SUCCEEDED",
			}
			if diff := cmp.Diff(want, outline(tr.GetStep())); diff != "" {
				t.Errorf("over %s:\n%s", m.Binding(), diff)
			}
			check := tr.GetStep().GetDecisions()[1]
			if len(check.GetValues().GetFields()) == 0 || !slices.Equal(check.GetSteps(), []string{task.GetId() + "~2"}) || tr.GetStep().GetDecisions()[2].GetFinished() != true {
				t.Errorf("the decision is %v", check)
			}
			second := tr.GetStep().GetSteps()[1]
			if agent.Text(second.GetInput()) != "facts" || agent.Text(second.GetReply()) != "checked" || second.GetDecided() == nil || second.GetStarted() == nil || second.GetEnded() == nil {
				t.Errorf("b was given %v", second)
			}
			if turn := second.GetSteps()[0]; turn.GetTurn().GetText() != "checked" || turn.GetAttempts()[0].GetModel() != "b" {
				t.Errorf("b's turn is %v", turn)
			}
			child, err := m.Trace(t.Context(), task.GetId()+"~1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tr.GetStep().GetSteps()[0], child.GetStep(), protocmp.Transform()); diff != "" || child.GetState() != completedTask || child.GetTaskId() != task.GetId()+"~1" {
				t.Errorf("the trace of the child is another one:\n%s", diff)
			}
			for _, none := range []string{task.GetId() + "~9", "none"} {
				if _, err := m.Trace(t.Context(), none); rig.Fault(err).Reason != a2aerror.ReasonTaskNotFound {
					t.Errorf("the trace of %s: %v", none, err)
				}
			}
		}
	})
}

// TestS_60_CostByWhoCausedIt: what a task cost, by member, by team and by account,
// adds up to what its end says; so does that of each part of it.
func TestS_60_CostByWhoCausedIt(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		store, _ := at.Open(t)
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 31, OutputTokens: 17, CostMicros: 53}}
		reg := rig.Manager(t, metered(t, "a", m, nil), metered(t, "b", m, nil))
		chain(t, reg, "inner", "a", "b")
		chain(t, reg, "outer", "inner", "b")
		target := rig.Serve(t, server.Config{Agents: reg, Store: store})
		all := events(t, target, "outer", "cost")
		root := all[len(all)-1].GetEnded().GetSpent()
		id := all[0].GetAccepted().GetTaskId()
		times := func(n int64) string { return fmt.Sprint(31*n, " ", 17*n, " ", 53*n) }
		said := func(s *teamv1.Spent) string {
			return fmt.Sprint(s.GetInputTokens(), " ", s.GetOutputTokens(), " ", s.GetCostMicros())
		}
		shares := func(list []*teamv1.Rollup_Share) map[string][2]string {
			out := map[string][2]string{}
			for _, s := range list {
				out[s.GetPath()] = [2]string{said(s.GetOwn()), said(s.GetTotal())}
			}
			return out
		}
		for _, monitor := range rig.Monitors(t, target) {
			tr, err := monitor.Trace(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(tr.GetCost().GetSpent(), root) || said(root) != times(3) {
				t.Errorf("S-60: %v, its end says %v", tr.GetCost().GetSpent(), root)
			}
			for _, diff := range []string{
				cmp.Diff(map[string][2]string{
					"outer": {times(0), times(3)}, "outer/b": {times(1), times(1)}, "outer/inner": {times(0), times(2)},
					"outer/inner/a": {times(1), times(1)}, "outer/inner/b": {times(1), times(1)},
				}, shares(tr.GetCost().GetMembers())),
				cmp.Diff(map[string][2]string{"outer": {times(1), times(3)}, "outer/inner": {times(2), times(2)}}, shares(tr.GetCost().GetTeams())),
				cmp.Diff(map[string][2]string{"local": {times(3), times(3)}}, shares(tr.GetCost().GetAccounts())),
				cmp.Diff(map[string][2]string{"metered": {times(3), times(3)}}, shares(tr.GetCost().GetModels())),
			} {
				if diff != "" {
					t.Errorf("S-60:\n%s", diff)
				}
			}
			part, err := monitor.Trace(t.Context(), id+"~1")
			if err != nil {
				t.Fatal(err)
			}
			if said(part.GetCost().GetSpent()) != times(2) || len(part.GetCost().GetTeams()) != 1 || part.GetCost().GetTeams()[0].GetPath() != "outer/inner" {
				t.Errorf("S-60: the part cost %v", part.GetCost())
			}
			w := watchTeam(t, monitor, "outer", "")
			now := w.until(t, func(*teamv1.TeamSnapshot) bool { return true })
			if said(now.GetCounters().GetSpent()) != times(3) || said(now.GetMembers()[0].GetSpent()) != times(2) || said(now.GetMembers()[1].GetSpent()) != times(1) {
				t.Errorf("S-60: the team cost %v", now)
			}
			w.stop()
		}
	})
}

// TestA_12_WatchesAreStreams: watches count among the streams of a task, of a team
// and of an owner, and are given back.
func TestA_12_WatchesAreStreams(t *testing.T) {
	t.Parallel()
	for n := range 2 {
		c := newCrew("c")
		target := rig.Serve(t, server.Config{Agents: c.members(t), Settings: &teamv1.ServerSettings{Streams: &teamv1.StreamSettings{PerTask: proto.Int32(2), PerCaller: proto.Int32(3)}}})
		monitor := rig.Monitors(t, target)[n]
		resp, err := rig.Clients(t, target)[0].Send(t.Context(), atOnce(rig.Text("c", "m", "x")))
		if err != nil {
			t.Fatal(err)
		}
		id := resp.GetTask().GetId()
		<-c.entered["c"]
		refused := func(err error) {
			t.Helper()
			if rig.Fault(err).Reason != agent.ReasonInsufficientResources {
				t.Errorf("%s: %v", monitor.Binding(), err)
			}
		}
		first, second := watchTeam(t, monitor, "c", ""), watchTeam(t, monitor, "c", "")
		first.read(t)
		second.read(t)
		for _, err := range monitor.WatchTeam(t.Context(), "c", "") { // the team's third
			refused(err)
		}
		for _, err := range monitor.WatchTask(t.Context(), id, 0) { // the owner's third
			if err != nil {
				t.Error(err)
			}
			for _, err := range monitor.WatchTask(t.Context(), id, 0) { // and fourth
				refused(err)
			}
			break
		}
		first.stop()
		second.stop()
		for given := false; !given; { // back, soon
			for _, err := range monitor.WatchTeam(t.Context(), "c", "") {
				given = err == nil
				break
			}
		}
		c.open("c")
	}
}
