//go:build linux

package durable

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/tests/rig"
)

const pauseFile = `version: v1
agents:
  slow: {scripted: {steps: [{delay_ms: 600000}, {text: "At last"}]}}
teams:
  crew:
    limits: {member_timeout: 20m}
    workflow: {steps: [{id: write, agent: slow}]}
`

// TestPause_R_001_36_ShownAfterAKill kills the server while a member of a paused
// collaboration works. Afterwards nobody does, and that is what is shown until it is
// resumed.
func TestPause_R_001_36_ShownAfterAKill(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			c := command{config: filepath.Join(t.TempDir(), "team.yaml"), store: s.url(t), args: s.args, dir: t.ArtifactDir()}
			if err := os.WriteFile(c.config, []byte(pauseFile), 0o600); err != nil {
				t.Fatal(err)
			}
			r := serve(t, c)
			collaborations := teamv1.NewCollaborationServiceClient(rig.Services(t, r.target)[0])
			started, err := collaborations.StartCollaboration(t.Context(), &teamv1.StartCollaborationRequest{
				TeamId: "crew", TaskDescription: "Write about the sea.", ExpectedOutput: "A line.",
				Constraints: &teamv1.CollaborationConstraints{MaxDuration: durationpb.New(time.Hour)},
			})
			if err != nil {
				t.Fatal(err)
			}
			id := started.GetCollaborationId()
			shows := func(status, activity, phase string) {
				t.Helper()
				var now *teamv1.GetCollaborationStatusResponse
				await(t, "it shows "+status+", "+activity+", "+phase, func() bool {
					now, err = collaborations.GetCollaborationStatus(context.Background(), &teamv1.GetCollaborationStatusRequest{CollaborationId: id})
					return err == nil && now.GetStatus() == status && len(now.GetAgents()) == 1 && now.GetAgents()[0].GetStatus() == activity && now.GetProgress().GetCurrentPhase() == phase
				})
			}
			shows("executing", "working", "write")
			if _, err := collaborations.PauseCollaboration(t.Context(), &teamv1.PauseCollaborationRequest{CollaborationId: id}); err != nil {
				t.Fatal(err)
			}
			shows("paused", "working", "write")
			r.end(syscall.SIGKILL)

			r = serve(t, c)
			conn := rig.Services(t, r.target)[0]
			collaborations = teamv1.NewCollaborationServiceClient(conn)
			shows("paused", "waiting", "waiting")
			trace, err := teamv1.NewMonitorServiceClient(conn).GetTrace(t.Context(), &teamv1.GetTraceRequest{TaskId: id})
			if err != nil || len(trace.GetTrace().GetStep().GetSteps()) != 1 || trace.GetTrace().GetStep().GetSteps()[0].GetState() != teamv1.TraceStep_STATE_WAITING {
				t.Errorf("the trace is %v, %v", trace, err)
			}
			if _, err := collaborations.ResumeCollaboration(t.Context(), &teamv1.ResumeCollaborationRequest{CollaborationId: id}); err != nil {
				t.Fatal(err)
			}
			shows("executing", "working", "write")
		})
	}
}
