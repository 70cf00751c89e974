package collab

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// TestR_001_19_Validation: what a request must have, at its bounds and beyond them.
func TestR_001_19_Validation(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	type req = teamv1.StartCollaborationRequest
	constraint := func(change func(*teamv1.CollaborationConstraints)) func(*req) {
		return func(r *req) {
			r.Constraints = &teamv1.CollaborationConstraints{}
			change(r.GetConstraints())
		}
	}
	limit := func(key string, n int64) func(*req) {
		return constraint(func(c *teamv1.CollaborationConstraints) { c.ResourceLimits = map[string]int64{key: n} })
	}
	quality := func(q float64) func(*req) {
		return constraint(func(c *teamv1.CollaborationConstraints) { c.QualityThreshold = &q })
	}
	lasts := func(d time.Duration) func(*req) {
		return constraint(func(c *teamv1.CollaborationConstraints) { c.MaxDuration = durationpb.New(d) })
	}
	for _, a := range apis(t, h.Target) {
		for _, c := range []struct {
			name   string
			change func(*req)
			fields []string // none: it is taken
		}{
			{"R-001-19 10 characters", func(r *req) { r.TaskDescription = strings.Repeat("ü", 10) }, nil},
			{"R-001-19 9 characters", func(r *req) { r.TaskDescription = strings.Repeat("ü", 9) }, []string{"taskDescription"}},
			{"R-001-19 1000 characters", func(r *req) { r.TaskDescription = strings.Repeat("ü", 1000) }, nil},
			{"R-001-19 blanks", func(r *req) { r.TaskDescription = strings.Repeat(" ", 10) }, []string{"taskDescription"}},
			{"R-001-19 C-31 1001 characters", func(r *req) { r.TaskDescription = strings.Repeat("ü", 1001) }, []string{"taskDescription"}},
			{"R-001-20 no expected output", func(r *req) { r.ExpectedOutput = " " }, []string{"expectedOutput"}},
			{"R-001-23 no time", lasts(0), []string{"constraints.maxDuration"}},
			{"R-001-23 less than no time", lasts(-time.Minute), []string{"constraints.maxDuration"}},
			{"R-001-23 some time", lasts(time.Minute), nil},
			{"R-001-24 below 0", quality(-0.1), []string{"constraints.qualityThreshold"}},
			{"R-001-24 0", quality(0), nil},
			{"R-001-24 1", quality(1), nil},
			{"R-001-24 above 1", quality(1.1), []string{"constraints.qualityThreshold"}},
			{"R-001-25 unknown limit", limit("max_magic", 1), []string{"constraints.resourceLimits.max_magic"}},
			{"R-001-25 0 tokens", limit("max_tokens", 0), []string{"constraints.resourceLimits.max_tokens"}},
			{"R-001-25 too many at once", limit("max_parallel", math.MaxInt32+1), []string{"constraints.resourceLimits.max_parallel"}},
			{"R-001-25 1 delegation", limit("max_delegations", 1), nil},
			{"R-001-16 a request id that is none", func(r *req) { r.RequestId = "a b" }, []string{"requestId"}},
			{"all at once", func(r *req) { r.TeamId, r.TaskDescription, r.ExpectedOutput = "", "", "" }, []string{"teamId", "taskDescription", "expectedOutput"}},
		} {
			t.Run(a.binding+" "+c.name, func(t *testing.T) {
				resp, err := a.StartCollaboration(t.Context(), with(request("quick"), c.change))
				if len(c.fields) > 0 {
					fault(t, err, "InvalidArgument", "INVALID_REQUEST", c.fields...)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				a.ended(t, resp.GetCollaborationId())
			})
		}
		t.Run(a.binding+" R-001-24 no number", func(t *testing.T) {
			_, err := a.StartCollaboration(t.Context(), with(request("quick"), quality(math.NaN())))
			if f := rig.Fault(err); f == nil || f.Reason != "INVALID_REQUEST" {
				t.Errorf("%v", err)
			}
		})
		t.Run(a.binding+" R-001-17 R-001-49 unknown team", func(t *testing.T) {
			for _, id := range []string{"nobody", "a"} { // an agent is no team
				_, err := a.StartCollaboration(t.Context(), request(id))
				fault(t, err, "NotFound", "TEAM_NOT_FOUND")
			}
		})
	}
}

// TestR_001_26_Start: what a start answers.
func TestR_001_26_Start(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		gates := h.gated(t, "a", "b", "c")
		before := time.Now().Add(-time.Second)
		resp := a.start(t, with(request("line"), func(r *teamv1.StartCollaborationRequest) { r.Constraints = bounded(2 * time.Minute) }))
		t.Run("R-001-26 the id is that of the A2A task", func(t *testing.T) {
			if task := h.task(t, resp.GetCollaborationId()); task.GetId() != resp.GetCollaborationId() {
				t.Errorf("task %q", task.GetId())
			}
		})
		t.Run("R-001-27 it has begun", func(t *testing.T) {
			if s := resp.GetWorkflowStatus(); s != "started" && s != "planning" && s != "executing" {
				t.Errorf("workflow status %q", s)
			}
		})
		t.Run("R-001-28 C-33 without a run of known length the estimate is what it may take", func(t *testing.T) {
			at := resp.GetEstimatedCompletion().AsTime()
			if !resp.GetEstimateIsBound() || at.Before(before.Add(time.Minute)) || at.After(time.Now().Add(time.Minute)) { // three steps of 20 s
				t.Errorf("estimate %v, bound %t", at, resp.GetEstimateIsBound())
			}
		})
		t.Run("R-001-29 who begins", func(t *testing.T) {
			list := resp.GetInitialAssignments()
			if len(list) != 1 || list[0].GetAgentId() != "a" || list[0].GetTask() != "Write about the tides." || list[0].GetPriority() != 1 {
				t.Errorf("%v", list)
			}
			wide := a.start(t, request("wide")).GetInitialAssignments()
			if len(wide) != 3 || wide[0].GetTask() != "First Write about the tides.\n\nExpected output: Three sentences." || wide[2].GetPriority() != 3 {
				t.Errorf("%v", wide)
			}
			h.llm.Script("lead", fakellm.Turn{Text: "done"})
			if boss := a.start(t, request("boss")); len(boss.GetInitialAssignments()) > 0 {
				t.Errorf("%v", boss)
			}
		})
		t.Run("R-001-30 R-001-52 S-42 the team is busy, and plain messages are not concerned", func(t *testing.T) {
			_, err := a.StartCollaboration(t.Context(), request("line"))
			if f := fault(t, err, "FailedPrecondition", "COLLABORATION_IN_PROGRESS"); f.Retry <= 0 {
				t.Error("it does not say when to come again")
			} else if want := `team "line" has 1 running collaboration, the maximum (max_concurrent_collaborations)`; !strings.Contains(f.Message, want) {
				t.Errorf("it says %q, want %q", f.Message, want)
			}
			send := rig.Text("line", "plain", "hello")
			send.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
			if _, err := h.grpc(t).Send(t.Context(), send); err != nil {
				t.Errorf("C-18: %v", err)
			}
		})
		for _, g := range gates {
			g.Open()
		}
		a.ended(t, resp.GetCollaborationId())
		t.Run("R-001-30 C-18 behind its end there is room", func(t *testing.T) {
			a.ended(t, a.start(t, request("line")).GetCollaborationId())
		})
	})
}

// TestR_001_28_Median: behind runs of known length the estimate is their median, and
// never later than it may take.
func TestR_001_28_Median(t *testing.T) {
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	a := apis(t, h.Target)[0]
	var took []time.Duration
	for range 3 {
		h.llm.Script("a", fakellm.Turn{Text: "x", Delay: 40 * time.Millisecond})
		h.says("b", "c")
		id := a.start(t, request("line")).GetCollaborationId()
		a.ended(t, id)
		took = append(took, a.finish(t, id).GetMetrics().GetTotalDuration().AsDuration())
	}
	before := time.Now()
	resp := a.start(t, request("line"))
	est := resp.GetEstimatedCompletion().AsTime().Sub(before)
	lo, hi := min(took[0], took[1], took[2]), max(took[0], took[1], took[2])
	if resp.GetEstimateIsBound() || est < lo/2 || est > hi+hi/2+100*time.Millisecond {
		t.Errorf("estimated %v behind %v, bound %t", est, took, resp.GetEstimateIsBound())
	}
	a.ended(t, resp.GetCollaborationId())
	short := a.start(t, with(request("line"), func(r *teamv1.StartCollaborationRequest) { r.Constraints = bounded(10 * time.Millisecond) }))
	if at := short.GetEstimatedCompletion().AsTime(); at.After(time.Now().Add(10 * time.Millisecond)) {
		t.Errorf("estimated %v from now", time.Until(at))
	}
}

// TestR_001_16_Repeated: the same request is taken once.
func TestR_001_16_Repeated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		h.gated(t, "a")
		req := with(request("line"), func(r *teamv1.StartCollaborationRequest) { r.RequestId = "once" })
		first := a.start(t, req)
		if again := a.start(t, proto.CloneOf(req)); again.GetCollaborationId() != first.GetCollaborationId() {
			t.Errorf("%s, then %s", first.GetCollaborationId(), again.GetCollaborationId())
		}
		for _, change := range []func(*teamv1.StartCollaborationRequest){
			func(r *teamv1.StartCollaborationRequest) { r.TaskDescription = "Something else altogether." },
			func(r *teamv1.StartCollaborationRequest) { r.Context = object(t, map[string]any{"audience": "all"}) },
			func(r *teamv1.StartCollaborationRequest) { r.Constraints = bounded(time.Minute) },
			func(r *teamv1.StartCollaborationRequest) {
				r.Constraints = &teamv1.CollaborationConstraints{ResourceLimits: map[string]int64{"max_parallel": 1}}
			},
		} {
			_, err := a.StartCollaboration(t.Context(), with(proto.CloneOf(req), change))
			if f := fault(t, err, "InvalidArgument", "MESSAGE_ID_REUSED"); !strings.HasPrefix(f.Message, "requestId ") {
				t.Error(f.Message)
			}
		}
	})
}

// TestR_001_30_Places: as many as a team may have run at once, of all callers, and a
// restart changes nothing of that.
func TestR_001_30_Places(t *testing.T) {
	t.Parallel()
	for _, place := range []func(testing.TB) rig.Place{rig.SQLite, rig.PostgreSQL} {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			llm := fakellm.New(t)
			h := open(t, at, base, llm)
			gate := fakellm.NewGate()
			t.Cleanup(gate.Open)
			llm.Script("lead", fakellm.Turn{Text: "done", Gate: gate, Forever: true})
			a, bob := apis(t, h.Target)[0], apis(t, h.As("acme", "bob"))[1]
			one, two := a.start(t, request("boss")), bob.start(t, request("boss"))
			for _, who := range []api{a, bob} {
				_, err := who.StartCollaboration(t.Context(), request("boss"))
				fault(t, err, "FailedPrecondition", "COLLABORATION_IN_PROGRESS")
			}
			h.stop()
			h = open(t, at, base, llm)
			a, bob = apis(t, h.Target)[0], apis(t, h.As("acme", "bob"))[1]
			_, err := a.StartCollaboration(t.Context(), request("boss"))
			fault(t, err, "FailedPrecondition", "COLLABORATION_IN_PROGRESS")
			gate.Open()
			a.ended(t, one.GetCollaborationId())
			bob.ended(t, two.GetCollaborationId())
			a.ended(t, a.start(t, request("boss")).GetCollaborationId())
		})
	}
}

// TestR_001_18_TeamNotReady: a team that the file has no place for is known, and does
// not begin anything.
func TestR_001_18_TeamNotReady(t *testing.T) {
	t.Parallel()
	for _, place := range []func(testing.TB) rig.Place{rig.SQLite, rig.PostgreSQL} {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			llm := fakellm.New(t)
			h := open(t, at, base, llm)
			yaml := "teams: {mine: {members: [{agent: echo}], workflow: {steps: [{id: say, agent: echo}]}}}"
			if _, err := apis(t, h.Target)[0].teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: yaml}}); err != nil {
				t.Fatal(err)
			}
			h.stop()
			h = open(t, at, strings.ReplaceAll(base, "echo", "gone"), llm)
			for _, a := range apis(t, h.Target) {
				_, err := a.StartCollaboration(t.Context(), request("mine"))
				if f := fault(t, err, "FailedPrecondition", "TEAM_NOT_READY"); f.Retry <= 0 {
					t.Error("it does not say when to come again")
				}
			}
		})
	}
}
