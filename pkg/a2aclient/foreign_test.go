package a2aclient

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/secret"
)

// Servers of others answer in ways that ours does not.

// foreign serves one answer to everything, and keeps what it was asked.
func foreign(t *testing.T, code int, media, body string, asked *[]*http.Request) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked != nil {
			*asked = append(*asked, r)
		}
		w.Header().Set("Content-Type", media)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func firstError(responses iter.Seq2[*a2av1.StreamResponse, error]) error {
	for _, err := range responses {
		if err != nil {
			return err
		}
	}
	return errors.New("no error")
}

const inStream = "data: {\"error\":{\"code\":404,\"status\":\"NOT_FOUND\",\"message\":\"task not found\",\"details\":[" +
	"{\"@type\":\"type.googleapis.com/google.rpc.ErrorInfo\",\"domain\":\"a2a-protocol.org\",\"reason\":\"TASK_NOT_FOUND\"}]}}\n\n"

func TestA_12_ErrorsOfOtherServers(t *testing.T) {
	web := func() *web { return newWeb(Config{}, V1) }
	for _, tt := range []struct {
		name, media, body string
		code              int
		over              func(url string) transport
		want              string
	}{
		{"an event that is an error, REST", "text/event-stream", inStream, 200,
			func(url string) transport { return newREST(web(), url) }, "TASK_NOT_FOUND: task not found"},
		{"an event that is an error, REST 0.3", "text/event-stream", inStream, 200,
			func(url string) transport { return newREST03(web(), url) }, "TASK_NOT_FOUND: task not found"},
		{"an event that is an error, REST 0.3, as JSON-RPC has it", "text/event-stream", "event: error\ndata: {\"code\":-32001,\"message\":\"no such task\"}\n\n", 200,
			func(url string) transport { return newREST03(web(), url) }, "TASK_NOT_FOUND: no such task"},
		{"an event that is an error, REST 0.3, with a member", "text/event-stream", "data: {\"error\":{\"code\":-32001,\"message\":\"no such task\"}}\n\n", 200,
			func(url string) transport { return newREST03(web(), url) }, "TASK_NOT_FOUND: no such task"},
		{"an event that is an error, REST, without a status", "text/event-stream", "data: {\"error\":{\"code\":404,\"message\":\"no such task\"}}\n\n", 200,
			func(url string) transport { return newREST(web(), url) }, "NOT_FOUND: no such task"},
		{"an event that is an error, JSON-RPC", "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32004,\"message\":\"no streams\"}}\n\n", 200,
			func(url string) transport { return newJSONRPC(web(), url) }, "UNSUPPORTED_OPERATION: no streams"},
		{"an error of JSON-RPC below /v1", "application/json", `{"code":-32001,"message":"no such task"}`, 404,
			func(url string) transport { return newREST03(web(), url) }, "TASK_NOT_FOUND: no such task"},
		{"a message below /v1", "application/json", `{"message":"no such task"}`, 404,
			func(url string) transport { return newREST03(web(), url) }, "NOT_FOUND: no such task"},
		{"a page of a proxy, JSON-RPC", "text/html", "<html>", 502,
			func(url string) transport { return newJSONRPC(web(), url) }, "UNAVAILABLE: Bad Gateway"},
		{"a page of a proxy, REST", "text/html", "<html>", 401,
			func(url string) transport { return newREST(web(), url) }, "UNAUTHENTICATED: Unauthorized"},
		{"a page of a proxy, JSON-RPC 0.3", "text/html", "<html>", 403,
			func(url string) transport { return newJSONRPC03(web(), url) }, "PERMISSION_DENIED: Forbidden"},
		{"no stream", "application/json", `{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`, 200,
			func(url string) transport { return newREST(web(), url) }, "the server answered application/json, not an event stream"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			via := tt.over(foreign(t, tt.code, tt.media, tt.body, nil))
			defer func() { _ = via.close() }()
			if err := firstError(via.stream(t.Context(), &a2av1.SendMessageRequest{})); err.Error() != tt.want {
				t.Errorf("stream: %v, want %s", err, tt.want)
			}
			if tt.media == "text/event-stream" || tt.code == 200 {
				return
			}
			if _, err := via.task(t.Context(), &a2av1.GetTaskRequest{Id: "x"}); err == nil || err.Error() != tt.want {
				t.Errorf("get: %v, want %s", err, tt.want)
			}
		})
	}
}

// The tenant is part of each path, whatever the address ends in, as the definition of
// the protocol and the official SDKs have it.
func TestA_23_TenantIsPartOfThePath(t *testing.T) {
	var asked []*http.Request
	via := newREST(newWeb(Config{}, V1), foreign(t, 200, "application/json", `{}`, &asked)+"/desk")
	defer func() { _ = via.close() }()
	for tenant, want := range map[string]string{"": "/desk/tasks/t", "desk": "/desk/desk/tasks/t", "a/b": "/desk/a%2Fb/tasks/t"} {
		if _, err := via.task(t.Context(), &a2av1.GetTaskRequest{Tenant: tenant, Id: "t"}); err != nil {
			t.Fatal(err)
		}
		if got := asked[len(asked)-1].URL.EscapedPath(); got != want {
			t.Errorf("tenant %q: %s, want %s", tenant, got, want)
		}
	}
}

// A deletion is answered with anything.
func TestA_12_DeletedInAnyWords(t *testing.T) {
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"result":null}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1}`} {
		for _, via := range []transport{
			newJSONRPC(newWeb(Config{}, V1), foreign(t, 200, "application/json", body, nil)),
			newJSONRPC03(newWeb(Config{}, V1), foreign(t, 200, "application/json", body, nil)),
			newREST03(newWeb(Config{}, V1), foreign(t, 204, "", "", nil)),
		} {
			if err := via.deletePush(t.Context(), &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: "t", Id: "p"}); err != nil {
				t.Errorf("%s: %v", body, err)
			}
			_ = via.close()
		}
	}
	via := newJSONRPC(newWeb(Config{}, V1), foreign(t, 200, "application/json", `{"jsonrpc":"2.0","id":1}`, nil))
	defer func() { _ = via.close() }()
	if _, err := via.task(t.Context(), &a2av1.GetTaskRequest{}); err == nil || err.Error() != "the response contains neither a result nor an error" {
		t.Errorf("a task: %v", err)
	}
}

// Who has no GET for it is asked to subscribe by POST.
func TestA_07_SubscribeByPost(t *testing.T) {
	for _, of := range []func(string) transport{
		func(url string) transport { return newREST(newWeb(Config{}, V1), url) },
		func(url string) transport { return newREST03(newWeb(Config{}, V1), url) },
	} {
		var methods []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			methods = append(methods, r.Method+" "+r.Header.Get("Last-Event-ID"))
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"statusUpdate\":{\"taskId\":\"t\",\"contextId\":\"c\",\"status\":{\"state\":\"TASK_STATE_COMPLETED\"}}}\n\n")
		}))
		via := of(s.URL)
		n := 0
		for r, err := range via.subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: "t"}, 7) {
			if n++; err != nil || r.GetStatusUpdate().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Errorf("%v, %v", r, err)
			}
		}
		if n != 1 || !slices.Equal(methods, []string{"GET 7", "POST 7"}) {
			t.Errorf("%d updates of %v", n, methods)
		}
		_ = via.close()
		s.Close()
	}
}

// What is shown is what went over the wire, without what is secret.
func TestA_21_RawHidesSecrets(t *testing.T) {
	var raw bytes.Buffer
	var asked []*http.Request
	answer := `{"id":"p","taskId":"t","url":"http://h/","token":"t0k\"en","authentication":{"scheme":"Bearer","credentials":"letmein"}}`
	cfg := Config{Raw: &raw, Token: secret.New("s3same"), Extensions: []string{"https://e/1", "https://e/2"}, Header: http.Header{"X-Api-Key": {"k3y"}, "X-Trace": {"seen"}}}
	via := newREST(newWeb(cfg, V1), foreign(t, 200, "application/json", answer, &asked))
	defer func() { _ = via.close() }()
	_, err := via.setPush(t.Context(), &a2av1.TaskPushNotificationConfig{
		TaskId: "t", Url: "http://h/", Token: `t0k"en`, Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "letmein"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := asked[0].Header
	if h.Get("Authorization") != "Bearer s3same" || h.Get("X-Api-Key") != "k3y" || h.Get("A2A-Extensions") != "https://e/1, https://e/2" {
		t.Errorf("sent is %v", h)
	}
	for _, hidden := range []string{"s3same", "k3y", "t0k", "letmein"} {
		if strings.Contains(raw.String(), hidden) {
			t.Errorf("%s is shown:\n%s", hidden, &raw)
		}
	}
	for _, shown := range []string{"> Authorization: ***\n", "> X-Api-Key: ***\n", "> X-Trace: seen\n", "> A2A-Version: 1.0\n", `"token":"***"`, `"credentials":"***"`, `"url":"http://h/"`} {
		if !strings.Contains(strings.ReplaceAll(raw.String(), `": "`, `":"`), shown) {
			t.Errorf("%s is not shown:\n%s", shown, &raw)
		}
	}
}

// unsigned refuses every card.
type unsigned struct{}

func (unsigned) Verify(*a2av1.AgentCard) (*a2av1.AgentCard, string, error) {
	return nil, "", errors.New("the card is not signed")
}

// A card that is not to be trusted is not acted upon.
func TestA_10_UntrustedCardIsNotCalled(t *testing.T) {
	var calls []string
	card := offer(&a2av1.AgentInterface{ProtocolBinding: REST, ProtocolVersion: "1.0"})
	s := cardServer(t, card, &calls)
	card.SupportedInterfaces[0].Url = s.URL
	_, err := Open(t.Context(), s.URL, Config{Verifier: unsigned{}})
	if want := "the card of " + s.URL + wellKnown + " is not trusted: the card is not signed"; err == nil || err.Error() != want {
		t.Errorf("error is %v", err)
	}
	if len(calls) != 1 {
		t.Errorf("calls %v, want the one for the card", calls)
	}
}

// Secrets follow no redirect; the person is told where it leads, without the token that the server was sent.
func TestA_21_T_42_RedirectsAreTold(t *testing.T) {
	var calls []string
	to := cardServer(t, offer(), &calls)
	s := httptest.NewServer(http.RedirectHandler(to.URL+"/agent/secret-token", http.StatusPermanentRedirect))
	defer s.Close()
	_, err := Open(t.Context(), s.URL, Config{Token: secret.New("secret-token")})
	if want := s.URL + wellKnown + " has moved to " + to.URL + "/agent/***; use that address"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	if len(calls) != 0 {
		t.Errorf("called were %v", calls)
	}
}
