package a2aclient_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/secret"
)

func newSigner(t *testing.T) *cardsign.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cardsign.NewSigner([]cardsign.Key{{ID: "desk", Private: key}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestA_10_SignedCards: a card is used as a trusted key has signed it, or not at all.
func TestA_10_SignedCards(t *testing.T) {
	trusted, other := newSigner(t), newSigner(t)
	for name, tt := range map[string]struct {
		change func(t *testing.T, card *a2av1.AgentCard)
		want   string
	}{
		"signed":             {func(t *testing.T, c *a2av1.AgentCard) { sign(t, trusted, c) }, ""},
		"signed by a second": {func(t *testing.T, c *a2av1.AgentCard) { sign(t, other, c) }, "was changed after it was signed"},
		"changed":            {func(t *testing.T, c *a2av1.AgentCard) { sign(t, trusted, c); c.Name = "Evil" }, "was changed after it was signed"},
		"without one":        {func(*testing.T, *a2av1.AgentCard) {}, "the card is not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeagent.New(t, fakeagent.Config{Card: func(c *a2av1.AgentCard) { tt.change(t, c) }})
			verifier, err := a2aclient.NewVerifier(trusted.JWKS())
			if err != nil {
				t.Fatal(err)
			}
			c, err := a2aclient.Open(t.Context(), f.URL(), a2aclient.Config{Verifier: verifier})
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				if resp, err := c.SendMessage(t.Context(), &a2av1.SendMessageRequest{Message: &a2av1.Message{MessageId: "m"}}); err != nil || c.Card().GetName() != "Fake" {
					t.Errorf("answer %v, %v, of %v", resp, err, c.Card())
				}
				return
			}
			if !errors.Is(err, a2aclient.ErrUntrusted) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if n := len(f.Requests("")); n != 1 {
				t.Errorf("%d calls, want the one for the card", n)
			}
		})
	}
	if _, err := a2aclient.NewVerifier([]byte("no key")); err == nil {
		t.Error("a file without a key was taken")
	}
}

func sign(t *testing.T, s *cardsign.Signer, card *a2av1.AgentCard) {
	t.Helper()
	if err := s.Sign(card); err != nil {
		t.Error(err)
	}
}

// TestA_10_ExtendedCardMustBeSigned: what is not signed of the extended card is not used.
func TestA_10_ExtendedCardMustBeSigned(t *testing.T) {
	verifier, err := a2aclient.NewVerifier(newSigner(t).JWKS())
	if err != nil {
		t.Fatal(err)
	}
	r := serveScene(t)
	card, _, err := a2aclient.ReadCard(t.Context(), "http://"+r.HTTP+"/echo", a2aclient.Config{Token: secret.New("open")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := a2aclient.New(card, "http://"+r.HTTP+"/echo", a2aclient.Config{Token: secret.New("open"), Verifier: verifier})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.GetExtendedAgentCard(t.Context(), &a2av1.GetExtendedAgentCardRequest{}); !errors.Is(err, a2aclient.ErrUntrusted) {
		t.Errorf("error %v", err)
	}
}

// TestA_21_HeadersOfACall go along over every binding, as do extensions, and what the
// configuration says has precedence.
func TestA_21_HeadersOfACall(t *testing.T) {
	eachFake(t, fakeagent.Config{}, func(c *caller, f *fakeagent.Agent) {
		ctx := a2aclient.WithHeader(c.ctx, http.Header{"x-trace": {"seen"}, "Authorization": {"Bearer other"}})
		ctx = a2aclient.WithExtensions(a2aclient.WithExtensions(ctx, "urn:a"), "urn:b")
		if _, err := c.GetTask(ctx, &a2av1.GetTaskRequest{Id: "x"}); !errors.Is(err, a2aclient.ErrTaskNotFound) {
			c.Errorf("error %v", err)
		}
		h := f.Requests("GetTask")[0].Header
		name := "a2a-extensions"
		if c.Version() == a2aclient.V03 {
			name = "x-a2a-extensions"
		}
		if strings.Join(h["x-trace"], "") != "seen" || strings.Join(h[name], "") != "urn:a, urn:b" || strings.Join(h["authorization"], "") != "Bearer secret" {
			c.Errorf("sent is %v", h)
		}
	})
}

// TestA_21_OriginsThatAreTrusted: credentials go to another origin only if it was named,
// and to none that is less protected than the card.
func TestA_21_OriginsThatAreTrusted(t *testing.T) {
	at := func(binding, url string) *a2av1.AgentCard {
		return &a2av1.AgentCard{Name: "x", SupportedInterfaces: []*a2av1.AgentInterface{{Url: url, ProtocolBinding: binding, ProtocolVersion: "1.0"}}}
	}
	for _, tt := range []struct {
		binding, url, card string
		cfg                a2aclient.Config
		want               bool
	}{
		{a2aclient.GRPC, "a.example:50051", "http://a.example", a2aclient.Config{}, false},
		{a2aclient.GRPC, "a.example:50051", "http://a.example", a2aclient.Config{AnyGRPCPort: true}, true},
		{a2aclient.GRPC, "A.example:50051", "http://a.example", a2aclient.Config{Origins: []string{"a.example:50051"}}, true},
		{a2aclient.REST, "http://b.example/x", "http://a.example", a2aclient.Config{Origins: []string{"http://B.example"}}, true},
		{a2aclient.REST, "https://b.example/x", "https://a.example", a2aclient.Config{Origins: []string{"b.example:443"}}, true},
		{a2aclient.REST, "http://b.example/x", "https://a.example", a2aclient.Config{Origins: []string{"http://b.example"}}, false},
		{a2aclient.REST, "http://b.example/x", "http://a.example", a2aclient.Config{Origins: []string{"c.example:80"}}, false},
	} {
		cfg := tt.cfg
		cfg.Token = secret.New("secret")
		_, err := a2aclient.Choose(at(tt.binding, tt.url), tt.card, cfg)
		var none *a2aclient.InterfaceError
		if errors.As(err, &none) == tt.want || none != nil && none.Refusals[0].Why != a2aclient.Elsewhere {
			t.Errorf("%s at %s by the card of %s: %v", tt.binding, tt.url, tt.card, err)
		}
	}
	if _, err := a2aclient.Choose(at(a2aclient.REST, "http://ann:hush@b.example"), "http://a.example", a2aclient.Config{}); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("an address with a user: %v", err)
	}
}

// TestA_21_T_17_CardsThatAreTooLarge are not read.
func TestA_21_T_17_CardsThatAreTooLarge(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Card: func(c *a2av1.AgentCard) { c.Description = string(bytes.Repeat([]byte("x"), a2aclient.MaxCard)) }})
	if _, _, err := a2aclient.ReadCard(t.Context(), f.URL(), a2aclient.Config{}); !errors.Is(err, a2aclient.ErrTooLarge) {
		t.Errorf("error %v", err)
	}
}
