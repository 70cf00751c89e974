package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// TestMain looks for leaks. A goroutine that a library of Gemini's library starts with
// the program is none.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// cardServer serves a card and counts the calls that show a token.
func cardServer(t *testing.T, card *a2av1.AgentCard, tokens *[]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*tokens = append(*tokens, r.URL.Path+" "+r.Header.Get("Authorization"))
		if strings.HasSuffix(r.URL.Path, ".json") {
			data, err := wire.Marshal(card)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(data)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`))
	}))
	t.Cleanup(s.Close)
	return s
}

func offer(interfaces ...*a2av1.AgentInterface) *a2av1.AgentCard {
	return &a2av1.AgentCard{Name: "a", SupportedInterfaces: interfaces}
}

func TestTokenGoesToTheNamedHostOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		host string // of the interface
		want string
	}{
		"the same host": {"127.0.0.1", "Bearer secret"},
		"another host":  {"localhost", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			card := offer(&a2av1.AgentInterface{ProtocolBinding: REST, ProtocolVersion: "1.0"})
			s := cardServer(t, card, &calls)
			card.SupportedInterfaces[0].Url = strings.Replace(s.URL, "127.0.0.1", tt.host, 1)
			c, err := Open(t.Context(), s.URL, Config{Token: "secret"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			resp, err := c.Send(t.Context(), &a2av1.SendMessageRequest{Message: &a2av1.Message{MessageId: "m"}})
			if err != nil || resp.GetMessage().GetParts()[0].GetText() != "hi" {
				t.Fatalf("%v, %v", resp, err)
			}
			if got := calls[len(calls)-1]; got != "/message:send "+tt.want {
				t.Errorf("call %q", got)
			}
		})
	}
}

func TestA_25_Choose(t *testing.T) {
	both := offer(
		&a2av1.AgentInterface{ProtocolBinding: "SOAP", ProtocolVersion: "1.0"},
		&a2av1.AgentInterface{ProtocolBinding: JSONRPC, ProtocolVersion: "0.3.0"},
		&a2av1.AgentInterface{ProtocolBinding: REST, ProtocolVersion: "1.0"},
		&a2av1.AgentInterface{ProtocolBinding: GRPC, ProtocolVersion: "1.0"},
	)
	old := offer(
		&a2av1.AgentInterface{ProtocolBinding: GRPC, ProtocolVersion: "0.3.0"},
		&a2av1.AgentInterface{ProtocolBinding: REST, ProtocolVersion: "0.3.0"},
	)
	for _, tt := range []struct {
		card             *a2av1.AgentCard
		binding, version string
		want, fault      string
	}{
		{card: both, want: REST + " 1.0"},
		{card: both, binding: GRPC, want: GRPC + " 1.0"},
		{card: both, binding: JSONRPC, want: JSONRPC + " 0.3.0"},
		{card: both, version: V03, want: JSONRPC + " 0.3.0"},
		{card: both, binding: JSONRPC, version: V10, fault: "card read, but it offers only SOAP 1.0, JSONRPC 0.3.0, HTTP+JSON 1.0, GRPC 1.0; wanted protocol 1.0 over JSONRPC"},
		{card: both, binding: REST, version: V03, fault: "; wanted protocol 0.3 over HTTP+JSON"},
		{card: old, want: REST + " 0.3.0"},
		{card: old, binding: GRPC, fault: "card read, but it offers only GRPC 0.3.0, HTTP+JSON 0.3.0; wanted protocol 1.0 over GRPC"},
		{card: old, version: V10, fault: "; wanted protocol 1.0 over GRPC, HTTP+JSON or JSONRPC"},
		{card: old, binding: JSONRPC, fault: "; wanted protocol 1.0 over JSONRPC, or 0.3 over JSONRPC"},
		{card: offer(), fault: "card read, but it offers nothing; wanted protocol 1.0 over GRPC, HTTP+JSON or JSONRPC, or 0.3 over HTTP+JSON or JSONRPC"},
	} {
		i, err := Config{Binding: tt.binding, Version: tt.version}.choose(tt.card)
		if tt.fault != "" {
			if err == nil || !strings.HasSuffix(err.Error(), tt.fault) {
				t.Errorf("%q %q: %v, want %s", tt.binding, tt.version, err, tt.fault)
			}
			continue
		}
		if got := i.GetProtocolBinding() + " " + i.GetProtocolVersion(); err != nil || got != tt.want {
			t.Errorf("%q %q: %s, %v, want %s", tt.binding, tt.version, got, err, tt.want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	for _, target := range []string{"http://127.0.0.1:1/a", "grpc://127.0.0.1:1/a"} {
		c, err := Open(t.Context(), target, Config{})
		if err == nil {
			_, err = c.Send(t.Context(), &a2av1.SendMessageRequest{})
			_ = c.Close()
		}
		if !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := Open(t.Context(), "nonsense", Config{}); err == nil || errors.Is(err, ErrUnreachable) {
		t.Errorf("error is %v", err)
	}
}
