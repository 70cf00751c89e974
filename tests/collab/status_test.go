package collab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

func progress(completed, total int32, percent float64, phase string) *teamv1.CollaborationProgress {
	return &teamv1.CollaborationProgress{CompletedTasks: completed, TotalTasks: total, CompletionPercentage: percent, CurrentPhase: phase}
}

func want(t testing.TB, s *teamv1.GetCollaborationStatusResponse, status string, p *teamv1.CollaborationProgress, doing string) {
	t.Helper()
	if s.GetStatus() != status || agents(s) != doing {
		t.Errorf("%s, %q, want %s, %q", s.GetStatus(), agents(s), status, doing)
	}
	if diff := cmp.Diff(p, s.GetProgress(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// working waits until a member works.
func (a api) working(t testing.TB, id, member string) *teamv1.GetCollaborationStatusResponse {
	t.Helper()
	return a.until(t, id, member+" works", func(s *teamv1.GetCollaborationStatusResponse) bool {
		for _, m := range s.GetAgents() {
			if m.GetAgentId() == member {
				return m.GetStatus() == "working"
			}
		}
		return false
	})
}

// TestS_41_HappyPath: how a collaboration stands, from its start to its end.
func TestS_41_HappyPath(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		gates := h.gated(t, "a", "b", "c")
		req := request("line")
		req.Context = object(t, map[string]any{"audience": "children", "pages": 3.0})
		id := a.start(t, req).GetCollaborationId()
		held(t, gates["a"])
		t.Run("R-001-33 R-001-34 R-001-36 the first one works, the others wait for it", func(t *testing.T) {
			s := a.working(t, id, "a")
			want(t, s, "executing", progress(0, 3, 0, "find"), "a=working b=blocked c=blocked")
			if got := s.GetAgents()[0]; got.GetRole() != "finder" || got.GetCurrentTask() != "find" || s.GetAgents()[2].GetCurrentTask() != "check" {
				t.Errorf("%v", s.GetAgents())
			}
		})
		t.Run("R-001-22 R-001-37 the shared context, where it is asked for", func(t *testing.T) {
			s := a.status(t, id)
			if diff := cmp.Diff(req.GetContext(), s.GetSharedContext(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			short, err := a.GetCollaborationStatus(t.Context(), &teamv1.GetCollaborationStatusRequest{CollaborationId: id})
			if err != nil || short.GetSharedContext() != nil || short.GetPartialResults() != nil {
				t.Errorf("%v, %v", short, err)
			}
		})
		gates["a"].Open()
		held(t, gates["b"])
		t.Run("R-001-35 R-001-38 one of three is done, and its result is there", func(t *testing.T) {
			s := a.working(t, id, "b")
			want(t, s, "executing", progress(1, 3, 100.0/3, "write"), "a=completed b=working c=blocked")
			if diff := cmp.Diff(map[string]string{"a": "said by a"}, s.GetPartialResults()); diff != "" {
				t.Error(diff)
			}
		})
		gates["b"].Open()
		gates["c"].Open()
		t.Run("R-001-33 C-24 it is completed", func(t *testing.T) {
			want(t, a.ended(t, id), "completed", progress(3, 3, 100, "completed"), "a=completed b=completed c=completed")
		})
		resp := a.finish(t, id)
		res, m := resp.GetResults(), resp.GetMetrics()
		t.Run("R-001-43 R-001-44 R-001-45 results are complete", func(t *testing.T) {
			if resp.GetFinalStatus() != "completed" || res.GetOutput() != "said by c" || res.GetCompletionTime() == nil || len(res.GetContributions()) != 3 {
				t.Errorf("%v", resp)
			}
			for i, role := range []string{"finder", "writer", "c"} {
				if c := res.GetContributions()[i]; c.GetRole() != role || c.GetText() != "said by "+c.GetAgentId() {
					t.Errorf("%v", c)
				}
			}
		})
		t.Run("R-001-48 the efforts are 1 together", func(t *testing.T) {
			sum := 0.0
			for _, c := range res.GetContributions() {
				if sum += c.GetEffortScore(); c.GetEffortScore() <= 0 {
					t.Errorf("%v", c)
				}
			}
			if sum < 1-1e-9 || sum > 1+1e-9 {
				t.Errorf("together %v", sum)
			}
		})
		t.Run("R-001-47 C-19 what it took", func(t *testing.T) {
			// the user's message, three given, three answered, and the reply
			if m.GetMessagesExchanged() != 8 || m.GetIterationsCompleted() != 1 || m.GetTotalDurationMinutes() != 1 || m.GetTotalDuration().AsDuration() <= 0 {
				t.Errorf("%v", m)
			}
		})
		t.Run("C-33 nobody judged, and no score is invented", func(t *testing.T) {
			if res.QualityScore != nil || !res.GetQualityUnknown() {
				t.Errorf("%v", res)
			}
		})
		t.Run("S-43 once more is the same", func(t *testing.T) {
			if diff := cmp.Diff(resp, a.finish(t, id), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	})
}

// TestR_001_36_Waiting: of members side by side those without a slot wait.
func TestR_001_36_Waiting(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		gates := h.gated(t, "a", "b", "c")
		id := a.start(t, request("wide")).GetCollaborationId()
		held(t, gates["a"])
		held(t, gates["b"])
		a.working(t, id, "a")
		want(t, a.working(t, id, "b"), "executing", progress(0, 3, 0, "one, two"), "a=working b=working c=waiting")
		gates["b"].Open()
		held(t, gates["c"])
		want(t, a.working(t, id, "c"), "executing", progress(1, 3, 100.0/3, "one, three"), "a=working b=completed c=working")
		gates["a"].Open()
		gates["c"].Open()
		a.ended(t, id)
	})
}

// TestR_001_35_KnownSoFar: a coordinator's tasks are those that its leader gave so far.
func TestR_001_35_KnownSoFar(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		gates := h.gated(t, "a", "b")
		lead := fakellm.NewGate()
		t.Cleanup(lead.Open)
		h.llm.Script("lead",
			fakellm.Turn{Calls: []fakellm.Call{{ID: "1", Name: "delegate_to_a", Arguments: `{"task":"find out"}`}}},
			fakellm.Turn{Calls: []fakellm.Call{{ID: "2", Name: "delegate_to_b", Arguments: `{"task":"write it down"}`}}},
			fakellm.Turn{Text: "the answer", Gate: lead})
		id := a.start(t, request("boss")).GetCollaborationId()
		held(t, gates["a"])
		s := a.working(t, id, "a")
		want(t, s, "executing", progress(0, 1, 0, "a"), "boss=waiting a=working b=waiting")
		if got := s.GetAgents(); got[0].GetRole() != "lead" || got[1].GetCurrentTask() != "find out" {
			t.Errorf("%v", got)
		}
		gates["a"].Open()
		held(t, gates["b"])
		want(t, a.working(t, id, "b"), "executing", progress(1, 2, 50, "b"), "boss=waiting a=waiting b=working")
		gates["b"].Open()
		held(t, lead)
		want(t, a.working(t, id, "boss"), "executing", progress(2, 2, 100, "executing"), "boss=working a=waiting b=waiting")
		lead.Open()
		want(t, a.ended(t, id), "completed", progress(2, 2, 100, "completed"), "boss=completed a=completed b=completed")
		if res := a.finish(t, id).GetResults(); res.GetOutput() != "the answer" || len(res.GetContributions()) != 3 || res.GetContributions()[2].GetRole() != "lead" {
			t.Errorf("%v", res)
		}
	})
}

// TestR_001_32_Unknown: what is not there, is somebody else's, or is no collaboration.
func TestR_001_32_Unknown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		h.says("a", "b", "c")
		id := a.start(t, request("line")).GetCollaborationId()
		a.ended(t, id)
		resp, err := h.grpc(t).Send(t.Context(), rig.Text("quick", "plain", "hello"))
		if err != nil {
			t.Fatal(err)
		}
		bob := apis(t, h.As("acme", "bob"))
		for _, c := range []struct {
			name string
			as   api
			id   string
		}{
			{"unknown", a, "nothing"}, {"of somebody else", bob[0], id}, {"a plain task", a, resp.GetTask().GetId()}, {"a part of one", a, id + "~1"},
			{"no id at all", a, "a\x00b"},
		} {
			t.Run("R-001-32 R-001-40 "+c.name, func(t *testing.T) {
				_, err := c.as.GetCollaborationStatus(t.Context(), &teamv1.GetCollaborationStatusRequest{CollaborationId: c.id})
				fault(t, err, "NotFound", "COLLABORATION_NOT_FOUND")
				_, err = c.as.PauseCollaboration(t.Context(), &teamv1.PauseCollaborationRequest{CollaborationId: c.id})
				fault(t, err, "NotFound", "COLLABORATION_NOT_FOUND")
				_, err = c.as.ResumeCollaboration(t.Context(), &teamv1.ResumeCollaborationRequest{CollaborationId: c.id})
				fault(t, err, "NotFound", "COLLABORATION_NOT_FOUND")
				_, err = c.as.StopCollaboration(t.Context(), &teamv1.StopCollaborationRequest{CollaborationId: c.id})
				fault(t, err, "NotFound", "COLLABORATION_NOT_FOUND")
			})
		}
	})
}

// TestR_001_32_List: the caller's collaborations, the newest first, page by page.
func TestR_001_32_List(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		var ids []string
		for range 3 {
			id := a.start(t, request("quick")).GetCollaborationId()
			a.ended(t, id)
			ids = append([]string{id}, ids...)
		}
		if _, err := h.grpc(t).Send(t.Context(), rig.Text("quick", "plain", "hello")); err != nil {
			t.Fatal(err)
		}
		var got []string
		token := ""
		for {
			page, err := a.ListCollaborations(t.Context(), &teamv1.ListCollaborationsRequest{PageSize: 2, PageToken: token})
			if err != nil || len(page.GetCollaborations()) > 2 {
				t.Fatalf("%v, %v", page, err)
			}
			for _, c := range page.GetCollaborations() {
				got = append(got, c.GetCollaborationId())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Error(diff)
		}
		for team, n := range map[string]int{"quick": 3, "line": 0, "a\x00b": 0} {
			if page, err := a.ListCollaborations(t.Context(), &teamv1.ListCollaborationsRequest{TeamId: team}); err != nil || len(page.GetCollaborations()) != n {
				t.Errorf("of %s %v, %v", team, page, err)
			}
		}
		if page, err := apis(t, h.As("acme", "bob"))[0].ListCollaborations(t.Context(), &teamv1.ListCollaborationsRequest{}); err != nil || len(page.GetCollaborations()) != 0 {
			t.Errorf("bob's: %v, %v", page, err)
		}
		_, err := a.ListCollaborations(t.Context(), &teamv1.ListCollaborationsRequest{PageSize: 101})
		fault(t, err, "InvalidArgument", "INVALID_REQUEST", "pageSize")
		_, err = a.ListCollaborations(t.Context(), &teamv1.ListCollaborationsRequest{PageToken: "garbage"})
		fault(t, err, "InvalidArgument", "INVALID_REQUEST", "pageToken")
		const gone = "ffffffff-ffff-7fff-bfff-ffffffffffff" // newer than all
		if page, err := a.ListCollaborations(t.Context(), &teamv1.ListCollaborationsRequest{PageToken: gone}); err != nil || len(page.GetCollaborations()) != 3 {
			t.Errorf("behind one that is not there any more: %v, %v", page, err)
		}
	})
}

// TestR_001_33_AfterRestart: another process tells the same of what has ended.
func TestR_001_33_AfterRestart(t *testing.T) {
	t.Parallel()
	at, llm := rig.SQLite(t), fakellm.New(t)
	h := open(t, at, base, llm)
	h.says("a", "b", "c")
	a := apis(t, h.Target)[0]
	id := a.start(t, request("line")).GetCollaborationId()
	a.ended(t, id)
	before, results := a.status(t, id), a.finish(t, id)
	h.stop()
	other := `version: v1
agents: {echo: {scripted: {steps: [{text: "x"}]}}}
teams: {quick: {members: [{agent: echo}], workflow: {steps: [{id: say, agent: echo}]}}}
server: {auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", manage: true, permissions: [READ, CALL, ANSWER, ADMIN]}]}}
`
	a = apis(t, open(t, at, other, llm).Target)[1] // the team is not there any more
	if diff := cmp.Diff(before, a.status(t, id), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(results, a.finish(t, id), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}
