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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestChoose(t *testing.T) {
	card := offer(
		&a2av1.AgentInterface{ProtocolBinding: "SOAP", ProtocolVersion: "1.0"},
		&a2av1.AgentInterface{ProtocolBinding: JSONRPC, ProtocolVersion: "0.3"},
		&a2av1.AgentInterface{ProtocolBinding: REST, ProtocolVersion: "1.0"},
		&a2av1.AgentInterface{ProtocolBinding: GRPC, ProtocolVersion: "1.0"},
	)
	for binding, want := range map[string]string{"": REST, GRPC: GRPC} {
		if i, err := (Config{Binding: binding}).choose(card); err != nil || i.GetProtocolBinding() != want {
			t.Errorf("%q: %v, %v", binding, i, err)
		}
	}
	_, err := Config{Binding: JSONRPC, Version: V10}.choose(card)
	if err == nil || !strings.Contains(err.Error(), "card read, but it offers only SOAP 1.0, JSONRPC 0.3") {
		t.Errorf("error is %v", err)
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
