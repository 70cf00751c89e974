package client

import (
	"context"
	"net/http"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// CreateKey makes an API key.
func (t *Team) CreateKey(ctx context.Context, req *teamv1.CreateKeyRequest) (*teamv1.CreateKeyResponse, error) {
	out := &teamv1.CreateKeyResponse{}
	return out, t.call(ctx, http.MethodPost, "/keys", req, out)
}

// ListKeys returns the API keys that were made by CreateKey, ordered by id.
func (t *Team) ListKeys(ctx context.Context) ([]*teamv1.Key, error) {
	return all(func(page url.Values) ([]*teamv1.Key, string, error) {
		out := &teamv1.ListKeysResponse{}
		err := t.call(ctx, http.MethodGet, "/keys?"+page.Encode(), nil, out)
		return out.GetKeys(), out.GetNextPageToken(), err
	})
}

// RevokeKey ends an API key.
func (t *Team) RevokeKey(ctx context.Context, id string) (*teamv1.Key, error) {
	out := &teamv1.RevokeKeyResponse{}
	err := t.call(ctx, http.MethodPost, "/keys/"+url.PathEscape(id)+":revoke", &teamv1.RevokeKeyRequest{}, out)
	return out.GetKey(), err
}
