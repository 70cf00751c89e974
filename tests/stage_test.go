package tests

import (
	"fmt"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// stage serves a configuration, whose models are a fake model server's, from a store.
type stage struct {
	rig.Target
	llm   *fakellm.Server
	store server.Store
	sent  int
}

// onStages runs a test on a store in memory and on SQLite.
func onStages(t *testing.T, test func(t *testing.T, place rig.Place)) {
	t.Helper()
	for _, at := range sample.Of(t, []func(testing.TB) rig.Place{rig.Memory, rig.SQLite}) {
		place := at(t)
		t.Run(place.Name, func(t *testing.T) { test(t, place) })
	}
}

// kept is a new store, of the kind of a place.
func kept(t testing.TB, place rig.Place) server.Store {
	t.Helper()
	s, _ := place.Another(t).Open(t)
	return s
}

// play serves a file. MODEL(name) stands in it for a model of the fake server.
func play(t testing.TB, place rig.Place, file string) *stage {
	t.Helper()
	llm := fakellm.New(t)
	for name := range cuts(file, "MODEL(") {
		model := fmt.Sprintf("{provider: openai, name: %s, base_url: %q, api_key: %s}", name, llm.URL, rig.Secret)
		file = strings.ReplaceAll(file, "MODEL("+name+")", model)
	}
	return playAgents(t, place, llm, defined(t, "version: v1\n"+file, nil))
}

// defined is what a file defines, with variables.
func defined(t testing.TB, file string, env map[string]string) *manager.Manager {
	t.Helper()
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	out, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	m := rig.Manager(t)
	agents, err := build.Register(build.Config{Definition: def, Registry: m, Egress: out, Log: rig.Logger(t)})
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

// cuts returns what stands behind each mark up to the next ")".
func cuts(text, mark string) map[string]bool {
	found := map[string]bool{}
	for _, piece := range strings.Split(text, mark)[1:] {
		name, _, _ := strings.Cut(piece, ")")
		found[name] = true
	}
	return found
}

// playAgents serves what a manager holds.
func playAgents(t testing.TB, place rig.Place, llm *fakellm.Server, m *manager.Manager) *stage {
	t.Helper()
	s, _ := place.Open(t)
	return &stage{Target: rig.Serve(t, server.Config{Agents: m, Store: s}, llm), llm: llm, store: s}
}

// client is one over gRPC that asks for every detail.
func (s *stage) client(t testing.TB, details bool) *rig.GRPC {
	t.Helper()
	target := s.Target
	if details {
		target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	}
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// message is a request with a message of its own.
func (s *stage) message(tenant, text string) *a2av1.SendMessageRequest {
	s.sent++
	return rig.Text(tenant, fmt.Sprintf("m-%d", s.sent), text)
}

// ask sends a text, waits for the end and checks what must hold of every run.
func (s *stage) ask(t testing.TB, tenant, text string, want a2av1.TaskState) *a2av1.Task {
	t.Helper()
	resp, err := s.client(t, true).Send(t.Context(), s.message(tenant, text))
	if err != nil {
		t.Fatal(err)
	}
	task := resp.GetTask()
	if task.GetStatus().GetState() != want {
		t.Fatalf("the task is %s: %s", task.GetStatus().GetState(), agent.Text(task.GetStatus().GetMessage()))
	}
	s.check(t, task.GetId())
	return task
}

// told streams a text and returns what was told, the task last; and checks.
func (s *stage) told(t testing.TB, c rig.Client, tenant, text string, want a2av1.TaskState) ([]*a2av1.StreamResponse, *a2av1.Task) {
	t.Helper()
	updates, err := rig.Collect(c.Stream(t.Context(), s.message(tenant, text)))
	if err != nil {
		t.Fatal(err)
	}
	task := s.check(t, updates[0].GetTask().GetId())
	if task.GetStatus().GetState() != want {
		t.Fatalf("the task is %s: %s", task.GetStatus().GetState(), agent.Text(task.GetStatus().GetMessage()))
	}
	if last := updates[len(updates)-1].GetStatusUpdate().GetStatus().GetState(); last != want {
		t.Errorf("the stream ends with %s", updates[len(updates)-1])
	}
	return updates, task
}

// check checks the invariants of a task, and returns it.
func (s *stage) check(t testing.TB, id string) *a2av1.Task {
	t.Helper()
	rig.Invariants{Target: s.Target, Store: s.store, Models: []rig.Models{s.llm}}.Check(t, id)
	return s.get(t, id)
}

func (s *stage) get(t testing.TB, id string) *a2av1.Task {
	t.Helper()
	task, err := s.client(t, false).Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// asks are the texts that a model was asked, in the order they arrived.
func (s *stage) asks(models ...string) []string {
	var out []string
	for _, r := range s.llm.Requests(models...) {
		out = append(out, r.Model+" < "+r.Last())
	}
	return out
}

// repeats has models answer with their name around what they are asked.
func (s *stage) repeats(models ...string) {
	for _, m := range models {
		s.llm.Answer(m, func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: m + "(" + r.Last() + ")"} })
	}
}

// runOf is the team-run metadata of a task.
func runOf(task *a2av1.Task) *teamv1.TeamRun { return a2a.RunOf(task.GetMetadata()) }

// shelf is what a task's artifacts say: name, delegation, text.
func shelf(task *a2av1.Task) []string {
	var out []string
	for _, a := range task.GetArtifacts() {
		_, scope, _ := strings.Cut(a2a.RunOf(a.GetMetadata()).GetDelegationId(), "~")
		out = append(out, strings.TrimSpace(a.GetName()+" "+scope)+": "+agent.Text(&a2av1.Message{Parts: a.GetParts()}))
	}
	return out
}
