package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server"
)

// queryTarget serves what the tests of queries call.
func queryTarget(t *testing.T) string {
	t.Helper()
	return start(t, server.Config{Accounts: costly{}, Handler: &probe{
		send: echo, get: task,
		list: func(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
			return &a2av1.ListTasksResponse{}, nil
		},
	}}).HTTP
}

// costly has one account.
type costly struct{ teamv1.AccountServiceServer }

func (costly) ListAccounts(context.Context, *teamv1.ListAccountsRequest) (*teamv1.ListAccountsResponse, error) {
	return &teamv1.ListAccountsResponse{}, nil
}

func (costly) SetAccountLimits(context.Context, *teamv1.SetAccountLimitsRequest) (*teamv1.SetAccountLimitsResponse, error) {
	return &teamv1.SetAccountLimitsResponse{}, nil
}

// TestA_04_UnknownQueryParameters: a parameter that an operation does not take is an error that names it
// and those that it takes, for REST of both versions.
func TestA_04_UnknownQueryParameters(t *testing.T) {
	t.Parallel()
	at := queryTarget(t)
	const message = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`
	for _, c := range []struct{ method, path, body, field, text string }{
		{"GET", "/tasks?text=x", "", "text", "known ones: tenant, contextId, status, pageSize"},
		{"GET", "/news/tasks?state=TASK_STATE_WORKING&pageSize=1", "", "state", "statusTimestampAfter"},
		{"GET", "/tasks?pagesize=1", "", "pagesize", "pageSize"},
		{"GET", "/tasks?b=1&a=1", "", "a", "b is not a known"},
		{"GET", "/tasks?status.x.y=1&statusTimestampAfter.minutes=1", "", "statusTimestampAfter.minutes", "statusTimestampAfter.minutes is not"},
		{"HEAD", "/tasks?text=x", "", "", ""},
		{"GET", "/tasks/t1?history=1", "", "history", "known ones: tenant, historyLength"},
		{"GET", "/extendedAgentCard?x=", "", "x", "known ones: tenant"},
		{"GET", "/tasks/t1:subscribe?historyLength=1", "", "historyLength", "known ones"},
		{"POST", "/message:send?configuration.blocking=true", message, "configuration.blocking", "known ones: tenant"},
		{"POST", "/message:stream?text=x", message, "text", "known ones: tenant"},
		{"POST", "/tasks/t1:cancel?reason=x", "", "reason", "known ones: tenant"},
		{"GET", "/team/v1/accounts?account=acme", "", "account", "known ones: pageSize, pageToken"},
		{"PUT", "/team/v1/accounts/acme?limits.maxRunning=1", `{}`, "limits.maxRunning", "takes no parameters"},
		{"GET", "/v1/tasks?text=x", "", "text", "known ones: contextId, status"},
		{"GET", "/v1/tasks/t1?text=x", "", "text", "known ones: historyLength"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			resp, answer := request(t, c.method, at+c.path, c.body, map[string]string{"Content-Type": "application/json"})
			if resp.StatusCode != http.StatusBadRequest {
				t.Fatalf("status %d: %v", resp.StatusCode, answer)
			}
			if c.field == "" {
				return
			}
			if got := violation(answer); got != c.field && !strings.HasPrefix(c.path, "/v1") {
				t.Errorf("field %q, want %q", got, c.field)
			}
			if text := fmt.Sprint(answer); !strings.Contains(text, c.field+" is not a known query parameter") || !strings.Contains(text, c.text) || !strings.Contains(text, "INVALID_REQUEST") {
				t.Errorf("%s", text)
			}
		})
	}
}

// TestA_04_KnownQueryParameters: documented parameters are taken in both spellings, with fields of fields.
func TestA_04_KnownQueryParameters(t *testing.T) {
	t.Parallel()
	at := queryTarget(t)
	for _, path := range []string{
		"/tasks?pageSize=1&contextId=c&includeArtifacts=true&status=TASK_STATE_WORKING&historyLength=1&statusTimestampAfter=2026-01-02T03:04:05Z",
		"/tasks?page_size=1&context_id=c&include_artifacts=true&page_token=&history_length=1&status_timestamp_after=2026-01-02T03:04:05Z",
		"/tasks?tenant=news&A2A-Version=1.0", "/tasks?a2a-version=1.0", "/news/tasks?tenant=news",
		"/tasks/t1?historyLength=1&id=t1", "/tasks/t1?history_length=1",
		"/v1/tasks?page_size=1&tenant=news", "/team/v1/accounts?pageSize=1&page_token=a",
	} {
		if resp, answer := request(t, http.MethodGet, at+path, "", nil); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %v", path, resp.StatusCode, answer)
		}
	}
}
