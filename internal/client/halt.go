package client

import (
	"context"
	"net/http"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Halt halts a subject.
func (t *Team) Halt(ctx context.Context, req *teamv1.HaltRequest) (*teamv1.HaltResponse, error) {
	out := &teamv1.HaltResponse{}
	return out, t.call(ctx, http.MethodPost, "/halts", req, out)
}

// EndHalt ends the halt of a subject.
func (t *Team) EndHalt(ctx context.Context, req *teamv1.ResumeRequest) (*teamv1.ResumeResponse, error) {
	out := &teamv1.ResumeResponse{}
	return out, t.call(ctx, http.MethodPost, "/halts:resume", req, out)
}

// Halts returns the halts in force, oldest first.
func (t *Team) Halts(ctx context.Context) ([]*teamv1.Halt, error) {
	out := &teamv1.ListHaltsResponse{}
	err := t.call(ctx, http.MethodGet, "/halts", nil, out)
	return out.GetHalts(), err
}
