// Package managed makes, changes and deletes teams of running servers over the wire,
// on each kind of store.
package managed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// wait is how long a test waits for what must come.
const wait = 30 * time.Second

// base is the file of the servers: a model, two agents, a team, and keys: "acme/ann"
// manages, "acme/bob" does not.
const base = `version: v1
models: {m: {api: true, provider: openai, name: m, base_url: "${LLM}", api_key: k}}
agents:
  writer: {api: true, model: m, instructions: Write well.}
  parrot: {api: true, scripted: {steps: [{text: "parrot: {{input}}"}]}}
teams:
  desk: {api: true, members: [{agent: writer}, {agent: parrot}], supervisor: {rules: [{id: one, when: "turn == 1", next: [parrot]}, {id: end, when: "true", finish: last}]}}
server:
  egress: {allow: [127.0.0.0/8]}
  default_agent: desk
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", manage: true, permissions: [READ, CALL, ANSWER, ADMIN]}, {name: bob, account: acme, sha256: "${BOB}"}]}
`

// house is a running server.
type house struct {
	rig.Target // as ann
	llm        *fakellm.Server
	running    *serve.Running
	stop       func()
}

// open serves a file on a store until the test ends or stop is called.
func open(t testing.TB, at rig.Place, file string, llm *fakellm.Server) *house {
	t.Helper()
	s := whole.Open(t, at, file, llm)
	return &house{s.Target, llm, s.Running, s.Stop}
}

// api is the two services over one binding.
type api struct {
	binding string
	teams   teamv1.TeamServiceClient
	agents  teamv1.RegistryServiceClient
}

func apis(t testing.TB, target rig.Target) []api {
	t.Helper()
	var all []api
	for _, s := range rig.Services(t, target) {
		all = append(all, api{s.Binding(), teamv1.NewTeamServiceClient(s), teamv1.NewRegistryServiceClient(s)})
	}
	return all
}

// each runs a test over each binding on each kind of store.
func each(t *testing.T, test func(t *testing.T, h *house, a api)) {
	t.Helper()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for i, name := range []string{"grpc", "rest"} {
			t.Run(name, func(t *testing.T) {
				h := open(t, at.Another(t), base, fakellm.New(t))
				test(t, h, apis(t, h.Target)[i])
			})
		}
	})
}

// team is a document: a team of one scripted agent of its own, which says a text.
func team(id, says string) string {
	return fmt.Sprintf("agents:\n  %[1]s_one: {scripted: {steps: [{text: %[2]q}]}}\nteams:\n  %[1]s: {members: [{agent: %[1]s_one}], "+rules("%[1]s_one")+"}\n", id, says)
}

func rules(member string) string {
	return "supervisor: {rules: [{id: one, when: \"turn == 1\", next: [" + member + "]}, {id: end, when: \"true\", finish: last}]}"
}

func (a api) create(t testing.TB, yaml string) *teamv1.Team {
	t.Helper()
	resp, err := a.teams.CreateTeam(t.Context(), yamlOf(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTeam()
}

func yamlOf(yaml string) *teamv1.CreateTeamRequest {
	return &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: yaml}}
}

func update(id, etag, yaml string) *teamv1.UpdateTeamRequest {
	return &teamv1.UpdateTeamRequest{TeamId: id, Etag: etag, Form: &teamv1.UpdateTeamRequest_Yaml{Yaml: yaml}}
}

func (a api) get(t testing.TB, id string) *teamv1.Team {
	t.Helper()
	resp, err := a.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTeam()
}

// fault checks the reason, code and fields of an error, and returns it.
func fault(t testing.TB, err error, code, reason string, fields ...string) *rig.Error {
	t.Helper()
	f := rig.Fault(err)
	if f == nil {
		t.Fatalf("no error, want %s", reason)
	}
	if f.Code != code || f.Reason != reason || strings.Join(f.Fields, " ") != strings.Join(fields, " ") {
		t.Errorf("%s %s %v: %s; want %s %s %v", f.Code, f.Reason, f.Fields, f.Message, code, reason, fields)
	}
	return f
}

// says runs a team and checks its answer.
func (h *house) says(t testing.TB, tenant, text, want string) {
	t.Helper()
	task, err := h.send(t, rig.Text(tenant, uuid.NewString(), text))
	if err != nil {
		t.Fatal(err)
	}
	if got := answer(task); got != want {
		t.Errorf("%s answers %q, want %q", tenant, got, want)
	}
}

func (h *house) send(t testing.TB, req *a2av1.SendMessageRequest) (*a2av1.Task, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	resp, err := h.client(t).Send(ctx, req)
	return resp.GetTask(), err
}

func (h *house) client(t testing.TB) *rig.GRPC {
	t.Helper()
	g, err := rig.NewGRPC(h.Target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// answer is what a task answered, or how it stands.
func answer(task *a2av1.Task) string {
	for _, a := range task.GetArtifacts() {
		if a.GetMetadata() == nil || !strings.Contains(a.GetMetadata().String(), "delegationId") {
			return agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
	}
	return task.GetStatus().GetState().String() + " " + agent.Text(task.GetStatus().GetMessage())
}

// until waits until something is so.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %s: %s", wait, what)
		}
		time.Sleep(5 * time.Millisecond) // it is another process' doing: there is nothing to wait for
	}
}

// ended waits for the end of a task.
func (h *house) ended(t testing.TB, id string) *a2av1.Task {
	t.Helper()
	c := h.client(t)
	var task *a2av1.Task
	until(t, "task "+id+" has ended", func() bool {
		var err error
		if task, err = c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		switch task.GetStatus().GetState() {
		case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_REJECTED, a2av1.TaskState_TASK_STATE_CANCELED:
			return true
		}
		return false
	})
	return task
}
