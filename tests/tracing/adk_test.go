package tracing

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// TestS_66_MemberOfAdkGo: the spans that adk-go exports of its agent, which is a member of a team here, are below the
// span of the team's call in one trace.
func TestS_66_MemberOfAdkGo(t *testing.T) {
	if !sample.All() {
		t.Skip("builds a server with adk-go; set TEAM_TESTS=all")
	}
	to := traced(t)
	t.Setenv("OTEL_SERVICE_NAME", "adk")
	program := child.Build(t, "../../bench/servers", "./adkgo")
	adk, err := child.Serve(exec.CommandContext(context.WithoutCancel(t.Context()), program))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { adk.End(syscall.SIGTERM) })
	t.Setenv("OTEL_SERVICE_NAME", "front")
	s := whole.Open(t, rig.SQLite(t), fmt.Sprintf(`version: v1
agents:
  far: {description: Echoes., a2a: {card: "%s.well-known/agent-card.json"}}
teams:
  desk: {description: Answers., members: [{agent: far}], workflow: {steps: [{id: ask, agent: far}]}}
server:
  egress: {allow: [127.0.0.1]}
`, adk.Ready), fakellm.New(t))
	resp, err := rig.NewREST(s.Target).Send(t.Context(), rig.Text("desk", "m1", "high tide"))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatal(resp, err)
	}
	s.Stop()
	theirs := func(s collector.Span) bool { return s.Service == "adk" && s.GetName() == "invoke_agent echo" }
	all := to.Until(t, "the span of the member", func(all []collector.Span) bool { return slices.ContainsFunc(all, theirs) })
	t.Logf("the trace:\n%s", collector.Tree(all, kinds))
	call := only(t, all, func(s collector.Span) bool { return s.GetName() == "invoke_agent far" })
	var path []string // from the span of the member up to the request
	for at := only(t, all, theirs); ; {
		if at.Trace() != call.Trace() {
			t.Fatalf("%s is in trace %s, want %s", at.GetName(), at.Trace(), call.Trace())
		}
		path = append(path, at.GetName()+kinds(at))
		up := slices.IndexFunc(all, func(s collector.Span) bool { return s.ID() == at.Parent() })
		if up < 0 {
			break
		}
		at = all[up]
	}
	want := []string{"invoke_agent far front client", "invoke_workflow desk front internal", "SendMessage front server"}
	if len(path) < 4 || !slices.Equal(path[len(path)-3:], want) {
		t.Errorf("above the span of the member are %q, want a request and %q", path[1:], want)
	}
}
