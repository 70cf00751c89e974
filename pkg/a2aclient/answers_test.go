package a2aclient

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// TestA_12_StatusOfErrorsInStreams: an event has no HTTP status, so neither has the error
// that it is.
func TestA_12_StatusOfErrorsInStreams(t *testing.T) {
	const ofRPC = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,\"message\":\"no such task\"}}\n\n"
	for name, via := range map[string]transport{
		"REST":         newREST(newWeb(Config{}, V1), foreign(t, 200, "text/event-stream", inStream, nil)),
		"REST 0.3":     newREST03(newWeb(Config{}, V03), foreign(t, 200, "text/event-stream", inStream, nil)),
		"JSON-RPC":     newJSONRPC(newWeb(Config{}, V1), foreign(t, 200, "text/event-stream", ofRPC, nil)),
		"JSON-RPC 0.3": newJSONRPC03(newWeb(Config{}, V03), foreign(t, 200, "text/event-stream", ofRPC, nil)),
	} {
		var e *ServerError
		if err := firstError(via.stream(t.Context(), &a2av1.SendMessageRequest{})); !errors.As(err, &e) || e.HTTPStatus != 0 || !errors.Is(e, ErrTaskNotFound) {
			t.Errorf("%s: %#v", name, err)
		}
		_ = via.close()
	}
}

// TestA_21_TextsOfAnswersAreShort: an error quotes a little of what a server sends.
func TestA_21_TextsOfAnswersAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for name, c := range map[string]*Client{
		"an id":  {via: newJSONRPC(newWeb(Config{}, V1), foreign(t, 200, "application/json", `{"jsonrpc":"2.0","id":"`+long+`","result":{}}`, nil))},
		"a task": {via: newREST(newWeb(Config{}, V1), foreign(t, 200, "application/json", `{"id":"`+long+`"}`, nil))},
	} {
		_, err := c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
		if err == nil || len(err.Error()) > 1024 {
			t.Errorf("%s: an error of %d bytes", name, len(text(err)))
		}
		_ = c.Close()
	}
}

// TestA_18_PagesOfWebhooks: both versions ask for a page over HTTP+JSON.
func TestA_18_PagesOfWebhooks(t *testing.T) {
	for _, make := range []func(url string) transport{
		func(url string) transport { return newREST(newWeb(Config{}, V1), url) },
		func(url string) transport { return newREST03(newWeb(Config{}, V03), url) },
	} {
		var asked []*http.Request
		via := make(foreign(t, 200, "application/json", `{}`, &asked))
		req := &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: "t", PageSize: 7, PageToken: "p"}
		before := proto.CloneOf(req)
		_, _ = via.pushes(t.Context(), req)
		if len(asked) != 1 || asked[0].URL.RawQuery != "pageSize=7&pageToken=p" || !proto.Equal(before, req) {
			t.Errorf("asked is %v", asked)
		}
		_ = via.close()
	}
}
