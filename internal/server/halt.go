package server

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Halts implements the halt service, like *halt.Service. The context carries the caller and errors
// are reported as described at Handler. Implementations are safe for concurrent use.
type Halts interface {
	Halt(context.Context, *teamv1.HaltRequest) (*teamv1.HaltResponse, error)
	Resume(context.Context, *teamv1.ResumeRequest) (*teamv1.ResumeResponse, error)
	ListHalts(context.Context, *teamv1.ListHaltsRequest) (*teamv1.ListHaltsResponse, error)
}

// haltService is the gRPC and REST service for halts.
type haltService struct {
	teamv1.UnimplementedHaltServiceServer
	*Server
}

// Halt halts a subject.
func (s haltService) Halt(ctx context.Context, req *teamv1.HaltRequest) (*teamv1.HaltResponse, error) {
	return unary(ctx, s.Server, "Halt", false, req, s.config.Halts.Halt)
}

// Resume ends a halt.
func (s haltService) Resume(ctx context.Context, req *teamv1.ResumeRequest) (*teamv1.ResumeResponse, error) {
	return unary(ctx, s.Server, "Resume", false, req, s.config.Halts.Resume)
}

// ListHalts returns the halts in force.
func (s haltService) ListHalts(ctx context.Context, req *teamv1.ListHaltsRequest) (*teamv1.ListHaltsResponse, error) {
	return unary(ctx, s.Server, "ListHalts", false, req, s.config.Halts.ListHalts)
}
