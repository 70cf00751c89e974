package collab

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// stopped is what came of a stop.
type stopped struct {
	resp *teamv1.StopCollaborationResponse
	err  error
}

// TestS_43_StopMatrix: at once or not, with results or not, in the middle.
func TestS_43_StopMatrix(t *testing.T) {
	each(t, func(t *testing.T, h *house, a api) {
		for _, force := range []bool{true, false} {
			for _, keep := range []bool{true, false} {
				t.Run(fmt.Sprintf("force %t, save %t", force, keep), func(t *testing.T) {
					h.says("a", "c")
					gate := fakellm.NewGate()
					t.Cleanup(gate.Open)
					h.llm.Script("b", fakellm.Turn{Text: "said by b", Gate: gate})
					before := len(h.llm.Requests("c"))
					id := a.start(t, request("line")).GetCollaborationId()
					held(t, gate)
					a.working(t, id, "b")
					done := make(chan stopped, 1)
					go func() {
						ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait)
						defer cancel()
						resp, err := a.StopCollaboration(ctx, &teamv1.StopCollaborationRequest{
							CollaborationId: id, ForceStop: force, SavePartial: proto.Bool(keep), Reason: "enough",
						})
						done <- stopped{resp, err}
					}()
					if !force {
						a.until(t, id, "stopping", (*teamv1.GetCollaborationStatusResponse).GetStopping)
						select {
						case s := <-done:
							t.Fatalf("R-001-41 it did not wait: %v, %v", s.resp, s.err)
						default:
						}
						gate.Open()
					}
					asked := time.Now()
					s := <-done
					if s.err != nil {
						t.Fatal(s.err)
					}
					if took := time.Since(asked); force && took > 5*time.Second {
						t.Errorf("R-001-41 it took %v", took)
					}
					if force {
						ctx, cancel := context.WithTimeout(t.Context(), wait)
						defer cancel()
						if err := h.llm.Quiet(ctx); err != nil {
							t.Errorf("R-001-41 the member's request is still there: %v", err)
						}
					}
					if n := len(h.llm.Requests("c")); n != before {
						t.Error("R-001-41 another step has begun")
					}
					h.checkStopped(t, a, id, s.resp, force, keep)
					if again := a.finish(t, id, func(r *teamv1.StopCollaborationRequest) { r.SavePartial = proto.Bool(!keep) }); !proto.Equal(again, s.resp) {
						t.Errorf("R-001-43 once more: %v, first %v", again, s.resp)
					}
				})
			}
		}
	})
}

// checkStopped looks at what came of a stop, and where else it is shown.
func (h *house) checkStopped(t *testing.T, a api, id string, resp *teamv1.StopCollaborationResponse, force, keep bool) {
	t.Helper()
	if resp.GetFinalStatus() != "terminated" || resp.GetMetrics().GetMessagesExchanged() == 0 {
		t.Errorf("R-001-43 %v", resp)
	}
	var brought []string
	for _, c := range resp.GetResults().GetContributions() {
		brought = append(brought, c.GetAgentId())
	}
	want := map[bool]map[bool]string{true: {true: "[a]", false: "[]"}, false: {true: "[a b]", false: "[]"}}[force][keep]
	if fmt.Sprint(brought) != want {
		t.Errorf("R-001-42 contributions of %v, want %s", brought, want)
	}
	s := a.status(t, id)
	if s.GetStatus() != "failed" || (len(s.GetPartialResults()) > 0) != keep {
		t.Errorf("R-001-42 %s, partial results %v", s.GetStatus(), s.GetPartialResults())
	}
	task := h.task(t, id)
	text := ""
	for _, art := range task.GetArtifacts() {
		text += agent.Text(&a2av1.Message{Parts: art.GetParts()})
	}
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED || !keep && text != "" {
		t.Errorf("R-001-42 the task is %v with %q", task.GetStatus(), text)
	}
	for _, part := range []string{"~1", "~2"} {
		if task := h.task(t, id+part); !keep && len(task.GetArtifacts()) > 0 {
			t.Errorf("R-001-42 its part shows %v", task)
		}
	}
}

// TestR_001_42_ShownAfterAStop: a stop drops the results and the artifacts, while what runs
// goes on and after the end; everything else is shown as before.
func TestR_001_42_ShownAfterAStop(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := open(t, at, strings.Replace(base, "  quick:\n", `  press:
    members: [{agent: a}, {agent: b}, {agent: c}]
    workflow:
      steps:
        - {id: find, agent: a}
        - {id: ask, after: [find], human: {question: "Publish {{steps.find.text}}?"}}
        - {id: write, agent: b, after: [find], task: "Write of {{steps.find.text}}"}
        - {id: check, agent: c, after: [ask, write]}
  quick:
`, 1), fakellm.New(t))
		h.says("a", "c")
		gate := h.gated(t, "b")["b"]
		a := apis(t, h.Target)[0]
		id := a.start(t, request("press")).GetCollaborationId()
		held(t, gate)
		a.until(t, id, "asking", func(s *teamv1.GetCollaborationStatusResponse) bool { return len(s.GetQuestions()) == 1 })
		done := make(chan error, 1)
		go func() {
			_, err := a.StopCollaboration(context.WithoutCancel(t.Context()), &teamv1.StopCollaborationRequest{CollaborationId: id, SavePartial: proto.Bool(false)})
			done <- err
		}()
		a.until(t, id, "stopping", (*teamv1.GetCollaborationStatusResponse).GetStopping)
		if s := a.status(t, id); len(s.GetQuestions()) != 1 || !strings.Contains(protojson.Format(s.GetQuestions()[0]), "said by a") {
			t.Error("the question is not shown while it is being stopped:", s)
		}
		h.dropped(t, id)
		gate.Open()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		h.dropped(t, id)
	})
}

// dropped checks that a collaboration shows no results, and its trace all the same what
// its members have said, over each binding.
func (h *house) dropped(t testing.TB, id string) {
	t.Helper()
	for _, a := range apis(t, h.Target) {
		if s := a.status(t, id); len(s.GetPartialResults()) > 0 {
			t.Errorf("partial results: %v", s)
		}
	}
	for _, m := range rig.Monitors(t, h.Target) {
		trace, err := m.Trace(t.Context(), id)
		if err != nil || !strings.Contains(protojson.Format(trace), "said by a") {
			t.Errorf("%s: the trace is %v, %v", m.Binding(), trace, err)
		}
	}
	for _, c := range rig.Clients(t, h.Target) {
		task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
		if err != nil || len(task.GetArtifacts()) > 0 {
			t.Errorf("%s: the task is %v, %v", c.Binding(), task, err)
		}
		list, err := c.List(t.Context(), &a2av1.ListTasksRequest{IncludeArtifacts: proto.Bool(true)})
		if err != nil || len(list.GetTasks()) == 0 || len(list.GetTasks()[0].GetArtifacts()) > 0 {
			t.Errorf("%s: the tasks are %v, %v", c.Binding(), list, err)
		}
	}
}

// TestS_43_StopAfterTheEnd: nothing changes, whatever is asked for.
func TestS_43_StopAfterTheEnd(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		h.says("a", "b", "c")
		id := a.start(t, request("line")).GetCollaborationId()
		a.ended(t, id)
		first := a.finish(t, id)
		for _, force := range []bool{true, false} {
			for _, keep := range []bool{true, false} {
				again := a.finish(t, id, func(r *teamv1.StopCollaborationRequest) { r.ForceStop, r.SavePartial = force, proto.Bool(keep) })
				if again.GetFinalStatus() != "completed" || len(again.GetResults().GetContributions()) != 3 || !proto.Equal(first, again) {
					t.Errorf("R-001-43 force %t, save %t: %v", force, keep, again)
				}
			}
		}
	})
}

// TestR_001_41_WaitTimeout: who does not wait for the end is told that it comes.
func TestR_001_41_WaitTimeout(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	gates := h.gated(t, "a")
	a := apis(t, h.Target)[0]
	id := a.start(t, request("line")).GetCollaborationId()
	held(t, gates["a"])
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := a.StopCollaboration(ctx, &teamv1.StopCollaborationRequest{CollaborationId: id}); err == nil {
		t.Error("it has ended")
	}
	if s := a.status(t, id); !s.GetStopping() || s.GetStatus() != "executing" {
		t.Errorf("%v", s)
	}
	gates["a"].Open()
	a.ended(t, id)
	if got := a.finish(t, id); got.GetFinalStatus() != "terminated" {
		t.Errorf("%v", got)
	}
}

// TestR_001_39_S_44_PauseAndResume: nothing more begins while it is paused; then it goes on.
func TestR_001_39_S_44_PauseAndResume(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		gates := h.gated(t, "a")
		h.says("b", "c")
		id := a.start(t, request("line")).GetCollaborationId()
		held(t, gates["a"])
		for range 2 { // twice is no error
			resp, err := a.PauseCollaboration(t.Context(), &teamv1.PauseCollaborationRequest{CollaborationId: id})
			if err != nil || resp.GetCollaboration().GetStatus() != "paused" {
				t.Fatalf("R-001-39 %v, %v", resp, err)
			}
		}
		gates["a"].Open()
		a.until(t, id, "what ran has ended", func(*teamv1.GetCollaborationStatusResponse) bool {
			return h.trace(t, id).GetStep().GetSteps()[0].GetSteps()[0].GetEnded() != nil
		})
		if s := a.status(t, id); s.GetStatus() != "paused" || len(h.llm.Requests("b")) > 0 {
			t.Errorf("R-001-39 C-15 %s, %d calls of b", s.GetStatus(), len(h.llm.Requests("b")))
		}
		if st := h.task(t, id).GetStatus().GetState(); st != a2av1.TaskState_TASK_STATE_WORKING {
			t.Errorf("C-15 the task is %v", st)
		}
		resp, err := a.ResumeCollaboration(t.Context(), &teamv1.ResumeCollaborationRequest{CollaborationId: id})
		if err != nil || resp.GetCollaboration().GetStatus() == "paused" {
			t.Fatalf("%v, %v", resp, err)
		}
		if s := a.ended(t, id); s.GetStatus() != "completed" || len(h.llm.Requests("a")) != 1 {
			t.Errorf("%v", s)
		}
		_, err = a.PauseCollaboration(t.Context(), &teamv1.PauseCollaborationRequest{CollaborationId: id})
		fault(t, err, "FailedPrecondition", "UNSUPPORTED_OPERATION")
	})
}

// TestR_001_16_DeleteTeam: a team with collaborations is deleted with force alone, which
// stops those of all callers; its status counts them.
func TestR_001_16_DeleteTeam(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		yaml := "teams: {mine: {members: [{agent: a}], max_concurrent_collaborations: 3, workflow: {steps: [{id: find, agent: a}]}}}"
		if _, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: yaml}}); err != nil {
			t.Fatal(err)
		}
		gate := fakellm.NewGate()
		t.Cleanup(gate.Open)
		h.llm.Script("a", fakellm.Turn{Text: "x"}, fakellm.Turn{Text: "x", Gate: gate, Forever: true})
		a.ended(t, a.start(t, request("mine")).GetCollaborationId())
		bob := apis(t, h.As("acme", "bob"))[0]
		mine, his := a.start(t, request("mine")), bob.start(t, request("mine"))
		held(t, gate)
		st, err := a.teams.GetTeamStatus(t.Context(), &teamv1.GetTeamStatusRequest{TeamId: "mine"})
		if err != nil || st.GetCollaborationsRunning() != 2 || st.GetLastCollaboration() != "completed" {
			t.Errorf("%v, %v", st, err)
		}
		_, err = a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "mine"})
		if f := fault(t, err, "FailedPrecondition", "COLLABORATION_IN_PROGRESS"); f.Retry <= 0 || !strings.Contains(f.Message, `team "mine" has 2 running collaborations`) {
			t.Error("it does not say when to come again, or how many there are: ", f.Message)
		}
		_, err = bob.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "mine", Force: true})
		fault(t, err, "PermissionDenied", "PERMISSION_DENIED")
		if _, err = a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "mine", Force: true}); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*teamv1.StopCollaborationResponse{a.finish(t, mine.GetCollaborationId()), bob.finish(t, his.GetCollaborationId())} {
			if r.GetFinalStatus() != "terminated" {
				t.Errorf("%v", r)
			}
		}
		_, err = a.StartCollaboration(t.Context(), request("mine"))
		fault(t, err, "NotFound", "TEAM_NOT_FOUND")
	})
}

// TestR_001_16_DeleteBesidesAStart: a team is deleted or a collaboration of it started,
// and with force what was started is stopped.
func TestR_001_16_DeleteBesidesAStart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		gate := fakellm.NewGate()
		t.Cleanup(gate.Open)
		h.llm.Script("a", fakellm.Turn{Text: "x", Gate: gate, Forever: true})
		for n := range 20 {
			team, force := fmt.Sprintf("team%d", n), n%2 == 0
			yaml := "teams: {" + team + ": {members: [{agent: a}], workflow: {steps: [{id: find, agent: a}]}}}"
			if _, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: yaml}}); err != nil {
				t.Fatal(err)
			}
			var started *teamv1.StartCollaborationResponse
			var startErr, deleteErr error
			var both sync.WaitGroup
			both.Go(func() { started, startErr = a.StartCollaboration(t.Context(), request(team)) })
			both.Go(func() {
				_, deleteErr = a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: team, Force: force})
			})
			both.Wait()
			switch {
			case startErr != nil:
				fault(t, startErr, "NotFound", "TEAM_NOT_FOUND")
			case force:
				if st := a.status(t, started.GetCollaborationId()); st.GetStatus() != "failed" {
					t.Errorf("it goes on after its team was deleted with force: %v", st)
				}
			default:
				fault(t, deleteErr, "FailedPrecondition", "COLLABORATION_IN_PROGRESS")
			}
			if (startErr != nil || force) && deleteErr != nil {
				t.Errorf("the team is not deleted: %v", deleteErr)
			}
		}
	})
}

// TestR_001_30_TwoServers: of starts at the same time, at two servers on one store, as
// many begin as may; each server has a say in what the other one drives.
func TestR_001_30_TwoServers(t *testing.T) {
	t.Parallel()
	at, llm := rig.PostgreSQL(t), fakellm.New(t)
	h := open(t, at, base, llm)
	gates := h.gated(t, "a")
	h.says("b", "c")
	here, there := apis(t, h.Target)[0], apis(t, open(t, at, base, llm).Target)[1]
	answers := make(chan error, 8)
	begun := make(chan string, cap(answers))
	for i := range cap(answers) {
		go func() {
			resp, err := []api{here, there}[i%2].StartCollaboration(t.Context(), request("line"))
			if err == nil {
				begun <- resp.GetCollaborationId()
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			fault(t, err, "FailedPrecondition", "COLLABORATION_IN_PROGRESS")
		}
	}
	if len(begun) != 1 {
		t.Fatalf("%d have begun", len(begun))
	}
	id := <-begun
	held(t, gates["a"])
	for _, who := range [][2]api{{here, there}, {there, here}} {
		if _, err := who[0].PauseCollaboration(t.Context(), &teamv1.PauseCollaborationRequest{CollaborationId: id}); err != nil {
			t.Fatal(err)
		}
		if s := who[1].status(t, id); s.GetStatus() != "paused" {
			t.Errorf("R-001-39 %v", s)
		}
		if _, err := who[1].ResumeCollaboration(t.Context(), &teamv1.ResumeCollaborationRequest{CollaborationId: id}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan stopped, 2)
	for _, a := range []api{here, there} {
		go func() {
			resp, err := a.StopCollaboration(t.Context(), &teamv1.StopCollaborationRequest{CollaborationId: id})
			done <- stopped{resp, err}
		}()
	}
	here.until(t, id, "stopping", (*teamv1.GetCollaborationStatusResponse).GetStopping)
	gates["a"].Open()
	for range cap(done) {
		if s := <-done; s.err != nil || s.resp.GetFinalStatus() != "terminated" || len(s.resp.GetResults().GetContributions()) != 1 {
			t.Errorf("R-001-41 %v, %v", s.resp, s.err)
		}
	}
	if n := len(llm.Requests("a")) + len(llm.Requests("b")); n != 1 {
		t.Errorf("%d calls of models", n)
	}
}

// TestR_001_41_WaitGivenUp: who does not wait for the end of a stop is told that it is
// being stopped.
func TestR_001_41_WaitGivenUp(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	gate := fakellm.NewGate()
	t.Cleanup(gate.Open)
	h.llm.Script("a", fakellm.Turn{Text: "said by a", Gate: gate})
	id := apis(t, h.Target)[0].start(t, request("line")).GetCollaborationId()
	held(t, gate)
	h.Patience = 2 * time.Second // from the call, of which the wait has the rest
	a := apis(t, h.Target)[1]    // over gRPC the caller's own clock may be first
	_, err := a.StopCollaboration(t.Context(), &teamv1.StopCollaborationRequest{CollaborationId: id})
	if f := fault(t, err, "DeadlineExceeded", "WAIT_TIMEOUT"); !strings.Contains(f.Message, "is being stopped") {
		t.Error(f.Message)
	}
}

// TestR_001_49_LongIDs: what a caller sent makes no error long.
func TestR_001_49_LongIDs(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	long := strings.Repeat("x", 5000)
	for _, a := range apis(t, h.Target) {
		_, started := a.StartCollaboration(t.Context(), request(long))
		_, got := a.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: long})
		_, deleted := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: long})
		_, updated := a.teams.UpdateTeam(t.Context(), &teamv1.UpdateTeamRequest{TeamId: long, Form: &teamv1.UpdateTeamRequest_Yaml{Yaml: "teams: {mine: {members: [{agent: echo}], workflow: {steps: [{id: say, agent: echo}]}}}"}})
		_, made := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Contract{Contract: &teamv1.ContractTeam{
			TeamName: "x", TeamType: long, WorkflowConfig: &teamv1.ContractWorkflow{Type: long},
			AgentRoles: []*teamv1.ContractRole{{RoleName: "writer", AgentConfig: &teamv1.ContractAgent{Model: long, Tools: []string{long}}}, {RoleName: long}},
		}}})
		_, status := a.GetCollaborationStatus(t.Context(), &teamv1.GetCollaborationStatusRequest{CollaborationId: long})
		_, agent := teamv1.NewRegistryServiceClient(rig.Services(t, h.Target)[0]).GetAgent(t.Context(), &teamv1.GetAgentRequest{AgentId: long})
		for call, err := range map[string]error{"start": started, "get": got, "delete": deleted, "update": updated, "create": made, "status": status, "agent": agent} {
			if f := rig.Fault(err); f == nil || len(f.Message) > 1000 {
				t.Errorf("%s %s: %v", a.binding, call, err)
			}
		}
	}
}
