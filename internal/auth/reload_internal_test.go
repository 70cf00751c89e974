package auth

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// TestT_10_IssuersChange: issuers come and go while a server runs. The keys of those that stay are not fetched again, and
// tokens of those that are no longer accepted are refused.
func TestT_10_IssuersChange(t *testing.T) {
	one, two := newIssuer(t), newIssuer(t)
	key, other := newPair(t, "one", "ES256"), newPair(t, "two", "ES256")
	one.lists(key.public())
	two.lists(other.public())
	first := &teamv1.JwtIssuer{Name: "one", Issuer: one.URL, Audiences: []string{"team"}}
	s := tokensOf(t, time.Hour, first)
	ofOne, ofTwo := key.sign(t, good(one), nil), other.sign(t, good(two), nil)
	if _, err := ask(s, ofOne); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(s, ofTwo); err == nil {
		t.Error("a token of an issuer that is not accepted yet is accepted")
	}
	sum := sha256.Sum256([]byte("another API key"))
	reload := func(list ...*teamv1.JwtIssuer) {
		t.Helper()
		apply, err := s.Prepare(&teamv1.AuthConfig{Jwt: list, ApiKeys: []*teamv1.ApiKey{{Name: "key", Sha256: hexOf(sum[:])}}})
		if err != nil {
			t.Fatal(err)
		}
		apply()
	}
	fetched := one.requests.Load()
	first.Account = "acme" // says nothing about how the keys are fetched
	reload(first, &teamv1.JwtIssuer{Name: "two", Issuer: two.URL, Audiences: []string{"team"}})
	if who, err := ask(s, ofOne); err != nil || who.Account != "acme" {
		t.Errorf("a token of the issuer that stays: %v, %v", who, err)
	}
	await(t, "the keys of the new issuer are not fetched", func() bool { _, err := ask(s, ofTwo); return err == nil })
	if n := one.requests.Load(); n != fetched {
		t.Errorf("the issuer that stays got %d more requests", n-fetched)
	}
	if _, err := ask(s, "an API key"); err == nil {
		t.Error("an API key that the configuration no longer has is accepted")
	}
	if _, err := ask(s, "another API key"); err != nil {
		t.Errorf("the new API key: %v", err)
	}
	reload(&teamv1.JwtIssuer{Name: "two", Issuer: two.URL, Audiences: []string{"team"}})
	var no *Refusal
	if _, err := ask(s, ofOne); !errors.As(err, &no) || no.Why != WhyToken {
		t.Errorf("a token of the issuer that has gone: %v", err)
	}
	if _, err := s.Prepare(nil); err == nil {
		t.Error("a server ceases to authenticate while it runs")
	}
	if apply, err := (*Server)(nil).Prepare(nil); err != nil {
		t.Error(err)
	} else {
		apply()
	}
}
