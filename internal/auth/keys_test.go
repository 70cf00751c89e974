package auth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/pkg/agent"
)

func key(name, account, secret string) *teamv1.ApiKey {
	sum := sha256.Sum256([]byte(secret))
	return &teamv1.ApiKey{Name: name, Account: account, Sha256: hex.EncodeToString(sum[:])}
}

// with returns a request with a bearer token.
func with(token string) auth.Request { return auth.Request{Authorization: []string{"Bearer " + token}} }

// wantRefused checks that a request was refused with UNAUTHENTICATED, and why.
func wantRefused(t *testing.T, err error, why string) {
	t.Helper()
	var no *auth.Refusal
	e := agent.AsError(err)
	if !errors.As(err, &no) || no.Why != why || e.Code != agent.CodeUnauthenticated || e.Reason != agent.ReasonUnauthenticated {
		t.Errorf("got %v, want a refusal because of %s", err, why)
	}
}

func TestA_21_BadKeys(t *testing.T) {
	for name, k := range map[string]*teamv1.ApiKey{
		"an invalid role": {Name: "ann", Sha256: key("ann", "", "x").GetSha256(), Roles: []string{"boss", "the boss"}},
		"short":           {Name: "a", Sha256: "00"},
		"no hex":          {Name: "a", Sha256: strings.Repeat("x", 64)},
		"no name":         {Sha256: strings.Repeat("0", 64)},
		"a slash":         {Name: "a/b", Sha256: strings.Repeat("0", 64)},
		"no value":        {Name: "a"},
	} {
		if _, err := auth.New(auth.Config{Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{k}}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestT_11_KeysExpire: a key with an expiry is accepted until then, and its owner has no rights
// afterwards unless it has another key.
func TestT_11_KeysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon, other := key("ann", "acme", "soon"), key("bob", "acme", "other")
		ends := time.Now().Add(time.Hour)
		soon.Expires = ends.Format(time.RFC3339Nano)
		old := key("bob", "acme", "old")
		old.Expires = time.Now().Add(-time.Second).Format(time.RFC3339)
		a, err := auth.New(auth.Config{Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{soon, other, old}}})
		if err != nil {
			t.Fatal(err)
		}
		who, err := a.Authenticate(with("soon"))
		if err != nil || who.Owner() != "acme/ann" || !who.Expires.Equal(ends) {
			t.Errorf("%+v, %v", who, err)
		}
		holds := func(owner string) bool {
			held, err := a.Holds(t.Context(), owner)
			return held && err == nil
		}
		if _, err := a.Authenticate(with("old")); !holds("acme/bob") || !holds("acme/ann") {
			t.Error("an owner with a valid key has no rights")
		} else {
			wantRefused(t, err, auth.WhyExpired)
		}
		time.Sleep(time.Hour)
		_, err = a.Authenticate(with("soon"))
		wantRefused(t, err, auth.WhyExpired)
		if holds("acme/ann") || holds("acme/eve") {
			t.Error("an owner without a valid key has rights")
		}
	})
}

// TestT_6_OneCredential: two authorization headers, another scheme and a long token are refused.
func TestT_6_OneCredential(t *testing.T) {
	a, err := auth.New(auth.Config{Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{key("ann", "", "secret")}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		headers []string
		why     string
	}{
		"two headers": {[]string{"Bearer secret", "Bearer secret"}, auth.WhyMalformed},
		"basic":       {[]string{"Basic secret"}, auth.WhyMalformed},
		"too long":    {[]string{"Bearer " + strings.Repeat("x", 8<<10+1)}, auth.WhyMalformed},
		"unknown":     {[]string{"Bearer other"}, auth.WhyUnknown},
		"none":        {nil, auth.WhyMissing},
	} {
		_, err := a.Authenticate(auth.Request{Authorization: c.headers})
		if t.Run(name, func(t *testing.T) { wantRefused(t, err, c.why) }); err == nil {
			t.Error(name)
		}
	}
}
