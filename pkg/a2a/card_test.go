package a2a_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2a"
)

// TestA_10_CardIsTheSameEachTime: its tag and its signatures are over what it says,
// in that order.
func TestA_10_CardIsTheSameEachTime(t *testing.T) {
	schemes := []*teamv1.JwtIssuer{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	r := startWith(t, a2a.Config{Settings: settings.Of(&teamv1.ServerSettings{Auth: &teamv1.AuthConfig{Jwt: schemes}})}, echo("echo"))
	first, _, err := r.Card(t.Context(), "echo")
	if err != nil || len(first.GetSecurityRequirements()) != len(schemes) {
		t.Fatal(first, err)
	}
	for range 100 {
		if again, _, err := r.Card(t.Context(), "echo"); err != nil || !proto.Equal(first, again) {
			t.Fatalf("%v after %v: %v", again.GetSecurityRequirements(), first.GetSecurityRequirements(), err)
		}
	}
}

// TestT_6_CardsSayHowToSignIn: cards have a scheme for each way to sign in.
func TestT_6_CardsSayHowToSignIn(t *testing.T) {
	of := func(c *teamv1.AuthConfig) map[string]*a2av1.SecurityScheme {
		card, _, err := startWith(t, a2a.Config{Settings: settings.Of(&teamv1.ServerSettings{Auth: c})}, echo("echo")).Card(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		return card.GetSecuritySchemes()
	}
	got := of(&teamv1.AuthConfig{Mtls: []*teamv1.CertificateClient{{}}, Jwt: []*teamv1.JwtIssuer{{Name: "corp", Issuer: "https://id.example/"}, {Name: "old", Issuer: "x", JwksUrl: "y"}}})
	if len(got) != 3 || got["mtls"].GetMtlsSecurityScheme() == nil || got["old"].GetHttpAuthSecurityScheme().GetBearerFormat() != "JWT" ||
		got["corp"].GetOpenIdConnectSecurityScheme().GetOpenIdConnectUrl() != "https://id.example/.well-known/openid-configuration" {
		t.Errorf("schemes %v", got)
	}
	if got := of(&teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{{}}}); len(got) != 1 || got["apiKey"].GetHttpAuthSecurityScheme() == nil {
		t.Errorf("schemes with API keys: %v", got)
	}
	if got := of(nil); len(got) != 0 {
		t.Errorf("schemes without authentication: %v", got)
	}
}
