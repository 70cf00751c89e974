package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
)

// BenchmarkFront is goal 3: SendMessage over JSON-RPC and over REST, of an agent
// that answers with a message and of one that makes a task of it, each against a
// bare server of the same binding that answers with the message. The row of the
// binding is what is left of it without a run: the server with a handler that echoes.
func BenchmarkFront(b *testing.B) {
	for _, f := range []front{
		{"JSON-RPC", "/rpc", rpcBody, func(*testing.B) http.Handler { return http.HandlerFunc(rpcEcho) }},
		{"REST", "/message:send", restBody, restEcho},
	} {
		t := &measure.Table{Title: "A2A SendMessage over " + f.name, Goals: []string{
			"goal 3: rival=message, c=64: xRPS >= 0.85", "binding is the server without a run and its record",
		}}
		b.Run(f.name, func(b *testing.B) {
			direct := echo()
			direct.MayReplyDirectly = true
			servers(b, t,
				measure.Rival{Name: "echo", Start: func(b *testing.B) (measure.Call, func()) {
					url, stop := bareHTTP(b, f.echo(b))
					return post(url+f.path, f.body, isMessage, stop)
				}},
				measure.Rival{Name: "binding", Start: func(b *testing.B) (measure.Call, func()) {
					url, stop := binding(b)
					return post(url+f.path, f.body, isMessage, stop)
				}},
				measure.Rival{Name: "message", Start: func(b *testing.B) (measure.Call, func()) {
					at, stop := serve(b, direct)
					return post(at.URL+f.path, f.body, isMessage, stop)
				}},
				measure.Rival{Name: "task", Start: func(b *testing.B) (measure.Call, func()) {
					at, stop := serve(b, echo())
					return post(at.URL+f.path, f.body, isTask, stop)
				}},
			)
		})
	}
}

// front is a binding in JSON.
type front struct {
	name string
	path string
	body func(n int64) ([]byte, error)   // the n-th request
	echo func(b *testing.B) http.Handler // the yardstick
}

func restBody(n int64) ([]byte, error) {
	return protojson.Marshal(&a2av1.SendMessageRequest{Message: message(n)})
}

func rpcBody(n int64) ([]byte, error) {
	params, err := restBody(n)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"SendMessage","params":%s}`, n, params), nil
}

// isMessage and isTask find out whether an answer is what was asked for.
func isMessage(answer []byte) bool {
	return bytes.Contains(answer, []byte(`"message"`)) && !bytes.Contains(answer, []byte(`"task"`))
}

func isTask(answer []byte) bool { return bytes.Contains(answer, []byte("TASK_STATE_COMPLETED")) }

// restEcho is the yardstick of REST: a gateway with its defaults that calls a
// server in this process.
func restEcho(b *testing.B) http.Handler {
	mux := runtime.NewServeMux()
	if err := a2av1.RegisterA2AServiceHandlerServer(b.Context(), mux, sendEcho{}); err != nil {
		b.Fatal(err)
	}
	return mux
}

// binding serves a handler that echoes on HTTP.
func binding(b *testing.B) (url string, stop func()) {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", loopback)
	if err != nil {
		b.Fatal(err)
	}
	s, err := server.New(server.Config{Handler: echoHandler{}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, server.Listeners{HTTP: l}) }()
	return "http://" + l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("serving: %v", err)
		}
	}
}

// echoHandler answers SendMessage; nothing else is asked of it.
type echoHandler struct{ service.Handler }

func (echoHandler) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return sendEcho{}.SendMessage(ctx, req)
}

// envelope is that of a JSON-RPC request and of its answer.
type envelope struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
}

// rpcEcho is the yardstick of JSON-RPC.
func rpcEcho(w http.ResponseWriter, r *http.Request) {
	answer, err := rpcAnswer(r.Context(), r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the caller reads it or fails
}

func rpcAnswer(ctx context.Context, body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var call envelope
	if err := json.Unmarshal(text, &call); err != nil {
		return nil, err
	}
	req := &a2av1.SendMessageRequest{}
	if err := protojson.Unmarshal(call.Params, req); err != nil {
		return nil, err
	}
	resp, err := sendEcho{}.SendMessage(ctx, req)
	if err != nil {
		return nil, err
	}
	result, err := protojson.Marshal(resp)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{JSONRPC: "2.0", ID: call.ID, Result: result})
}
