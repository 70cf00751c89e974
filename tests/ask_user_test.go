package tests

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

const asksUser = `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}"}, lead: {provider: openai, name: lead, base_url: "${LLM}"}}
agents: {clerk: {description: Books trips., model: m, tools: [ask_user]}}
teams:
  desk: {workflow: {steps: [clerk]}}
  office: {members: [clerk], coordinator: {model: lead, tools: [ask_user]}}
`

// TestAskUser: an agent with a model asks its user in the middle of a run, alone, below a team and as a leader, and what
// the user says is the result of the call.
func TestAskUser(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		llm := fakellm.New(t)
		answer := func(r *fakellm.Request) fakellm.Turn {
			if last := r.Last(); last != "book" {
				return fakellm.Turn{Text: "told: " + last}
			}
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "ask_user", Arguments: `{"question":"By train or by plane?","options":["train","plane"]}`}}}
		}
		llm.Answer("m", answer)
		llm.Answer("lead", answer)
		target, _ := fromFile(t, place, asksUser, map[string]string{"LLM": llm.URL}, llm)
		rig.Each(t, target, func(t *testing.T, c rig.Client) {
			for _, to := range []string{"clerk", "desk", "office"} {
				for given, told := range map[string]string{"train": "told: train", "decline": "told: The user does not want to answer.", "cancel": "told: The user dismissed the question."} {
					resp, err := c.Send(t.Context(), rig.Text(to, rand.Text(), "book"))
					if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
						t.Fatal(to, resp, err)
					}
					asked := resp.GetTask().GetStatus().GetMessage()
					if text := agent.Text(asked); !strings.HasPrefix(text, "By train or by plane?") || !strings.Contains(fmt.Sprint(asked), "plane") {
						t.Errorf("%s asks %v", to, asked)
					}
					_, err = c.Send(t.Context(), inAnswerTo(resp.GetTask(), rand.Text(), "by boat"))
					if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" || !strings.Contains(f.Message, "train") {
						t.Errorf("%s: an answer that is none of the options: %v", to, err)
					}
					resp, err = c.Send(t.Context(), inAnswerTo(resp.GetTask(), rand.Text(), given))
					if got := fmt.Sprint(resp.GetTask().GetArtifacts()); err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || !strings.Contains(got, told) {
						t.Errorf("%s after %q: %v %s, %v", to, given, resp.GetTask().GetStatus(), got, err)
					}
				}
			}
		})
	})
}

// TestAskUser_Wrong: a model that asks badly is told why, and people are not asked.
func TestAskUser_Wrong(t *testing.T) {
	t.Parallel()
	for arguments, why := range map[string]string{
		`{"question":" "}`: "question is empty",
		`{"question":7}`:   "the arguments must be an object with question",
		`{"question":"` + strings.Repeat("long ", 1000) + `"}`: "at most 4000 are allowed",
	} {
		llm := fakellm.New(t)
		llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
			if last := r.Last(); last != "book" {
				return fakellm.Turn{Text: "told: " + last}
			}
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "ask_user", Arguments: arguments}}}
		})
		target, _ := fromFile(t, rig.Memory(t), asksUser, map[string]string{"LLM": llm.URL}, llm)
		resp, err := rig.NewREST(target).Send(t.Context(), rig.Text("clerk", rand.Text(), "book"))
		if got := fmt.Sprint(resp.GetTask().GetArtifacts()); err != nil || !strings.Contains(got, why) {
			t.Errorf("%.40s: %v %v, want %s", arguments, got, err, why)
		}
	}
}
