package build

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agentteams/team-server/examples/demo"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registered builds a definition into a manager of its own.
func registered(t *testing.T, def *config.Config) *manager.Manager {
	t.Helper()
	m := manager.New(manager.Config{})
	t.Cleanup(m.Close)
	out, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	agents, err := Register(Config{Definition: def, Registry: m, Egress: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agents.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Loader{Env: func(string) (string, bool) { return "", false }}.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// trail runs an agent and returns who worked and why, and the answer.
func trail(ctx context.Context, t *testing.T, m *manager.Manager, id, text string) (steps []string, answer string) {
	t.Helper()
	a, err := m.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	var seq int64
	req := &teamv1.ProcessRequest{AgentId: id, Key: "k", Message: agent.UserMessage("m", text)}
	run := &agent.Run{Root: "5b0b0e58-6a2c-4c6b-9f5d-0d5b5f1f3d10"}
	for ev, err := range a.Process(agent.With(ctx, run), req) {
		if err != nil {
			t.Fatal(err)
		}
		if d := ev.GetDecided(); d != nil && ev.GetScope() == "" {
			for _, s := range d.GetSteps() {
				if s.GetMember() != "" && s.GetRefusal() == nil {
					steps = append(steps, fmt.Sprintf("%s%s>%s", s.GetName(), d.GetRule(), s.GetMember()))
				}
			}
		}
		if r := ev.GetReply(); r != nil && ev.GetScope() == "" {
			answer = agent.Text(r.GetMessage())
			continue
		}
		seq++
		ev.Seq, ev.Time = seq, timestamppb.Now()
	}
	return steps, answer
}

func TestDemo(t *testing.T) {
	def, err := config.Loader{Env: func(string) (string, bool) { return "", false }, Files: demo.Files}.Load("team.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := registered(t, def)
	for _, tt := range []struct{ team, text, steps, answer string }{
		{"newsroom", "Write about tides", "first-turn>researcher >writer check>critic", `First version. On "Write about tides"`},
		{"newsroom", "Write a short text", "first-turn>researcher >writer check>critic rewrite>writer check>critic", "Second version"},
		{"release", "tides", "draft>writer law>legal score>critic publish>writer", "Published. Publish: Notes. Draft the notes: tides"},
		{"company", "tides", "story>newsroom announce>release", `Published. Publish: Notes. Draft the notes: First version. On "tides"`},
	} {
		t.Run(tt.team+" "+tt.text, func(t *testing.T) {
			steps, answer := trail(t.Context(), t, m, tt.team, tt.text)
			if got := strings.Join(steps, " "); got != tt.steps {
				t.Errorf("steps %q, want %q", got, tt.steps)
			}
			if !strings.HasPrefix(answer, tt.answer) {
				t.Errorf("answer %q, want it to begin with %q", answer, tt.answer)
			}
		})
	}
}

func TestUnusedAgentsAreNotServed(t *testing.T) {
	m := registered(t, load(t, `version: v1
agents:
  a: {scripted: {steps: [{echo: true}]}}
  b: {scripted: {steps: [{echo: true}]}}
teams:
  t: {members: [{agent: a}], supervisor: {rules: [{id: one, when: "turn == 1", next: [a]}, {id: end, when: "true", finish: a}]}}
`))
	if got := strings.Join(m.IDs(), " "); got != "a t" {
		t.Errorf("served: %s", got)
	}
}

func TestRemoteAgentsInTheFilesWords(t *testing.T) {
	m := registered(t, load(t, `version: v1
agents:
  near: {grpc: {address: "127.0.0.1:1"}}
  far: {a2a: {card: "http://127.0.0.1:1/card.json", binding: REST}}
  probe: {scripted: {steps: [{call: near}]}}
`))
	for _, id := range []string{"near", "far"} {
		a, err := m.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Info(t.Context()); err == nil {
			t.Errorf("%s describes itself though nobody is there", id)
		}
	}
}
