package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// reviewedFile is a team with a judge, a leader that judges its own answers, and a
// team that has a member of the registry judge.
const reviewedFile = `
models: {w: MODEL(w), j: MODEL(j), lead: MODEL(lead)}
agents:
  writer: {model: w}
  critic: {model: j}
teams:
  desk:
    members: [{agent: writer}]
    supervisor: {rules: [{id: write, when: "turn == 1", next: [writer]}, {id: done, when: "true", finish: last}]}
    review: {judge: {model: j}, expected: A text with three sources., threshold: 0.8, max_rounds: 2}
  free:
    members: [{agent: writer}]
    workflow: {steps: [{id: write, agent: writer}]}
    review: {judge: {agent: critic}}
  panel:
    members: [{agent: writer}]
    coordinator: {leader: {model: lead}}
    review: {threshold: 0.8}
`

// judges is a verdict of a model.
func judges(score float64, feedback string) fakellm.Turn {
	return fakellm.Turn{Calls: []fakellm.Call{{Name: "judge", Arguments: fmt.Sprintf(`{"score":%v,"feedback":%q}`, score, feedback)}}}
}

// resultOf is the artifact with the result of a task.
func resultOf(task *a2av1.Task) string {
	for _, a := range task.GetArtifacts() {
		if a.GetName() == "result" {
			return agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
	}
	return ""
}

// judged are the judgements of a trace, in order, with their scores.
func judged(tr *teamv1.Trace) []string {
	var list []string
	for _, s := range tr.GetStep().GetSteps() {
		if s.GetKind() == teamv1.Step_KIND_JUDGE {
			score := "none"
			if s.GetVerdict().Score != nil {
				score = fmt.Sprint(s.GetVerdict().GetScore())
			}
			list = append(list, s.GetPath()+" "+score)
		}
	}
	return list
}

// TestC_21_Review sends messages to teams whose results are judged.
func TestC_21_Review(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, reviewedFile)
		t.Run("R-001-11 R-001-21 the result is worked over, and the second one is the answer", func(t *testing.T) {
			s.llm.Script("w", fakellm.Turn{Text: "a first text"}, fakellm.Turn{Text: "a text with sources"})
			s.llm.Script("j", judges(0.4, "name your sources"), judges(0.8, ""))
			task := s.ask(t, "desk", "tides", completedTask)
			if resultOf(task) != "a text with sources" || len(task.GetArtifacts()) != 1 {
				t.Errorf("artifacts %v", task.GetArtifacts())
			}
			prompt := s.llm.Requests("j")[0]
			for _, text := range []string{"A text with three sources.", "tides", "a first text"} {
				if !strings.Contains(prompt.Last(), text) {
					t.Errorf("the judge reads %q, which lacks %q", prompt.Last(), text)
				}
			}
			if prompt.ToolChoice != "judge" {
				t.Errorf("the judge may call %q", prompt.ToolChoice)
			}
			if second := s.llm.Requests("w")[1].Last(); !strings.Contains(second, "a first text") || !strings.Contains(second, "name your sources") || !strings.Contains(second, "tides") {
				t.Errorf("the second round begins with %q", second)
			}
			for _, m := range rig.Monitors(t, s.Target) {
				tr, err := m.Trace(t.Context(), task.GetId())
				if err != nil {
					t.Fatal(err)
				}
				if got := judged(tr); !slices.Equal(got, []string{"desk/judge 0.4", "desk/judge 0.8"}) {
					t.Errorf("over %s: %q", m.Binding(), got)
				}
				if step := tr.GetStep().GetSteps()[1]; step.GetVerdict().GetFeedback() != "name your sources" || agent.Text(step.GetInput()) != "a first text" || step.GetAttempts()[0].GetModel() != "j" {
					t.Errorf("the judgement is %v", step)
				}
				if !slices.ContainsFunc(tr.GetStep().GetDecisions(), func(d *teamv1.TraceDecision) bool { return d.GetRound() == 2 }) {
					t.Errorf("decisions %v", tr.GetStep().GetDecisions())
				}
				var sum *teamv1.Spent
				paths := map[string]bool{}
				for _, share := range tr.GetCost().GetMembers() {
					sum, paths[share.GetPath()] = agent.AddSpent(sum, share.GetOwn()), true
				}
				if root := a2a.RunOf(task.GetMetadata()).GetSpent(); !proto.Equal(sum, root) || root.GetModelCalls() != 4 || !paths["desk/judge"] {
					t.Errorf("S-60 the root spent %v, its parts %v", root, tr.GetCost().GetMembers())
				}
			}
		})
		t.Run("R-001-11 R-001-55 after two rounds it fails, readable, and the call is OK", func(t *testing.T) {
			s.llm.Answer("w", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "on " + r.Last()[:5], Chunks: 3} })
			s.llm.Answer("j", func(*fakellm.Request) fakellm.Turn { return judges(0.5, "more") })
			rig.Each(t, s.Target, func(t *testing.T, c rig.Client) {
				before := len(s.llm.Requests("j"))
				_, task := s.told(t, c, "desk", "tides", a2av1.TaskState_TASK_STATE_FAILED)
				e := a2a.RunOf(task.GetMetadata()).GetError()
				if e.GetReason() != agent.ReasonQuality || e.GetDetails()["rounds"] != "2" || e.GetDetails()["score"] != "0.5" {
					t.Errorf("error %v", e)
				}
				if resultOf(task) != "on tides" || len(s.llm.Requests("j"))-before != 2 {
					t.Errorf("artifacts %v after %d judgements", task.GetArtifacts(), len(s.llm.Requests("j"))-before)
				}
			})
		})
		t.Run("R-001-46 rubbish is asked once more; twice, and nothing is completed", func(t *testing.T) {
			s.llm.Answer("w", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "a text"} })
			s.llm.Script("j", fakellm.Turn{Text: "Very good."}, fakellm.Turn{Text: "0.8"}, fakellm.Turn{Text: "Very good."}, judges(80, "fine"))
			s.ask(t, "desk", "tides", completedTask)
			task := s.ask(t, "desk", "tides", a2av1.TaskState_TASK_STATE_FAILED)
			if e := a2a.RunOf(task.GetMetadata()).GetError(); e.GetReason() != agent.ReasonQuality || e.GetDetails()["score"] != "" || resultOf(task) != "a text" {
				t.Errorf("error %v, result %q", e, resultOf(task))
			}
		})
		t.Run("C-33 without a threshold there is no score, and a warning says so; an agent judges", func(t *testing.T) {
			s.llm.Script("w", fakellm.Turn{Text: "a text"})
			s.llm.Script("j", fakellm.Turn{Text: "Very good."}, fakellm.Turn{Text: "Really."})
			task := s.ask(t, "free", "tides", completedTask)
			if w := a2a.RunOf(task.GetMetadata()).GetWarnings(); len(w) != 1 || !strings.Contains(w[0], "has no score") || resultOf(task) != "a text" {
				t.Errorf("warnings %q, result %q", w, resultOf(task))
			}
		})
		t.Run("C-21 the leader's model judges where no other is named", func(t *testing.T) {
			s.llm.Script("lead", fakellm.Turn{Text: "at once"}, judges(0.1, "ask the writer"),
				fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_writer", Arguments: `{"task": "write"}`}}}, fakellm.Turn{Text: "with the writer's text"}, judges(0.9, ""))
			s.llm.Script("w", fakellm.Turn{Text: "a text"})
			if task := s.ask(t, "panel", "tides", completedTask); resultOf(task) != "with the writer's text" {
				t.Errorf("artifacts %v", task.GetArtifacts())
			}
		})
	})
}
