package server

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Accounts implements the account service, like *account.Accounts. The context carries the caller
// and errors are reported as described at Handler. Implementations are safe for concurrent use.
type Accounts interface {
	SetAccountLimits(context.Context, *teamv1.SetAccountLimitsRequest) (*teamv1.SetAccountLimitsResponse, error)
	GetAccount(context.Context, *teamv1.GetAccountRequest) (*teamv1.GetAccountResponse, error)
	ListAccounts(context.Context, *teamv1.ListAccountsRequest) (*teamv1.ListAccountsResponse, error)
}

// accountService is the gRPC and REST service for accounts.
type accountService struct {
	teamv1.UnimplementedAccountServiceServer
	*Server
}

// SetAccountLimits sets the limits of an account.
func (s accountService) SetAccountLimits(ctx context.Context, req *teamv1.SetAccountLimitsRequest) (*teamv1.SetAccountLimitsResponse, error) {
	return unary(ctx, s.Server, "SetAccountLimits", false, req, s.config.Accounts.SetAccountLimits)
}

// GetAccount returns an account.
func (s accountService) GetAccount(ctx context.Context, req *teamv1.GetAccountRequest) (*teamv1.GetAccountResponse, error) {
	return unary(ctx, s.Server, "GetAccount", false, req, s.config.Accounts.GetAccount)
}

// ListAccounts returns a page of accounts.
func (s accountService) ListAccounts(ctx context.Context, req *teamv1.ListAccountsRequest) (*teamv1.ListAccountsResponse, error) {
	return unary(ctx, s.Server, "ListAccounts", false, req, s.config.Accounts.ListAccounts)
}
