package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

var updateGolden = flag.Bool("update", false, "write the golden files")

// contractCalls implements the services behind the contract calls. It records each request and
// answers with resp, or with err if that is set.
type contractCalls struct {
	service.Teams
	service.Collaborations
	got  proto.Message
	resp proto.Message
	err  error
}

func answer[Resp proto.Message](c *contractCalls, req proto.Message, zero Resp) (Resp, error) {
	c.got = req
	if resp, ok := c.resp.(Resp); ok {
		return resp, c.err
	}
	return zero, c.err
}

func (c *contractCalls) CreateTeam(_ context.Context, req *teamv1.CreateTeamRequest) (*teamv1.CreateTeamResponse, error) {
	return answer(c, req, &teamv1.CreateTeamResponse{})
}

func (c *contractCalls) StartCollaboration(_ context.Context, req *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error) {
	return answer(c, req, &teamv1.StartCollaborationResponse{})
}

func (c *contractCalls) GetCollaborationStatus(_ context.Context, req *teamv1.GetCollaborationStatusRequest) (*teamv1.GetCollaborationStatusResponse, error) {
	return answer(c, req, &teamv1.GetCollaborationStatusResponse{})
}

func (c *contractCalls) StopCollaboration(_ context.Context, req *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error) {
	return answer(c, req, &teamv1.StopCollaborationResponse{Results: &teamv1.CollaborationResults{}})
}

// contractGolden makes contract calls and compares them, byte for byte, with a file.
type contractGolden struct {
	target rig.Target
	calls  *contractCalls
	out    bytes.Buffer
}

func newContractGolden(t *testing.T) *contractGolden {
	t.Helper()
	calls := &contractCalls{}
	return &contractGolden{target: start(t, server.Config{Handler: &probe{}, Teams: calls, Collaborations: calls}), calls: calls}
}

// call records an answer: its HTTP status and its exact bytes.
func (g *contractGolden) call(t *testing.T, name, body string) {
	t.Helper()
	g.calls.got = nil
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.target.HTTP+"/team/v1/contract/"+name, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: the content type is %q", name, body, got)
	}
	fmt.Fprintf(&g.out, "%d %s\n", resp.StatusCode, b)
}

// compare compares what was recorded with testdata/contract/name.
func (g *contractGolden) compare(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join("testdata", "contract", name)
	if *updateGolden {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, g.out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(g.out.String(), "\n")); diff != "" {
		t.Error(diff)
	}
}

// canonical returns the ProtoJSON of a request on one line with sorted keys.
func canonical(t *testing.T, m proto.Message) []byte {
	t.Helper()
	if m == nil {
		return []byte("no call")
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	b, err = json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fill returns a JSON object: base, in which each replacement "key": value takes the place of the
// key's line. An empty value removes the key.
func fill(base []string, key, value string) string {
	var fields []string
	for _, f := range base {
		switch name, _, _ := strings.Cut(f, ":"); {
		case name != `"`+key+`"`:
			fields = append(fields, f)
		case value != "":
			fields = append(fields, name+":"+value)
		}
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// variants returns base with each of values for key, and without key.
func variants(base []string, key string, values ...string) (bodies []string) {
	for _, v := range append([]string{""}, values...) {
		bodies = append(bodies, fill(base, key, v))
	}
	return bodies
}

// wrongly are values of every JSON type.
var wrongly = []string{`null`, `""`, `"x"`, `"3"`, `0`, `-1`, `1.5`, `true`, `[]`, `["x"]`, `{}`, `{"x":1}`}

// whole are numbers around the bounds of integers, and things that look like numbers.
var whole = []string{`1`, `-0`, `1.0`, `1e2`, `2147483647`, `2147483648`, `-2147483649`, `9007199254740991`, `9007199254740992`, `1e400`, `"1"`, `"NaN"`, `01`}

// bodies are request bodies that are not objects, or objects with unusual keys.
var bodies = []string{``, ` `, `null`, `[]`, `"x"`, `7`, `{`, `{}`, `{} {}`, `{"a":1,"a":2}`, `{"":1}`, "{\"\xff\":1}", `{"nope":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`}

// TestS_46_C_32_ContractRequests records which requests of the contract calls are accepted, as what,
// and with which text the others are refused.
func TestS_46_C_32_ContractRequests(t *testing.T) {
	agentConfig := []string{`"model":"m"`, `"tools":["t"]`, `"instructions":"Do."`}
	role := []string{`"role_name":"writer"`, `"agent_config":` + fill(agentConfig, "", "")}
	flow := []string{`"type":"sequential"`, `"max_iterations":2`, `"timeout_minutes":5`}
	team := []string{`"team_name":"Duet"`, `"team_type":"research"`, `"agent_roles":[` + fill(role, "", "") + `]`, `"workflow_config":` + fill(flow, "", "")}
	constraints := []string{`"max_duration_minutes":3`, `"quality_threshold":0.5`, `"resource_limits":{"max_tokens":5}`}
	work := []string{`"team_id":"t"`, `"task_description":"Write about tides."`, `"expected_output":"Text."`, `"context":{"a":[1,{"b":null}]}`, `"constraints":` + fill(constraints, "", "")}
	status := []string{`"collaboration_id":"c"`, `"include_details":true`}
	stop := []string{`"collaboration_id":"c"`, `"force_stop":true`, `"save_partial":false`}

	list := func(bodies ...[]string) (all []string) {
		for _, b := range bodies {
			all = append(all, b...)
		}
		return all
	}
	within := func(base []string, key, left, right string, bodies []string) (all []string) {
		for _, b := range bodies {
			all = append(all, fill(base, key, left+b+right))
		}
		return all
	}
	roles := func(bodies []string) []string { return within(team, "agent_roles", "[", "]", bodies) }
	agents := func(bodies []string) []string { return roles(within(role, "agent_config", "", "", bodies)) }
	flows := func(bodies []string) []string { return within(team, "workflow_config", "", "", bodies) }
	bounds := func(bodies []string) []string { return within(work, "constraints", "", "", bodies) }
	limits := func(values []string) (all []string) {
		for _, v := range values {
			all = append(all, `{"max_tokens":`+v+`}`)
		}
		return bounds(within(constraints, "resource_limits", "", "", all))
	}
	for call, requests := range map[string][]string{
		"create_team": list(
			bodies, []string{fill(team, "", "")},
			variants(team, "team_name", wrongly...), variants(team, "team_type", append(wrongly, `"RESEARCH"`, `"TEAM_TYPE_RESEARCH"`)...),
			variants(team, "agent_roles", append(wrongly, `[null]`, `[{}]`, `[[]]`, `[7,"x"]`)...), variants(team, "workflow_config", wrongly...),
			roles(variants(role, "role_name", wrongly...)), roles(variants(role, "agent_config", wrongly...)),
			agents(variants(agentConfig, "model", wrongly...)), agents(variants(agentConfig, "instructions", wrongly...)),
			agents(variants(agentConfig, "tools", append(wrongly, `[null]`, `["a",7,{}]`)...)),
			flows(variants(flow, "type", append(wrongly, `"Sequential"`, `"SEQUENTIAL"`)...)),
			flows(variants(flow, "max_iterations", append(wrongly, whole...)...)), flows(variants(flow, "timeout_minutes", append(wrongly, whole...)...)),
			[]string{
				`{"teamName":"Duet","team_type":"research"}`, `{"team_name":"a","teamName":"b"}`, `{"team_name":"a","team_name":"b"}`,
				`{"team_name":"a","nope":null}`, `{"workflow_config":{"maxIterations":2}}`, `{"agent_roles":[{"agent_config":{"tempo":1}}]}`,
				`{"team_name":7,"team_type":7,"agent_roles":[{"role_name":7}],"workflow_config":{"type":7,"max_iterations":"x"}}`,
			},
		),
		"start_collaboration": list(
			bodies, []string{fill(work, "", "")},
			variants(work, "team_id", wrongly...), variants(work, "task_description", append(wrongly, `"123456789"`, `"          "`)...),
			variants(work, "expected_output", wrongly...), variants(work, "context", append(wrongly, `{"n":9007199254740993,"s":"<&>"}`)...),
			variants(work, "constraints", wrongly...),
			bounds(variants(constraints, "max_duration_minutes", append(wrongly, whole...)...)),
			bounds(variants(constraints, "quality_threshold", append(wrongly, `1`, `1.1`, `0.0`, `"0.5"`, `"NaN"`, `1e400`)...)),
			bounds(variants(constraints, "resource_limits", append(wrongly, `{"max_parallel":1}`, `{"max_parallel":2147483648}`, `{"max_delegations":0}`, `{"maxTokens":1}`, `{"b":1,"a":"x"}`)...)),
			limits(append(wrongly, whole...)),
			[]string{
				`{"teamId":"t","taskDescription":"Write about tides.","expectedOutput":"Text."}`,
				fill(append(work, `"request_id":"r"`, `"nope":null`, `"teamId":7`), "", ""),
				`{"team_id":7,"constraints":{"max_duration_minutes":0,"quality_threshold":7,"resource_limits":{"max_tokens":"x","max_magic":1}}}`,
			},
		),
		"get_collaboration_status": list(
			bodies, []string{fill(status, "", "")},
			variants(status, "collaboration_id", wrongly...), variants(status, "include_details", append(wrongly, `false`, `"true"`)...),
			[]string{`{"collaborationId":"c"}`, `{"collaboration_id":"c","includeDetails":true,"nope":7}`},
		),
		"stop_collaboration": list(
			bodies, []string{fill(stop, "", "")},
			variants(stop, "collaboration_id", wrongly...), variants(stop, "force_stop", append(wrongly, `false`, `"true"`)...), variants(stop, "save_partial", append(wrongly, `true`)...),
			[]string{`{"collaborationId":"c"}`, `{"collaboration_id":"c","reason":"r","forceStop":true,"nope":7}`},
		),
	} {
		t.Run(call, func(t *testing.T) {
			g := newContractGolden(t)
			for _, body := range requests {
				fmt.Fprintf(&g.out, "%s\n", strings.ReplaceAll(fmt.Sprintf("%+q", body), `\"`, `"`))
				g.call(t, call, body)
				fmt.Fprintf(&g.out, "%s\n\n", canonical(t, g.calls.got))
			}
			g.compare(t, call+"_requests.txt")
		})
	}
}

// TestS_46_C_32_ContractAnswers records the bytes of the answers of the contract calls.
func TestS_46_C_32_ContractAnswers(t *testing.T) {
	const odd = "\"<a href='x'>&\\\b\f\n\r\t\x00\x1f\x7f\u2028\u2029ü€😀"
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	shared, err := structpb.NewStruct(map[string]any{
		"z": nil, "a": []any{}, "e": map[string]any{}, "n": []any{0.0, -1.5, 1e20, 1e21, 1e-6, 1e-7, 9007199254740993.0}, "s": odd, "t": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	healthy := func(ok bool) *teamv1.MemberHealth { return &teamv1.MemberHealth{Healthy: ok} }
	for _, c := range []struct {
		call, body string
		resp       []proto.Message
	}{
		{"create_team", `{}`, []proto.Message{
			&teamv1.CreateTeamResponse{},
			&teamv1.CreateTeamResponse{Team: &teamv1.Team{Id: odd}, Members: []*teamv1.TeamMember{{}, {Id: "a", RoleName: "writer", Health: healthy(true)}, {Id: "b", RoleName: odd, Health: healthy(false)}}},
		}},
		{"start_collaboration", `{"team_id":"t","task_description":"Write about tides.","expected_output":"Text."}`, []proto.Message{
			&teamv1.StartCollaborationResponse{},
			&teamv1.StartCollaborationResponse{
				CollaborationId: odd, WorkflowStatus: "planning", EstimatedCompletion: timestamppb.New(noon.Add(999 * time.Millisecond)), EstimateIsBound: true,
				InitialAssignments: []*teamv1.InitialAssignment{{}, {AgentId: "a", Task: odd, Priority: 2147483647}},
			},
			&teamv1.StartCollaborationResponse{EstimatedCompletion: timestamppb.New(time.Time{})},
		}},
		{"get_collaboration_status", `{"collaboration_id":"c"}`, []proto.Message{
			&teamv1.GetCollaborationStatusResponse{},
			&teamv1.GetCollaborationStatusResponse{
				CollaborationId: "c", TeamId: "t", Status: "paused", Round: 2, Stopping: true, Brief: &teamv1.Brief{TaskDescription: "x"},
				Progress: &teamv1.CollaborationProgress{CompletedTasks: 1, TotalTasks: 2147483647, CompletionPercentage: 100.0 / 3, CurrentPhase: odd},
				Agents:   []*teamv1.CollaborationAgent{{}, {AgentId: "a", Role: "writer", CurrentTask: odd, Status: "blocked"}},
				Error:    &teamv1.Error{Reason: "REASON", Message: odd},
			},
			&teamv1.GetCollaborationStatusResponse{Progress: &teamv1.CollaborationProgress{CompletionPercentage: 1e21}, Error: &teamv1.Error{Reason: "REASON"}},
			&teamv1.GetCollaborationStatusResponse{Progress: &teamv1.CollaborationProgress{CompletionPercentage: 1e-7}, Error: &teamv1.Error{Message: "message"}},
			&teamv1.GetCollaborationStatusResponse{Error: &teamv1.Error{}},
			&teamv1.GetCollaborationStatusResponse{PartialResults: map[string]string{"a": "not with details"}},
			&teamv1.GetCollaborationStatusResponse{SharedContext: &structpb.Struct{}},
			&teamv1.GetCollaborationStatusResponse{SharedContext: shared, PartialResults: map[string]string{"b": "", "a": odd, "<": "x"}},
		}},
		{"stop_collaboration", `{"collaboration_id":"c"}`, []proto.Message{
			&teamv1.StopCollaborationResponse{Results: &teamv1.CollaborationResults{}},
			&teamv1.StopCollaborationResponse{Results: &teamv1.CollaborationResults{QualityUnknown: true, QualityScore: proto.Float64(0)}, Error: &teamv1.Error{Reason: "R", Message: "m"}},
			&teamv1.StopCollaborationResponse{
				FinalStatus: "completed",
				Results: &teamv1.CollaborationResults{
					Output: odd, QualityScore: proto.Float64(0.1), CompletionTime: timestamppb.New(noon.Add(time.Nanosecond)), Message: agent.NewMessage("x"),
					Contributions: []*teamv1.CollaborationContribution{{}, {AgentId: "a", Role: "writer", Text: odd, EffortScore: 1.0 / 3}},
				},
				Metrics: &teamv1.CollaborationMetrics{TotalDurationMinutes: 2147483647, MessagesExchanged: -1, IterationsCompleted: 2},
			},
		}},
	} {
		t.Run(c.call, func(t *testing.T) {
			g := newContractGolden(t)
			for _, resp := range c.resp {
				g.calls.resp = resp
				fmt.Fprintf(&g.out, "%s\n", canonical(t, resp))
				g.call(t, c.call, c.body)
				fmt.Fprintln(&g.out)
			}
			g.compare(t, c.call+"_answers.txt")
		})
	}
}

// TestR_001_56_ContractErrors records the bytes of the errors of the contract calls.
func TestR_001_56_ContractErrors(t *testing.T) {
	withDetails := func(e *agent.Error, wait time.Duration, details map[string]string) error {
		e.Retry, e.RetryAfter, e.Details = wait > 0, wait, details
		return e
	}
	g := newContractGolden(t)
	for _, err := range []error{
		agent.Errorf(agent.CodeNotFound, agent.ReasonTeamNotFound, "there is no team %q", "<x>&"),
		a2aerror.Invalid(agent.Violation{Field: "b", Description: "is <b>"}, agent.Violation{Field: "a", Description: "is \"a\""}),
		agent.Errorf(agent.CodeFailedPrecondition, "", "no reason is given"),
		withDetails(agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, "full"), 1500*time.Millisecond, nil),
		withDetails(agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonCollaborationInProgress, "busy"), time.Nanosecond, map[string]string{"z": "", "a": "1", "<": "&"}),
		withDetails(agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout, "waited"), 0, map[string]string{"task_id": "t"}),
		agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "took too long"),
		context.Canceled, context.DeadlineExceeded,
		io.ErrUnexpectedEOF, // its text is not shown
	} {
		g.calls.err = err
		fmt.Fprintf(&g.out, "%s\n", cmp.Or(err.Error(), "no text"))
		g.call(t, "get_collaboration_status", `{"collaboration_id":"c"}`)
		fmt.Fprintln(&g.out)
	}
	g.compare(t, "errors.txt")
}
