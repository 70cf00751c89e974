package managed

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// haltedFile has a team for each kind of subject: the pair has a team as its first member, the asker
// asks a person, and the seeker works with a tool.
const haltedFile = `version: v1
models:
  m: {provider: openai, name: model-m, base_url: "${LLM}", api_key: k}
  spare: {provider: openai, name: model-spare, base_url: "${LLM}", api_key: k}
  safe: {provider: openai, name: model-safe, base_url: "${LLM}", api_key: k, fallback: [spare]}
tools:
  sea: {mcp: {url: "${SEA}", effects: {"*": SAFE}}}
agents:
  writer: {description: Writes., model: m}
  careful: {description: Writes with a spare model., model: safe}
  diver: {description: Dives., model: m, tools: [sea]}
  parrot: {scripted: {steps: [{text: "parrot: {{input}}"}]}}
teams:
  desk: {members: [{agent: writer}], workflow: {steps: [{id: write, agent: writer}]}}
  pair: {members: [{agent: desk}, {agent: parrot}], workflow: {on_member_error: CONTINUE_PARTIAL, steps: [{parallel: [{id: a, agent: desk}, {id: b, agent: parrot}]}]}}
  safety: {members: [{agent: careful}], workflow: {steps: [{id: write, agent: careful}]}}
  seeker: {members: [{agent: diver}], workflow: {steps: [{id: seek, agent: diver}]}}
  asker: {members: [{agent: parrot}], workflow: {steps: [{id: ask, human: {question: "Go on?"}}, {id: say, agent: parrot}]}}
server:
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", manage: true, permissions: [READ, CALL, ANSWER, ADMIN]}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`

// halts is a running server with haltedFile.
type halts struct {
	*testing.T
	*house
	service teamv1.HaltServiceClient
	dives   func() int // calls of the tool
}

// haltsOn serves haltedFile on a store. The halt service is called over gRPC.
func haltsOn(t *testing.T, at rig.Place) *halts {
	t.Helper()
	llm := fakellm.New(t)
	dives := make(chan struct{}, 100)
	tools := mcp.NewServer(&mcp.Implementation{Name: "sea", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "dive"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		dives <- struct{}{}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a pearl"}}}, nil, nil
	})
	sea := newServer(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil).ServeHTTP)
	h := &halts{T: t, house: open(t, at, strings.ReplaceAll(haltedFile, "${SEA}", sea), llm), dives: func() int { return len(dives) }}
	h.service = teamv1.NewHaltServiceClient(rig.Services(t, h.Target)[0])
	return h
}

func (h *halts) halt(kind teamv1.HaltKind, name string, pause bool) *teamv1.HaltResponse {
	h.Helper()
	resp, err := h.service.Halt(h.Context(), &teamv1.HaltRequest{Kind: kind, Name: name, Reason: "wrong prices", Pause: pause})
	if err != nil || len(resp.GetStragglers()) > 0 {
		h.Fatalf("halt of %s %q: %v, %v", kind, name, resp, err)
	}
	return resp
}

func (h *halts) resume(kind teamv1.HaltKind, name string) {
	h.Helper()
	if resp, err := h.service.Resume(h.Context(), &teamv1.ResumeRequest{Kind: kind, Name: name}); err != nil || resp.GetHalt() == nil {
		h.Fatalf("resume of %s %q: %v, %v", kind, name, resp, err)
	}
}

// begin sends a message and returns its task at once.
func (h *halts) begin(team, id string) *a2av1.Task {
	h.Helper()
	req := rig.Text(team, id, "the tides")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	task, err := h.send(h.T, req)
	if err != nil {
		h.Fatal(err)
	}
	return task
}

// stopped fails unless a halt has stopped only one task, with this outcome.
func (h *halts) stopped(resp *teamv1.HaltResponse, id string, state teamv1.HaltedState) *teamv1.HaltedTask {
	h.Helper()
	if len(resp.GetTasks()) != 1 || resp.GetTotal() != 1 || resp.GetTasks()[0].GetTaskId() != id || resp.GetTasks()[0].GetState() != state || resp.GetTasks()[0].GetOwner() != "acme/ann" {
		h.Fatalf("stopped are %v, want %s as %s", resp, id, state)
	}
	return resp.GetTasks()[0]
}

// held lets the next turn of a model wait, and returns its gate.
func (h *halts) held(model string) *fakellm.Gate {
	gate := fakellm.NewGate()
	h.llm.Script(model, fakellm.Turn{Text: "held", Gate: gate})
	return gate
}

func (h *halts) reached(gate *fakellm.Gate) {
	h.Helper()
	if err := gate.Wait(h.Context(), 1); err != nil {
		h.Fatal(err)
	}
}

// haltReason is the reason of the error of a task or step.
func haltReason(task *a2av1.Task) string { return a2a.RunOf(task.GetMetadata()).GetError().GetReason() }

const (
	ofTeam    = teamv1.HaltKind_HALT_KIND_TEAM
	ofAgent   = teamv1.HaltKind_HALT_KIND_AGENT
	ofModel   = teamv1.HaltKind_HALT_KIND_MODEL
	ofTool    = teamv1.HaltKind_HALT_KIND_TOOL
	ofAccount = teamv1.HaltKind_HALT_KIND_ACCOUNT
	canceled  = teamv1.HaltedState_HALTED_STATE_CANCELED
	paused    = teamv1.HaltedState_HALTED_STATE_PAUSED
)

// TestHalt_Refusal: a message to what is halted gets the same error over all bindings and does not use
// up its id. What was accepted before is answered, and another account is not concerned.
func TestHalt_Refusal(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := haltsOn(t, at)
		h.llm.Answer("model-m", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "a text"} })
		before, err := h.send(t, rig.Text("desk", "before", "the tides"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			kind teamv1.HaltKind
			name string
		}{{ofTeam, "desk"}, {ofAccount, "acme"}, {teamv1.HaltKind_HALT_KIND_SERVER, ""}} {
			h.halt(c.kind, c.name, true)
			id := strings.TrimPrefix(c.kind.String(), "HALT_KIND_")
			rig.Each(t, h.Target, func(t *testing.T, client rig.Client) {
				_, err := client.Send(t.Context(), rig.Text("desk", id+client.Binding(), "the tides"))
				f := fault(t, err, "FailedPrecondition", "HALTED")
				if f.Domain != "team-server" || f.Details["kind"] != id || f.Details["name"] != c.name || f.Details["by"] != "acme/ann" || f.Details["why"] != "wrong prices" || f.Details["at"] == "" {
					t.Errorf("details %v of %q", f.Details, f.Domain)
				}
				if client.Binding() == "rest" && f.HTTP != http.StatusBadRequest {
					t.Errorf("HTTP status %d", f.HTTP)
				}
				if client.Binding() == "jsonrpc" && f.RPC != -32023 {
					t.Errorf("JSON-RPC code %d", f.RPC)
				}
				for _, err := range client.Stream(t.Context(), rig.Text("desk", id+client.Binding(), "the tides")) {
					fault(t, err, "FailedPrecondition", "HALTED")
				}
				resp, err := client.Send(t.Context(), rig.Text("desk", "before", "the tides"))
				if err != nil || resp.GetTask().GetId() != before.GetId() {
					t.Errorf("the message from before: %v, %v", resp, err)
				}
			})
			eve, err := rig.NewREST(h.As("other", "eve")).Send(t.Context(), rig.Text("desk", id, "the tides"))
			if refused := c.kind != ofAccount; refused != (err != nil) {
				t.Errorf("eve of another account: %v, %v", eve, err)
			}
			h.resume(c.kind, c.name)
			rig.Each(t, h.Target, func(t *testing.T, client rig.Client) {
				resp, err := client.Send(t.Context(), rig.Text("desk", id+client.Binding(), "the tides"))
				if err != nil || answer(resp.GetTask()) != "a text" {
					t.Errorf("after the resume: %v, %v", resp, err)
				}
			})
		}
	})
}

// TestHalt_Member: a halted member of a team is a failure of that member, and what it was doing ends.
func TestHalt_Member(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for _, c := range []struct {
			kind teamv1.HaltKind
			name string
		}{{ofTeam, "desk"}, {ofAgent, "writer"}, {ofModel, "m"}, {ofModel, "model-m"}} {
			t.Run(c.kind.String()+" "+c.name, func(t *testing.T) {
				h := haltsOn(t, at.Another(t))
				gate := h.held("model-m")
				task := h.begin("pair", "one")
				h.reached(gate)
				resp := h.halt(c.kind, c.name, false)
				if len(resp.GetTasks()) != 1 || !strings.HasPrefix(resp.GetTasks()[0].GetTaskId(), task.GetId()+"~") || resp.GetTasks()[0].GetState() != canceled {
					t.Errorf("stopped are %v", resp.GetTasks())
				}
				ended := h.ended(t, task.GetId())
				run := a2a.RunOf(ended.GetMetadata())
				if got := answer(ended); ended.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || !strings.Contains(got, "parrot: the tides") {
					t.Errorf("%s %q: %v", ended.GetStatus().GetState(), got, run)
				}
				failed := run.GetFailedDelegations()
				if len(failed) != 2 { // the writer and the desk
					t.Errorf("failed delegations: %v", failed)
				}
				for _, f := range failed {
					if f.GetError().GetReason() != "HALTED" || f.GetOutcome() != teamv1.Outcome_OUTCOME_FAILED {
						t.Errorf("failed delegation: %v", f)
					}
				}
				again := h.ended(t, h.begin("pair", "two").GetId()) // the member is refused now
				if !strings.Contains(answer(again), "parrot: the tides") || len(h.llm.Requests()) != 1 {
					t.Errorf("the next task: %q, and %d requests of models", answer(again), len(h.llm.Requests()))
				}
			})
		}
	})
}

// TestHalt_MemberPaused: a run that comes to a member or a model that is paused waits for the resume.
func TestHalt_MemberPaused(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for _, c := range []struct {
			kind teamv1.HaltKind
			name string
		}{{ofTeam, "desk"}, {ofAgent, "writer"}, {ofModel, "m"}} {
			t.Run(c.kind.String()+" "+c.name, func(t *testing.T) {
				h := haltsOn(t, at.Another(t))
				h.llm.Answer("model-m", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "a text"} })
				h.halt(c.kind, c.name, true)
				task := h.begin("pair", "one")
				client := rig.NewREST(h.Target)
				shown := func(paused bool) {
					t.Helper()
					until(t, "the task is shown as paused or not", func() bool {
						now, err := client.Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "pair", Id: task.GetId()})
						return err == nil && a2a.RunOf(now.GetMetadata()).GetPaused() == paused
					})
				}
				shown(true)
				if n := len(h.llm.Requests()); n > 0 {
					t.Errorf("%d requests of models", n)
				}
				h.resume(c.kind, c.name)
				if got := answer(h.ended(t, task.GetId())); !strings.Contains(got, "a text") || !strings.Contains(got, "parrot: the tides") {
					t.Errorf("answer %q", got)
				}
			})
		}
	})
}

// TestHalt_Fallback: a fallback is used in place of a model that is halted, in time and too late.
func TestHalt_Fallback(t *testing.T) {
	t.Parallel()
	for _, pause := range []bool{false, true} {
		h := haltsOn(t, rig.Memory(t))
		h.llm.Answer("model-spare", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "a spare text"} })
		h.halt(ofModel, "safe", pause)
		if got := answer(h.ended(t, h.begin("safety", "one").GetId())); got != "a spare text" || len(h.llm.Requests("model-safe")) > 0 {
			t.Errorf("pause %v: answer %q", pause, got)
		}
		if pause {
			break
		}
		h.halt(ofModel, "spare", false)
		if task := h.ended(t, h.begin("safety", "two").GetId()); haltReason(task) != "HALTED" {
			t.Errorf("both halted: %v", task)
		}
		h.resume(ofModel, "spare")
		h.resume(ofModel, "safe")
		gate := h.held("model-safe")
		task := h.begin("safety", "three")
		h.reached(gate)
		h.halt(ofModel, "safe", false)
		if got := answer(h.ended(t, task.GetId())); got != "a spare text" {
			t.Errorf("in the middle of a turn: answer %q", got)
		}
	}
}

// TestHalt_FallbackNeeded: a task whose model fails pauses if its fallback is halted with a pause, and goes on with the
// fallback after the resume. Without a pause it fails for the reason of its model.
func TestHalt_FallbackNeeded(t *testing.T) {
	t.Parallel()
	h := haltsOn(t, rig.Memory(t))
	h.llm.Answer("model-safe", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Status: http.StatusUnauthorized} })
	h.llm.Answer("model-spare", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "a spare text"} })
	h.halt(ofModel, "spare", true)
	task := h.begin("safety", "one")
	until(t, "the task is paused", func() bool {
		now, err := rig.NewREST(h.Target).Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "safety", Id: task.GetId()})
		return err == nil && a2a.RunOf(now.GetMetadata()).GetPaused()
	})
	h.resume(ofModel, "spare")
	if got := answer(h.ended(t, task.GetId())); got != "a spare text" {
		t.Errorf("after the resume: answer %q", got)
	}
	h.halt(ofModel, "spare", false)
	if task := h.ended(t, h.begin("safety", "two").GetId()); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED {
		t.Errorf("without a pause: %v", task)
	}
}

// TestHalt_Tool: a model is told that a tool is halted, by its name or that of its server.
func TestHalt_Tool(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dive", "sea"} {
		h := haltsOn(t, rig.Memory(t))
		call := fakellm.Turn{Calls: []fakellm.Call{{Name: "dive", Arguments: "{}"}}}
		h.llm.Answer("model-m", func(r *fakellm.Request) fakellm.Turn {
			if last := r.Last(); strings.Contains(last, "dive failed") || strings.Contains(last, "pearl") {
				return fakellm.Turn{Text: last}
			}
			return call
		})
		h.halt(ofTool, name, false)
		if got := answer(h.ended(t, h.begin("seeker", "one").GetId())); !strings.Contains(got, "dive failed: tool \""+name+"\" was halted") || h.dives() > 0 {
			t.Errorf("halt of %s: answer %q, %d calls", name, got, h.dives())
		}
		h.halt(ofTool, name, true)
		task := h.begin("seeker", "two")
		until(t, "the task is paused", func() bool {
			now, err := rig.NewREST(h.Target).Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "seeker", Id: task.GetId()})
			return err == nil && a2a.RunOf(now.GetMetadata()).GetPaused()
		})
		h.resume(ofTool, name)
		if got := answer(h.ended(t, task.GetId())); got != "a pearl" || h.dives() != 1 {
			t.Errorf("after the resume of %s: answer %q, %d calls", name, got, h.dives())
		}
	}
}

// TestHalt_Questions: a task that waits for an answer is canceled by a halt, or waits on if that
// pauses, and takes no answer meanwhile.
func TestHalt_Questions(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := haltsOn(t, at)
		asking := func(id string) *a2av1.Task {
			task := h.begin("asker", id)
			until(t, "the question", func() bool {
				now, err := rig.NewREST(h.Target).Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "asker", Id: task.GetId()})
				return err == nil && now.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
			})
			return task
		}
		task := asking("one")
		if resp := h.halt(ofTeam, "asker", true); resp.GetTotal() != 0 {
			t.Errorf("stopped are %v", resp)
		}
		yes := rig.Text("asker", "yes", "yes")
		yes.Message.TaskId = task.GetId()
		rig.Each(t, h.Target, func(t *testing.T, client rig.Client) {
			_, err := client.Send(t.Context(), yes)
			fault(t, err, "FailedPrecondition", "HALTED")
		})
		h.resume(ofTeam, "asker")
		if done, err := h.send(t, yes); err != nil || answer(done) != "parrot: yes" {
			t.Errorf("the answer after the resume: %v, %v", done, err)
		}
		task = asking("two")
		resp := h.halt(ofTeam, "asker", false)
		h.stopped(resp, task.GetId(), canceled)
		if ended := h.ended(t, task.GetId()); ended.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED || haltReason(ended) != "HALTED" {
			t.Errorf("the task that waited: %v", ended)
		}
	})
}

// TestHalt_Paused: a task that a halt has paused is resumed only by the end of the halt, can be
// canceled, and one that a person has paused stays paused.
func TestHalt_Paused(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := haltsOn(t, at)
		collaborations := teamv1.NewCollaborationServiceClient(rig.Services(t, h.Target)[0])
		gate := h.held("model-m")
		start := func(id string) string {
			started, err := collaborations.StartCollaboration(t.Context(), &teamv1.StartCollaborationRequest{
				TeamId: "desk", TaskDescription: "Write about the tides.", ExpectedOutput: "A line.", RequestId: id,
			})
			if err != nil {
				t.Fatal(err)
			}
			return started.GetCollaborationId()
		}
		status := func(id, want string) {
			t.Helper()
			until(t, "the collaboration is "+want, func() bool {
				now, err := collaborations.GetCollaborationStatus(t.Context(), &teamv1.GetCollaborationStatusRequest{CollaborationId: id})
				return err == nil && now.GetStatus() == want
			})
		}
		own := start("one")
		h.reached(gate)
		if _, err := collaborations.PauseCollaboration(t.Context(), &teamv1.PauseCollaborationRequest{CollaborationId: own}); err != nil {
			t.Fatal(err)
		}
		h.halt(ofTeam, "desk", true)
		_, err := collaborations.ResumeCollaboration(t.Context(), &teamv1.ResumeCollaborationRequest{CollaborationId: own})
		fault(t, err, "FailedPrecondition", "HALTED")
		_, err = collaborations.StartCollaboration(t.Context(), &teamv1.StartCollaborationRequest{TeamId: "desk", TaskDescription: "Write about the tides.", ExpectedOutput: "A line.", RequestId: "two"})
		fault(t, err, "FailedPrecondition", "HALTED")
		h.resume(ofTeam, "desk")
		status(own, "paused")
		if _, err := collaborations.ResumeCollaboration(t.Context(), &teamv1.ResumeCollaborationRequest{CollaborationId: own}); err != nil {
			t.Fatal(err)
		}
		gate.Open()
		status(own, "completed")

		gate = h.held("model-m")
		task := h.begin("desk", "three")
		h.reached(gate)
		h.stopped(h.halt(ofTeam, "desk", true), task.GetId(), paused)
		now, err := rig.NewREST(h.Target).Cancel(t.Context(), &a2av1.CancelTaskRequest{Tenant: "desk", Id: task.GetId()})
		if err != nil || now.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED || haltReason(now) != "CANCELED" {
			t.Errorf("cancel: %v, %v", now, err)
		}
	})
}

// TestHalt_Service: the list, the permission and the faults of requests, over both bindings.
func TestHalt_Service(t *testing.T) {
	t.Parallel()
	h := haltsOn(t, rig.Memory(t))
	of := func(target rig.Target, i int) teamv1.HaltServiceClient {
		return teamv1.NewHaltServiceClient(rig.Services(t, target)[i])
	}
	for i, binding := range []string{"grpc", "rest"} {
		t.Run(binding, func(t *testing.T) {
			ann, bob, nobody := of(h.Target, i), of(h.As("acme", "bob"), i), of(rig.Target{GRPC: h.GRPC, HTTP: h.HTTP}, i)
			for name, do := range map[string]func(teamv1.HaltServiceClient) error{
				"halt": func(c teamv1.HaltServiceClient) error {
					_, err := c.Halt(t.Context(), &teamv1.HaltRequest{Kind: ofTeam, Name: "desk", Reason: "x"})
					return err
				},
				"resume": func(c teamv1.HaltServiceClient) error {
					_, err := c.Resume(t.Context(), &teamv1.ResumeRequest{Kind: ofTeam, Name: "desk"})
					return err
				},
				"list": func(c teamv1.HaltServiceClient) error {
					_, err := c.ListHalts(t.Context(), &teamv1.ListHaltsRequest{})
					return err
				},
			} {
				t.Run(name, func(t *testing.T) {
					fault(t, do(bob), "PermissionDenied", "PERMISSION_DENIED")
					fault(t, do(nobody), "Unauthenticated", "UNAUTHENTICATED")
				})
			}
			for fields, req := range map[string]*teamv1.HaltRequest{
				"kind reason": {},
				"name":        {Kind: teamv1.HaltKind_HALT_KIND_SERVER, Name: "x", Reason: "x"},
				"name reason": {Kind: ofTeam, Reason: strings.Repeat("x", 501)},
				"reason":      {Kind: ofTool, Name: "any", Reason: "  "},
				"name ":       {Kind: ofTeam, Name: "writer", Reason: "x"},
				"name  ":      {Kind: ofAgent, Name: "desk", Reason: "x"},
				"name   ":     {Kind: ofModel, Name: "n", Reason: "x"},
				"name    ":    {Kind: ofAccount, Name: strings.Repeat("x", 201), Reason: "x"},
				"kind ":       {Kind: 99, Name: "x", Reason: "x"},
			} {
				_, err := ann.Halt(t.Context(), req)
				fault(t, err, "InvalidArgument", "INVALID_REQUEST", strings.Fields(fields)...)
			}
			if resp, err := ann.Resume(t.Context(), &teamv1.ResumeRequest{Kind: ofTeam, Name: "desk"}); err != nil || resp.GetHalt() != nil {
				t.Errorf("resume of what is not halted: %v, %v", resp, err)
			}
			for _, name := range []string{"desk", "gone"} {
				if _, err := ann.Halt(t.Context(), &teamv1.HaltRequest{Kind: ofTeam, Name: name, Reason: "x", AllowUnknown: true}); err != nil {
					t.Fatal(err)
				}
			}
			list, err := ann.ListHalts(t.Context(), &teamv1.ListHaltsRequest{})
			if err != nil || len(list.GetHalts()) != 2 || list.GetHalts()[0].GetName() != "desk" || list.GetHalts()[1].GetName() != "gone" {
				t.Errorf("list: %v, %v", list, err)
			}
			for _, name := range []string{"desk", "gone"} {
				if resp, err := ann.Resume(t.Context(), &teamv1.ResumeRequest{Kind: ofTeam, Name: name}); err != nil || resp.GetHalt().GetName() != name {
					t.Errorf("resume: %v, %v", resp, err)
				}
			}
		})
	}
}
