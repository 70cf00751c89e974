package client

import (
	"context"
	"net/http"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// ListAccounts returns the accounts that have limits, ordered by name.
func (t *Team) ListAccounts(ctx context.Context) ([]*teamv1.Account, error) {
	return all(func(page url.Values) ([]*teamv1.Account, string, error) {
		out := &teamv1.ListAccountsResponse{}
		err := t.call(ctx, http.MethodGet, "/accounts?"+page.Encode(), nil, out)
		return out.GetAccounts(), out.GetNextPageToken(), err
	})
}

// GetAccount returns an account; "-" means that of the caller.
func (t *Team) GetAccount(ctx context.Context, name string) (*teamv1.Account, error) {
	out := &teamv1.GetAccountResponse{}
	err := t.call(ctx, http.MethodGet, "/accounts/"+url.PathEscape(name), nil, out)
	return out.GetAccount(), err
}

// SetAccountLimits sets the limits of an account; nil removes them.
func (t *Team) SetAccountLimits(ctx context.Context, name string, l *teamv1.AccountLimits) (*teamv1.Account, error) {
	out := &teamv1.SetAccountLimitsResponse{}
	err := t.call(ctx, http.MethodPut, "/accounts/"+url.PathEscape(name), &teamv1.SetAccountLimitsRequest{Account: name, Limits: l}, out)
	return out.GetAccount(), err
}
