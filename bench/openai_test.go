package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// BenchmarkOpenAI is a small task through the door for clients of OpenAI's API, against the same task over JSON-RPC. An SDK
// says that it posts a request for the first time; of other clients the door looks for a task that they have begun.
func BenchmarkOpenAI(b *testing.B) {
	t := &measure.Table{Title: "A small task through the door for clients of OpenAI's API", Goals: []string{"xcpu of SDK against JSON-RPC <= 1.3", "xcpu of SDK, responses against JSON-RPC <= 1.3", "xcpu of other client against JSON-RPC <= 1.3"}}
	first := http.Header{"X-Stainless-Retry-Count": {"0"}}
	through := func(header http.Header, path string, body func(int64) []byte, is func([]byte) bool) func(*testing.B) (measure.Call, func()) {
		return func(b *testing.B) (measure.Call, func()) {
			url, stop := withDoor(b)
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			client := &http.Client{Transport: withHeader{transport, header}}
			return func(ctx context.Context, n int64) error {
					return postOne(ctx, client, url+path, body(n), is)
				}, func() {
					transport.CloseIdleConnections()
					stop()
				}
		}
	}
	servers(b, t,
		measure.Rival{Name: "JSON-RPC", Start: func(b *testing.B) (measure.Call, func()) {
			url, stop := withDoor(b)
			return post(url+"/rpc", rpcBody, isTask, stop)
		}},
		measure.Rival{Name: "SDK", Start: through(first, "/v1/chat/completions", chatBody, isCompletion)},
		measure.Rival{Name: "SDK, responses", Start: through(first, "/v1/responses", responseBody, isResponse)},
		measure.Rival{Name: "other client", Start: through(nil, "/v1/chat/completions", chatBody, isCompletion)},
	)
}

// withDoor serves the agent that echoes, with the door.
func withDoor(b *testing.B) (url string, stop func()) {
	b.Helper()
	at, stop := serveWith(b, echo(), &teamv1.ServerSettings{Grpc: loopback, Http: loopback, Openai: &teamv1.OpenAiDoor{}})
	return at.URL, stop
}

// chatBody is the n-th request.
func chatBody(n int64) []byte {
	text := strings.Repeat("x", messageBytes-20) + fmt.Sprint(n)
	return fmt.Appendf(nil, `{"model":"bench","messages":[{"role":"user","content":%q}]}`, text)
}

// responseBody is the n-th request for a response.
func responseBody(n int64) []byte {
	return bytes.Replace(chatBody(n), []byte(`"messages"`), []byte(`"input"`), 1)
}

// isResponse finds out whether an answer is a response that is complete.
func isResponse(answer []byte) bool { return bytes.Contains(answer, []byte(`"status":"completed"`)) }

// isCompletion finds out whether an answer is a completion.
func isCompletion(answer []byte) bool { return bytes.Contains(answer, []byte(`"chat.completion"`)) }

// withHeader adds headers to requests.
type withHeader struct {
	http.RoundTripper
	header http.Header
}

// RoundTrip implements http.RoundTripper.
func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	for name, values := range w.header {
		r.Header[name] = values
	}
	return w.RoundTripper.RoundTrip(r)
}
