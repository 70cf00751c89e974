// Package collab runs collaborations of running servers over the wire, on each kind
// of store.
package collab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// wait is how long a test waits for what must come.
const wait = 30 * time.Second

// base is the file of the servers: models a to d, with an agent each, and teams of
// them. ann manages, bob does not.
const base = `version: v1
models:
  a: {api: true, provider: openai, name: a, base_url: "${LLM}", api_key: k}
  b: {api: true, provider: openai, name: b, base_url: "${LLM}", api_key: k}
  c: {api: true, provider: openai, name: c, base_url: "${LLM}", api_key: k}
  lead: {api: true, provider: openai, name: lead, base_url: "${LLM}", api_key: k}
  scout: {api: true, provider: openai, name: scout, base_url: "${LLM}", api_key: k}
  keyless: {api: true, provider: anthropic, name: silent}
agents:
  a: {api: true, model: a, instructions: You are a.}
  b: {api: true, model: b, instructions: You are b.}
  c: {api: true, model: c, instructions: You are c.}
  echo: {api: true, scripted: {steps: [{text: "{{input}}"}]}}
teams:
  line:
    api: true
    members: [{agent: a, role: finder}, {agent: b, role: writer}, {agent: c}]
    limits: {member_timeout: 20s}
    workflow: {steps: [{id: find, agent: a}, {id: write, agent: b, after: [find], task: "{{input}} {{steps.find.text}}"}, {id: check, agent: c, after: [write]}]}
  wide:
    members: [{agent: a}, {agent: b}, {agent: c}]
    limits: {max_parallel: 2}
    workflow: {steps: [{parallel: [{id: one, agent: a, task: "First {{input}}"}, {id: two, agent: b}, {id: three, agent: c}]}]}
  boss:
    members: [{agent: a}, {agent: b}]
    max_concurrent_collaborations: 2
    coordinator: {leader: {model: lead, instructions: Lead.}}
  quick:
    api: true
    members: [{agent: echo}]
    workflow: {steps: [{id: say, agent: echo}]}
server:
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", manage: true, permissions: [READ, CALL, ANSWER, ADMIN]}, {name: bob, account: acme, sha256: "${BOB}"}]}
`

// house is a running server.
type house struct {
	rig.Target // as ann
	llm        *fakellm.Server
	stop       func()
}

// open serves a file on a store until the test ends or stop is called.
func open(t testing.TB, at rig.Place, file string, llm *fakellm.Server) *house {
	t.Helper()
	s := whole.Open(t, at, file, llm)
	return &house{s.Target, llm, s.Stop}
}

// api is the services over one binding.
type api struct {
	binding string
	teamv1.CollaborationServiceClient
	teams   teamv1.TeamServiceClient
	monitor teamv1.MonitorServiceClient // over gRPC: it streams
}

func apis(t testing.TB, target rig.Target) []api {
	t.Helper()
	var all []api
	services := rig.Services(t, target)
	for _, s := range services {
		all = append(all, api{s.Binding(), teamv1.NewCollaborationServiceClient(s), teamv1.NewTeamServiceClient(s), teamv1.NewMonitorServiceClient(services[0])})
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

// request is one that may be started.
func request(team string) *teamv1.StartCollaborationRequest {
	return &teamv1.StartCollaborationRequest{TeamId: team, TaskDescription: "Write about the tides.", ExpectedOutput: "Three sentences."}
}

func with(req *teamv1.StartCollaborationRequest, change func(*teamv1.StartCollaborationRequest)) *teamv1.StartCollaborationRequest {
	change(req)
	return req
}

func bounded(most time.Duration) *teamv1.CollaborationConstraints {
	return &teamv1.CollaborationConstraints{MaxDuration: durationpb.New(most)}
}

func object(t testing.TB, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (a api) start(t testing.TB, req *teamv1.StartCollaborationRequest) *teamv1.StartCollaborationResponse {
	t.Helper()
	resp, err := a.StartCollaboration(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (a api) status(t testing.TB, id string) *teamv1.GetCollaborationStatusResponse {
	t.Helper()
	resp, err := a.GetCollaborationStatus(t.Context(), &teamv1.GetCollaborationStatusRequest{CollaborationId: id, IncludeDetails: true})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// until waits until a collaboration stands so: it is looked at when something has
// happened to it.
func (a api) until(t testing.TB, id, what string, is func(*teamv1.GetCollaborationStatusResponse) bool) *teamv1.GetCollaborationStatusResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	events, err := a.monitor.WatchTask(ctx, &teamv1.WatchTaskRequest{TaskId: id})
	for err == nil {
		if _, err = events.Recv(); err == nil || errors.Is(err, io.EOF) {
			if s := a.status(t, id); is(s) {
				return s
			}
		}
	}
	t.Fatalf("not %s: %v, %v", what, a.status(t, id), err)
	return nil
}

// ended waits for the end of a collaboration.
func (a api) ended(t testing.TB, id string) *teamv1.GetCollaborationStatusResponse {
	t.Helper()
	return a.until(t, id, "ended", func(s *teamv1.GetCollaborationStatusResponse) bool {
		return s.GetStatus() == "completed" || s.GetStatus() == "failed"
	})
}

// finish ends one that has ended, for its results.
func (a api) finish(t testing.TB, id string, change ...func(*teamv1.StopCollaborationRequest)) *teamv1.StopCollaborationResponse {
	t.Helper()
	req := &teamv1.StopCollaborationRequest{CollaborationId: id}
	for _, c := range change {
		c(req)
	}
	resp, err := a.StopCollaboration(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// fault checks the code, reason and fields of an error, and returns it.
func fault(t testing.TB, err error, code, reason string, fields ...string) *rig.Error {
	t.Helper()
	f := rig.Fault(err)
	if f == nil {
		t.Fatalf("no error, want %s", reason)
	}
	if f.Code != code || f.Reason != reason || strings.Join(f.Fields, " ") != strings.Join(slices.Sorted(slices.Values(fields)), " ") {
		t.Errorf("%s %s %v: %s; want %s %s %v", f.Code, f.Reason, f.Fields, f.Message, code, reason, fields)
	}
	return f
}

// agents are what members do, in words: id=status.
func agents(s *teamv1.GetCollaborationStatusResponse) string {
	var list []string
	for _, a := range s.GetAgents() {
		list = append(list, a.GetAgentId()+"="+a.GetStatus())
	}
	return strings.Join(list, " ")
}

// gated has models answer with their names when their gates are open.
func (h *house) gated(t testing.TB, models ...string) map[string]*fakellm.Gate {
	t.Helper()
	gates := map[string]*fakellm.Gate{}
	for _, m := range models {
		gates[m] = fakellm.NewGate()
		t.Cleanup(gates[m].Open)
		h.llm.Script(m, fakellm.Turn{Text: "said by " + m, Gate: gates[m], Forever: true})
	}
	return gates
}

// says has models answer with their names at once.
func (h *house) says(models ...string) {
	for _, m := range models {
		h.llm.Script(m, fakellm.Turn{Text: "said by " + m, Forever: true})
	}
}

// held waits until a gate holds a request.
func held(t testing.TB, g *fakellm.Gate) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := g.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
}

func (h *house) grpc(t testing.TB) *rig.GRPC {
	t.Helper()
	g, err := rig.NewGRPC(h.Target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func (h *house) task(t testing.TB, id string) *a2av1.Task {
	t.Helper()
	task, err := h.grpc(t).Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (h *house) trace(t testing.TB, id string) *teamv1.Trace {
	t.Helper()
	resp, err := teamv1.NewMonitorServiceClient(h.grpc(t).Conn).GetTrace(h.grpc(t).Context(t.Context()), &teamv1.GetTraceRequest{TaskId: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTrace()
}

// contract makes a call of the contract: its HTTP status, and what it answers.
func (h *house) contract(t testing.TB, call, body string) (int, map[string]any) {
	t.Helper()
	answer, err := h.Do(t.Context(), http.MethodPost, "/team/v1/contract/"+call, []byte(body), map[string]string{"Content-Type": "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := answer.Body()
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %s: %v", call, b, err)
	}
	return answer.Status, v
}
