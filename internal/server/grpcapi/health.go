package grpcapi

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// teamService is the prefix of the service names of agents and teams. The service "" is the
// server itself, whose health does not depend on theirs.
const teamService = "team/"

// health is the gRPC health service. The health of the server needs no key; that of an
// agent does, because it shows which agents exist.
type health struct {
	healthpb.UnimplementedHealthServer
	of *API
}

// Check returns the health of the server or of an agent.
func (h *health) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	st, err := h.status(ctx, req.GetService())
	if err != nil {
		return nil, err
	}
	return &healthpb.HealthCheckResponse{Status: st}, nil
}

// Watch sends the health of the server or of an agent, now and whenever it changes.
func (h *health) Watch(req *healthpb.HealthCheckRequest, to grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	tick := time.NewTicker(h.of.config.HealthInterval)
	defer tick.Stop()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		st, err := h.status(to.Context(), req.GetService())
		switch {
		case status.Code(err) == codes.NotFound:
			st = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		case err != nil:
			return err
		}
		if st != last {
			if err := to.Send(&healthpb.HealthCheckResponse{Status: st}); err != nil {
				return err
			}
			last = st
		}
		select {
		case <-tick.C:
		case <-to.Context().Done():
			return context.Cause(to.Context())
		case <-h.of.chain.Closing().Done():
			return to.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
		}
	}
}

func (h *health) status(ctx context.Context, service string) (healthpb.HealthCheckResponse_ServingStatus, error) {
	if service == "" {
		return serving(h.of.config.Ready() == nil), nil
	}
	in := call.InboundOf(ctx)
	if in.Caller == nil {
		return 0, wire.Status(h.of.chain.Unknown(in)).Err()
	}
	if err := h.of.chain.Still(in); err != nil { // Watch calls this as long as it lasts
		return 0, wire.Status(err).Err()
	}
	id, ok := strings.CutPrefix(service, teamService)
	if !ok {
		return 0, status.Errorf(codes.NotFound, "unknown service %.64q; use \"\" for the server or %s<id> for an agent", service, teamService)
	}
	resp, err := teamv1.NewAgentServiceClient(h.of.table.Conn()).HealthCheck(ctx, &teamv1.HealthCheckRequest{AgentId: id})
	return serving(resp.GetHealthy()), err
}

func serving(ok bool) healthpb.HealthCheckResponse_ServingStatus {
	if ok {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}
