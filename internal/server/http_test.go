package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

func quiet() *zap.Logger { return zap.NewNop() }

func TestA_10_Card(t *testing.T) {
	name := "one"
	p := &probe{card: func(ctx context.Context, tenant string) (*a2av1.AgentCard, error) {
		if tenant == "none" {
			return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", tenant)
		}
		return &a2av1.AgentCard{Name: name + tenant, Capabilities: &a2av1.AgentCapabilities{}}, nil
	}}
	target := start(t, server.Config{Handler: p, Auth: byKeys(key("ann", "", "secret"))})
	const path = "/.well-known/agent-card.json"
	resp, body := request(t, http.MethodGet, target.HTTP+path, "", nil)
	tag := resp.Header.Get("ETag")
	t.Run("headers", func(t *testing.T) {
		h := resp.Header
		if resp.StatusCode != 200 || tag == "" || h.Get("Cache-Control") != "public, max-age=60" ||
			h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Last-Modified") == "" || h.Get("Content-Type") != "application/json" {
			t.Errorf("%d %v", resp.StatusCode, h)
		}
	})
	t.Run("required fields are there", func(t *testing.T) {
		for _, f := range []string{"name", "description", "supportedInterfaces", "version", "capabilities", "defaultInputModes", "defaultOutputModes", "skills"} {
			if _, ok := body[f]; !ok {
				t.Errorf("no %s in %v", f, body)
			}
		}
		if _, ok := body["documentationUrl"]; ok {
			t.Error("documentationUrl was not set")
		}
	})
	t.Run("304", func(t *testing.T) {
		for header, value := range map[string]string{"If-None-Match": `"x", W/` + tag, "If-Modified-Since": resp.Header.Get("Last-Modified")} {
			if resp, _ := request(t, http.MethodGet, target.HTTP+path, "", map[string]string{header: value}); resp.StatusCode != http.StatusNotModified {
				t.Errorf("%s: %d", header, resp.StatusCode)
			}
		}
	})
	t.Run("HEAD and OPTIONS", func(t *testing.T) {
		if resp, _ := request(t, http.MethodHead, target.HTTP+path, "", nil); resp.StatusCode != 200 || resp.Header.Get("ETag") != tag {
			t.Errorf("HEAD %d", resp.StatusCode)
		}
		if resp, _ := request(t, http.MethodOptions, target.HTTP+path, "", nil); resp.StatusCode != http.StatusNoContent {
			t.Errorf("OPTIONS %d", resp.StatusCode)
		}
	})
	t.Run("of an agent", func(t *testing.T) {
		card, _, err := rig.PublicCard(t.Context(), target, "news")
		if err != nil || card.GetName() != "onenews" {
			t.Errorf("%v %v", card, err)
		}
		if _, resp, err := rig.PublicCard(t.Context(), target, "none"); resp.Status != 404 || rig.Fault(err).Reason != "AGENT_NOT_FOUND" {
			t.Errorf("%v", err)
		}
	})
	t.Run("any version may read it", func(t *testing.T) {
		if resp, _ := request(t, http.MethodGet, target.HTTP+path, "", map[string]string{"A2A-Version": "0.3"}); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	})
	t.Run("a change is seen", func(t *testing.T) {
		name = "two"
		if resp, _ := request(t, http.MethodGet, target.HTTP+path, "", map[string]string{"If-None-Match": tag}); resp.StatusCode != 200 || resp.Header.Get("ETag") == tag {
			t.Errorf("%d", resp.StatusCode)
		}
	})
}

func TestS_37_T_23_DepthAcrossServers(t *testing.T) {
	var depth atomic.Int64
	p := &probe{
		info: func(ctx context.Context, _ *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
			depth.Store(int64(agent.Depth(ctx)))
			return &teamv1.InfoResponse{}, nil
		},
		card: func(ctx context.Context, _ string) (*a2av1.AgentCard, error) {
			depth.Store(int64(agent.Depth(ctx)))
			return &a2av1.AgentCard{}, nil
		},
	}
	target := start(t, server.Config{Handler: p})
	headers := map[string]string{"team-path": "3"}
	for _, path := range []string{"/team/v1/agents/a", "/.well-known/agent-card.json"} {
		depth.Store(0)
		if resp, _ := request(t, http.MethodGet, target.HTTP+path, "", headers); resp.StatusCode != 200 || depth.Load() != 3 {
			t.Errorf("%s: %d, depth %d", path, resp.StatusCode, depth.Load())
		}
	}
	target.Headers = headers
	g, _ := rig.NewGRPC(target)
	defer g.Close()
	depth.Store(0)
	if _, err := teamv1.NewAgentServiceClient(g.Conn).Info(g.Context(t.Context()), &teamv1.InfoRequest{}); err != nil || depth.Load() != 3 {
		t.Errorf("grpc: %v, depth %d", err, depth.Load())
	}
	if resp, body := request(t, http.MethodGet, target.HTTP+"/team/v1/agents/a", "", map[string]string{"team-path": "-1"}); resp.StatusCode != 400 || violation(body) != "team-path" {
		t.Errorf("a bad path: %d %v", resp.StatusCode, body)
	}
}

func TestA_01_TenantNamedTeam(t *testing.T) {
	var tenant, id string
	p := &probe{
		get: func(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
			tenant = req.GetTenant()
			return task(ctx, req)
		},
		info: func(_ context.Context, req *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
			id = req.GetAgentId()
			return &teamv1.InfoResponse{}, nil
		},
	}
	target := start(t, server.Config{Handler: p})
	if resp, _ := request(t, http.MethodGet, target.HTTP+"/team/tasks/t1", "", nil); resp.StatusCode != 200 || tenant != "team" {
		t.Errorf("%d, tenant %q", resp.StatusCode, tenant)
	}
	if resp, _ := request(t, http.MethodGet, target.HTTP+"/team/v1/agents/team", "", nil); resp.StatusCode != 200 || id != "team" {
		t.Errorf("%d, agent %q", resp.StatusCode, id)
	}
	resp, _ := post(t, target.HTTP+"/team/rpc", "application/json", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"tenant":"team","id":"t1"}}`)
	if resp.StatusCode != 200 || tenant != "team" {
		t.Errorf("rpc: %d, tenant %q", resp.StatusCode, tenant)
	}
}

func TestA_05_FourFieldsAlways(t *testing.T) {
	p := &probe{list: func(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
		return &a2av1.ListTasksResponse{}, nil
	}}
	target := start(t, server.Config{Handler: p})
	_, rest := request(t, http.MethodGet, target.HTTP+"/tasks", "", nil)
	_, rpc := post(t, target.HTTP+"/rpc", "application/json", `{"jsonrpc":"2.0","id":1,"method":"ListTasks"}`)
	for _, body := range []any{rest, field(rpc, "result")} {
		for _, name := range []string{"tasks", "nextPageToken", "pageSize", "totalSize"} {
			if field(body, name) == nil {
				t.Errorf("no %s in %v", name, body)
			}
		}
	}
}

func TestS_03_Health(t *testing.T) {
	var healthy atomic.Bool
	p := &probe{health: func(_ context.Context, req *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
		if req.GetAgentId() != "news" {
			return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", req.GetAgentId())
		}
		return &teamv1.HealthCheckResponse{Healthy: healthy.Load()}, nil
	}}
	target, stop := serve(t, server.Config{Handler: p, HealthInterval: time.Millisecond, Auth: byKeys(key("ann", "", "secret"))})
	g, _ := rig.NewGRPC(target)
	defer g.Close()
	client := healthpb.NewHealthClient(g.Conn)
	target.Key = "secret"
	known, _ := rig.NewGRPC(target)
	defer known.Close()
	ctx := known.Context(t.Context())
	t.Run("the server's own is open and needs no member", func(t *testing.T) {
		resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%v %v", resp, err)
		}
	})
	t.Run("a team's is not open", func(t *testing.T) {
		_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "team/news"})
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Code != "Unauthenticated" {
			t.Errorf("%v", f)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		for _, service := range []string{"team/none", "other"} {
			_, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
			if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Code != "NotFound" {
				t.Errorf("%s: %v", service, f)
			}
		}
	})
	watch, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: "team/news"})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if resp, err := watch.Recv(); err != nil || resp.GetStatus() != want {
			t.Fatalf("%v %v, want %v", resp, err, want)
		}
	}
	next(healthpb.HealthCheckResponse_NOT_SERVING)
	healthy.Store(true)
	next(healthpb.HealthCheckResponse_SERVING)
	stop()
	next(healthpb.HealthCheckResponse_NOT_SERVING)
}

func TestA_19_Readiness(t *testing.T) {
	var broken atomic.Pointer[error]
	target := start(t, server.Config{Handler: &probe{}, Ready: func() error {
		if err := broken.Load(); err != nil {
			return *err
		}
		return nil
	}})
	status := func(path string) int {
		resp, _ := request(t, http.MethodGet, target.HTTP+path, "", nil)
		return resp.StatusCode
	}
	if status("/healthz") != 200 || status("/readyz") != 200 {
		t.Error("not ready")
	}
	err := agent.ErrShutdown
	broken.Store(&err)
	if status("/healthz") != 200 || status("/readyz") != 503 {
		t.Error("ready")
	}
}

func TestA_26_T_46_Reflection(t *testing.T) {
	for _, off := range []bool{false, true} {
		target := start(t, server.Config{Handler: &probe{}, NoReflection: off})
		g, _ := rig.NewGRPC(target)
		stream, err := reflectionpb.NewServerReflectionClient(g.Conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		resp, err := stream.Recv()
		if off != (err != nil) {
			t.Errorf("off %v: %v", off, err)
		}
		if !off && !strings.Contains(resp.String(), "team.v1.AgentService") {
			t.Errorf("%v", resp)
		}
		g.Close()
	}
}

func TestA_01_ExtensionsAreActivated(t *testing.T) {
	const team = project.TeamRunURI
	var got []string
	p := &probe{get: func(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
		got = a2a.ExtensionsOf(ctx)
		return task(ctx, req)
	}}
	target := start(t, server.Config{Handler: p})
	target.Headers = map[string]string{"a2a-extensions": "https://example.com/other, " + team}
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		got = nil
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"}); err != nil || len(got) != 2 || got[1] != team {
			t.Errorf("%v %v", got, err)
		}
	})
	resp, _ := request(t, http.MethodGet, target.HTTP+"/tasks/t1", "", target.Headers)
	if echo := resp.Header.Get("A2A-Extensions"); echo != team {
		t.Errorf("HTTP answers %q", echo)
	}
	g, _ := rig.NewGRPC(target)
	defer g.Close()
	var header metadata.MD
	if _, err := a2av1.NewA2AServiceClient(g.Conn).GetTask(g.Context(t.Context()), &a2av1.GetTaskRequest{Id: "t1"}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if echo := header.Get("a2a-extensions"); len(echo) != 1 || echo[0] != team || len(header.Get("x-request-id")) != 1 {
		t.Errorf("gRPC answers %v", header)
	}
}

// TestA_03_CardsAreOpenToEveryVersion: a strict server serves its cards for every version.
func TestA_03_CardsAreOpenToEveryVersion(t *testing.T) {
	card := func(context.Context, string) (*a2av1.AgentCard, error) { return &a2av1.AgentCard{Name: "a"}, nil }
	strict := start(t, server.Config{Handler: &probe{card: card}, Settings: settings.Of(&teamv1.ServerSettings{Protocol: &teamv1.ProtocolSettings{StrictVersion: true}})})
	for _, path := range []string{"/.well-known/agent-card.json", "/a/.well-known/agent-card.json", "/.well-known/agent.json"} {
		for _, version := range []string{"", "1.0", "0.3", "9"} {
			if resp, body := request(t, http.MethodGet, strict.HTTP+path, "", map[string]string{"A2A-Version": version}); resp.StatusCode != http.StatusOK {
				t.Errorf("%s for version %q: %d %v", path, version, resp.StatusCode, body)
			}
		}
	}
}

// TestA_01_PathsAreUnescapedOnce: an id is what it is over the other bindings, and a
// parameter has one value.
func TestA_01_PathsAreUnescapedOnce(t *testing.T) {
	var id string
	target := start(t, server.Config{Handler: &probe{get: func(_ context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
		id = req.GetId()
		return &a2av1.Task{Id: req.GetId()}, nil
	}}})
	for path, want := range map[string]string{"/tasks/t%252e%252e": "t%2e%2e", "/a/tasks/%25": "%", "/tasks/t%2D1": "t-1", "/tasks/t-1": "t-1"} {
		if resp, body := request(t, http.MethodGet, target.HTTP+path, "", nil); resp.StatusCode != http.StatusOK || id != want {
			t.Errorf("%s: %d %v, id %q, want %q", path, resp.StatusCode, body, id, want)
		}
	}
	if resp, body := request(t, http.MethodGet, target.HTTP+"/tasks/t1?history_length=1&historyLength=2", "", nil); resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(fmt.Sprint(body), "historyLength is given in both of its spellings") {
		t.Errorf("twice: %d %v", resp.StatusCode, body)
	}
}
