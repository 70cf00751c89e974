package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// TestA_25_A_18_Webhook: a webhook that is set over A2A 0.3 gets the task as 0.3 has
// it, with its token.
func TestA_25_A_18_Webhook(t *testing.T) {
	t.Parallel()
	type told struct{ Kind, ID, ContextID, State, Token, Media, Version string }
	got := make(chan told, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var task struct {
			Kind, ID, ContextID string
			Status              struct{ State string }
		}
		b, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(b, &task) != nil {
			t.Errorf("%v: %s", err, b)
		}
		got <- told{task.Kind, task.ID, task.ContextID, task.Status.State, r.Header.Get("X-A2A-Notification-Token"), r.Header.Get("Content-Type"), r.Header.Get("A2A-Version")}
	}))
	defer hook.Close()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, script(t, "echo", &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}})), Push: hasty})
	body := fmt.Sprintf(`{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {
		"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}]},
		"configuration": {"blocking": false, "pushNotificationConfig": {"url": %q, "token": "secret"}}}}`, hook.URL)
	resp, err := http.Post(target.HTTP+"/echo/rpc", "application/json", bytes.NewBufferString(body)) //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	var begun struct{ Result struct{ ID string } }
	if err != nil || json.Unmarshal(answer, &begun) != nil || begun.Result.ID == "" {
		t.Fatalf("%v: %s", err, answer)
	}
	limit := time.After(20 * time.Second)
	for {
		select {
		case n := <-got:
			if n.Kind != "task" || n.ID != begun.Result.ID || n.ContextID == "" || n.Token != "secret" || n.Media != "application/json" || n.Version != "0.3" {
				t.Fatalf("told %+v of %s", n, begun.Result.ID)
			}
			if n.State == "completed" {
				return
			}
		case <-limit:
			t.Fatal("the end was not told")
		}
	}
}
