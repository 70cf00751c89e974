package a2aclient

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/secret"
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

// Secrets go to the host and port that were named; what a card offers elsewhere is not
// called with them, nor without.
func TestA_21_SecretsGoWhereTheyWereNamed(t *testing.T) {
	var elsewhere []string
	other := cardServer(t, offer(), &elsewhere)
	at := func(url string) *a2av1.AgentInterface {
		return &a2av1.AgentInterface{Url: url, ProtocolBinding: REST, ProtocolVersion: "1.0"}
	}
	for name, tt := range map[string]struct {
		cfg   Config
		here  bool // is offered too, as the second
		fault string
	}{
		"the named place is taken": {cfg: Config{Token: secret.New("secret")}, here: true},
		"another port":             {cfg: Config{Token: secret.New("secret")}, fault: "card read, but it offers only HTTP+JSON 1.0 at " + other.URL + " (must not see the token or headers); wanted"},
		"another port, headers":    {cfg: Config{Header: http.Header{"X-Api-Key": {"secret"}}}, fault: "; the token and headers are sent only to the host of the given URL; to use the host of the card"},
		"no secrets":               {},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere = nil
			var calls []string
			card := offer(at(other.URL))
			s := cardServer(t, card, &calls)
			if tt.here {
				card.SupportedInterfaces = append(card.SupportedInterfaces, at(s.URL))
			}
			c, err := Open(t.Context(), s.URL, tt.cfg)
			if err == nil {
				defer func() { _ = c.Close() }()
				_, err = c.SendMessage(t.Context(), &a2av1.SendMessageRequest{Message: &a2av1.Message{MessageId: "m"}})
			}
			if (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("error %v, want %q", err, tt.fault)
			}
			if want := name == "no secrets"; (len(elsewhere) > 0) != want {
				t.Errorf("called elsewhere: %q", elsewhere)
			}
			if last := calls[len(calls)-1]; tt.here && last != "/message:send Bearer secret" {
				t.Errorf("call %q", last)
			}
		})
	}
}

func TestA_21_PlacesOfSecrets(t *testing.T) {
	for _, tt := range []struct {
		named, binding, url string
		want                bool
	}{
		{"https://a.example/x", REST, "https://A.example:443/y", true},
		{"http://a.example:8080/x", JSONRPC, "http://a.example:8080/rpc", true},
		{"http://a.example:443", REST, "https://a.example", true},
		{"http://a.example:8080", REST, "http://a.example:8081", false},
		{"http://a.example", REST, "http://b.example", false},
		{"https://a.example", REST, "http://a.example:443", false},
		{"https://a.example:80", REST, "http://a.example", false},
		{"http://a.example:8080", GRPC, "a.example:8080", true},
		{"http://a.example:8080", GRPC, "a.example:50051", true},
		{"http://a.example:8080", GRPC, "b.example:50051", false},
		{"https://a.example", GRPC, "a.example:443", true},
		{"https://a.example", GRPC, "a.example", true},
		{"http://A.example", GRPC, "a.example", true},
		{"https://a.example", GRPC, "grpc://a.example:443", false},
		{"http://a.example", REST, ":", false},
	} {
		i := &a2av1.AgentInterface{Url: tt.url, ProtocolBinding: tt.binding}
		named, err := url.Parse(tt.named)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Config{Token: secret.New("secret"), AnyGRPCPort: true}).trusts(i, named); got != tt.want {
			t.Errorf("%s named, %s at %s: %v, want %v", tt.named, tt.binding, tt.url, got, tt.want)
		}
	}
}

func TestA_25_Choose(t *testing.T) {
	both := offer(
		&a2av1.AgentInterface{Url: "http://a.example", ProtocolBinding: "SOAP", ProtocolVersion: "1.0"},
		&a2av1.AgentInterface{Url: "http://a.example", ProtocolBinding: JSONRPC, ProtocolVersion: "0.3.0"},
		&a2av1.AgentInterface{Url: "http://a.example", ProtocolBinding: REST, ProtocolVersion: "1.0"},
		&a2av1.AgentInterface{Url: "http://a.example", ProtocolBinding: GRPC, ProtocolVersion: "1.0"},
	)
	old := offer(
		&a2av1.AgentInterface{Url: "http://a.example", ProtocolBinding: GRPC, ProtocolVersion: "0.3.0"},
		&a2av1.AgentInterface{Url: "http://a.example", ProtocolBinding: REST, ProtocolVersion: "0.3.0"},
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
		{card: both, binding: JSONRPC, version: V1, fault: "card read, but it offers only SOAP 1.0, JSONRPC 0.3.0, HTTP+JSON 1.0, GRPC 1.0; wanted protocol 1.0 over JSONRPC"},
		{card: both, binding: REST, version: V03, fault: "; wanted protocol 0.3 over HTTP+JSON"},
		{card: old, want: REST + " 0.3.0"},
		{card: old, binding: GRPC, fault: "card read, but it offers only GRPC 0.3.0, HTTP+JSON 0.3.0; wanted protocol 1.0 over GRPC"},
		{card: old, version: V1, fault: "; wanted protocol 1.0 over GRPC, HTTP+JSON or JSONRPC"},
		{card: old, binding: JSONRPC, fault: "; wanted protocol 1.0 over JSONRPC, or 0.3 over JSONRPC"},
		{card: offer(), fault: "card read, but it offers nothing; wanted protocol 1.0 over GRPC, HTTP+JSON or JSONRPC, or 0.3 over HTTP+JSON or JSONRPC"},
	} {
		cfg := Config{Version: tt.version}
		if tt.binding != "" {
			cfg.Bindings = []string{tt.binding}
		}
		i, err := Choose(tt.card, "http://a.example", cfg)
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
			_, err = c.SendMessage(t.Context(), &a2av1.SendMessageRequest{})
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

func FuzzP17_Choose(f *testing.F) {
	f.Add([]byte(`{"name":"x","supportedInterfaces":[{"url":"https://x","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`))
	f.Add([]byte(`{"name":"x","supportedInterfaces":[{"url":"far:80","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`))
	f.Add([]byte(`{"protocolVersion":"0.3.0","url":"http://far/v1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		card, err := a2av03.ReadCard(b)
		if err != nil {
			return
		}
		cfg := Config{Token: secret.New("secret")}
		i, err := Choose(card, "http://far", cfg)
		if err != nil {
			return
		}
		if at, _ := place(i, &url.URL{Scheme: "http"}); at != "far:80" {
			t.Errorf("the token goes to %s: %v", at, i)
		}
	})
}
