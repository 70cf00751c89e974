package server

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Keys implements the key service, like *auth.Service. The context carries the caller and errors are
// reported as described at Handler. Implementations are safe for concurrent use.
type Keys interface {
	CreateKey(context.Context, *teamv1.CreateKeyRequest) (*teamv1.CreateKeyResponse, error)
	ListKeys(context.Context, *teamv1.ListKeysRequest) (*teamv1.ListKeysResponse, error)
	RevokeKey(context.Context, *teamv1.RevokeKeyRequest) (*teamv1.RevokeKeyResponse, error)
}

// keyService is the gRPC and REST service for API keys.
type keyService struct {
	teamv1.UnimplementedKeyServiceServer
	*Server
}

// CreateKey makes a key.
func (s keyService) CreateKey(ctx context.Context, req *teamv1.CreateKeyRequest) (*teamv1.CreateKeyResponse, error) {
	return unary(ctx, s.Server, "CreateKey", false, req, s.config.Keys.CreateKey)
}

// ListKeys returns a page of keys.
func (s keyService) ListKeys(ctx context.Context, req *teamv1.ListKeysRequest) (*teamv1.ListKeysResponse, error) {
	return unary(ctx, s.Server, "ListKeys", false, req, s.config.Keys.ListKeys)
}

// RevokeKey ends a key.
func (s keyService) RevokeKey(ctx context.Context, req *teamv1.RevokeKeyRequest) (*teamv1.RevokeKeyResponse, error) {
	return unary(ctx, s.Server, "RevokeKey", false, req, s.config.Keys.RevokeKey)
}
