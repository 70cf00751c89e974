package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// FuzzP17_Request: whatever is sent as a request over HTTP, the answer is a response that says what is wrong,
// and not that the server has failed.
func FuzzP17_Request(f *testing.F) {
	for _, path := range []string{
		"/", "/healthz", "/rpc", "/docs", "/openapi.json", "/.well-known/agent-card.json", "/echo/.well-known/agent-card.json", "/echo/tasks", "/tasks/x:cancel", "/echo/tasks/x:subscribe",
		"/echo/tasks?pageSize=7&historyLength=-1&pageToken=x&status=TASK_STATE_WORKING&includeArtifacts=true&statusTimestampAfter=2026-01-01T00:00:00Z",
		"/echo/message:send", "/echo/message:stream", "/v1/message:send", "/v1/card", "/echo/tasks/a%2fb", "/echo/tasks/a%00b", "/echo/tasks/x/pushNotificationConfigs/y", "/echo/extendedAgentCard",
		"/team/v1/teams", "/team/v1/teams/x", "/team/v1/registry/agents?pageSize=2", "/team/v1/halts/AGENT/x", "/team/v1/monitor/teams/echo:watch", "/team/v1/accounts/-", "/team/v1/audit?account=a&afterSeq=1",
		"/team/v1/costs?from=x&to=y&groupBy=AGENT", "/team/v1/tasks/x/trace", "/echo/tasks/x/parts/1/2/3", "//echo//tasks", "/echo/../tasks", "/%2e%2e/x", "/echo/tasks?", "/\xff",
	} {
		f.Add("GET", path, "A2A-Version: 1.0", "")
		f.Add("POST", path, "Content-Type: application/json", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`)
	}
	f.Add("POST", "/rpc", "Content-Type: application/json", `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"tenant":"echo"}}`)
	f.Add("DELETE", "/team/v1/teams/x?force=true", "Last-Event-ID: 99", "")
	f.Add("OPTIONS", "*", "X-HTTP-Method-Override: DELETE", "")
	f.Add("PUT", "/team/v1/teams/x", "Content-Type: application/yaml", "teams: {x: {}}")
	f.Add("GET", "/echo/tasks", "Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n")
	target := rig.Serve(f, server.Config{Agents: rig.Manager(f, says("echo"))})
	address := strings.TrimPrefix(target.HTTP, "http://")
	var conn net.Conn
	var from *bufio.Reader
	f.Cleanup(func() {
		if conn != nil {
			_ = conn.Close()
		}
	})
	f.Fuzz(func(t *testing.T, method, path, header, body string) {
		if conn == nil {
			var err error
			if conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err != nil {
				t.Fatal(err)
			}
			from = bufio.NewReader(conn)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		again := false // the connection can be used for the next request
		defer func() {
			if !again {
				_ = conn.Close()
				conn = nil
			}
		}()
		sent := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s", method, path, address, header, len(body), body)
		if _, err := io.WriteString(conn, sent); err != nil {
			return // the server has ended the connection after the last request
		}
		resp, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			return // no request, or one that is not complete
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented && resp.StatusCode != http.StatusHTTPVersionNotSupported {
			got, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			t.Fatalf("%d for %q: %s", resp.StatusCode, sent, got)
		}
		if resp.Header.Get("Content-Type") == "text/event-stream" {
			return
		}
		_, err = io.Copy(io.Discard, resp.Body)
		again = err == nil && !resp.Close && from.Buffered() == 0
	})
}
