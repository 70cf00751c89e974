package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// agentCall makes one call of the Agent service over REST.
func agentCall(t *testing.T, target rig.Target, method, path string, req, resp proto.Message) *rig.Error {
	t.Helper()
	var body []byte
	if req != nil {
		var err error
		if body, err = wire.Marshal(req); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := target.Do(t.Context(), method, "/team/v1/agents/"+path, body, map[string]string{"Content-Type": "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	return rig.Fault(answer.Read(resp))
}

func TestS_61_AgentService(t *testing.T) {
	gate := make(chan struct{})
	defer close(gate)
	target := serve(t, server.Config{}, upper(), gated(gate), say("fails", func(context.Context, string) (string, error) {
		return "", agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "come back tomorrow")
	}))
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	client, ctx := teamv1.NewAgentServiceClient(g.Conn), g.Context(t.Context())

	t.Run("info", func(t *testing.T) {
		a, err := client.Info(ctx, &teamv1.InfoRequest{AgentId: "upper"})
		b := &teamv1.InfoResponse{}
		f := agentCall(t, target, http.MethodGet, "upper", nil, b)
		if err != nil || f != nil || !proto.Equal(a, b) || a.GetInfo().GetId() != "upper" || a.GetInfo().GetCapabilities()[0] != "talk" {
			t.Errorf("%v %v, %v %v", a, err, b, f)
		}
	})
	t.Run("health", func(t *testing.T) {
		a, err := client.HealthCheck(ctx, &teamv1.HealthCheckRequest{AgentId: "upper"})
		b := &teamv1.HealthCheckResponse{}
		f := agentCall(t, target, http.MethodGet, "upper:health", nil, b)
		if err != nil || f != nil || !proto.Equal(a, b) || !a.GetHealthy() {
			t.Errorf("%v %v, %v %v", a, err, b, f)
		}
	})
	t.Run("process", func(t *testing.T) {
		a, err := client.Process(ctx, &teamv1.ProcessRequest{AgentId: "upper", Message: rig.Text("", "p1", "tides").Message})
		b := &teamv1.ProcessResponse{}
		f := agentCall(t, target, http.MethodPost, "upper:process", &teamv1.ProcessRequest{Message: rig.Text("", "p2", "tides").Message}, b)
		if err != nil || f != nil || agent.Text(a.GetMessage()) != "TIDES" || agent.Text(b.GetMessage()) != "TIDES" || a.GetMessage().GetTaskId() == "" {
			t.Errorf("%v %v, %v %v", a, err, b, f)
		}
	})
	t.Run("the same errors on both", func(t *testing.T) {
		for _, c := range []struct{ agent, code, reason string }{
			{"nobody", "NotFound", "AGENT_NOT_FOUND"}, {"fails", "Unavailable", "UNAVAILABLE"},
		} {
			_, err := client.Process(ctx, &teamv1.ProcessRequest{AgentId: c.agent, Message: rig.Text("", c.agent+"1", "x").Message})
			a := rig.Fault(rig.FromGRPC(err))
			b := agentCall(t, target, http.MethodPost, c.agent+":process", &teamv1.ProcessRequest{Message: rig.Text("", c.agent+"2", "x").Message}, &teamv1.ProcessResponse{})
			if !rig.Same(a, b) || a.Code != c.code || a.Reason != c.reason {
				t.Errorf("%s: %+v, %+v", c.agent, a, b)
			}
		}
		a := agentCall(t, target, http.MethodPost, "upper:process", &teamv1.ProcessRequest{}, &teamv1.ProcessResponse{})
		if a == nil || a.Reason != "INVALID_REQUEST" {
			t.Errorf("no message: %+v", a)
		}
	})
	t.Run("stream and cancel", func(t *testing.T) {
		stream, err := client.ProcessStream(ctx, &teamv1.ProcessStreamRequest{Request: &teamv1.ProcessRequest{AgentId: "gated", Message: rig.Text("", "s1", "x").Message}})
		if err != nil {
			t.Fatal(err)
		}
		var last *teamv1.Event
		for {
			resp, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if last == nil {
				if f := agentCall(t, target, http.MethodPost, "gated:cancel", &teamv1.CancelRequest{Key: "s1"}, &teamv1.CancelResponse{}); f != nil {
					t.Fatal(f)
				}
			}
			last = resp.GetEvent()
		}
		if last.GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED {
			t.Errorf("last event %v", last)
		}
	})
	t.Run("what never crosses the wire is refused", func(t *testing.T) {
		_, err := client.Process(ctx, &teamv1.ProcessRequest{AgentId: "upper", Scope: "1", Message: rig.Text("", "p3", "x").Message})
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Reason != "INVALID_REQUEST" {
			t.Errorf("%v", f)
		}
	})
}
