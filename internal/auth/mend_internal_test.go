package auth

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// slowStore is a store of one key, whose first reader waits for a signal after it has read.
type slowStore struct {
	Store
	mu    sync.Mutex
	key   StoredKey // guarded by mu
	reads int       // guarded by mu
	slow  chan struct{}
}

func (s *slowStore) Keys(context.Context) ([]StoredKey, error) {
	s.mu.Lock()
	k := StoredKey{Key: proto.CloneOf(s.key.Key), Hash: s.key.Hash}
	s.reads++
	isFirst := s.reads == 1
	s.mu.Unlock()
	if isFirst {
		<-s.slow
	}
	return []StoredKey{k}, nil
}

func (s *slowStore) PutKey(_ context.Context, k StoredKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = k
	return nil
}

func (*slowStore) WatchKeys() (<-chan struct{}, func()) { return nil, func() {} }

// TestT_11_RefreshInOrder: keys that were read before a key was revoked do not replace those that were
// read after it.
func TestT_11_RefreshInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id, secret, sum := NewKey()
		k := &teamv1.Key{Id: id, Account: "acme", Name: "bob"}
		store := &slowStore{key: StoredKey{Key: k, Hash: sum[:]}, slow: make(chan struct{})}
		other := sha256.Sum256([]byte("x"))
		s, err := New(Config{Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{{Name: "ann", Sha256: hexOf(other[:])}}}, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		refresh := func() chan error {
			done := make(chan error, 1)
			go func() { done <- s.Refresh(t.Context()) }()
			synctest.Wait()
			return done
		}
		first := refresh()
		revoked := proto.CloneOf(k)
		revoked.Revoked = timestamppb.Now()
		if err := store.PutKey(t.Context(), StoredKey{Key: revoked, Hash: sum[:]}); err != nil {
			t.Fatal(err)
		}
		second := refresh()
		close(store.slow)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Authenticate(Request{Authorization: []string{"Bearer " + secret}}); err == nil {
			t.Error("the revoked key is accepted")
		}
	})
}

// TestT_10_GuessesAreNotVerified: while an address must wait because of bad tokens, others from there are
// not verified, except those of owners who are known there. Tokens that are in use are accepted on.
func TestT_10_GuessesAreNotVerified(t *testing.T) {
	f := newIssuer(t)
	key, stranger := newPair(t, "one", "ES256"), newPair(t, "one", "ES256")
	f.lists(key.public())
	s := tokensOf(t, time.Hour, &teamv1.JwtIssuer{Name: "corp", Issuer: f.URL, Audiences: []string{"team"}})
	from := netip.MustParseAddr("192.0.2.1")
	ask := func(token string) error {
		_, err := s.Authenticate(Request{Authorization: []string{"Bearer " + token}, From: from})
		return err
	}
	mine := key.sign(t, good(f), nil)
	if err := ask(mine); err != nil {
		t.Fatal(err)
	}
	eve := changed(good(f), "sub", "eve")
	bad := stranger.sign(t, eve, nil)
	for range 100 {
		_ = ask(bad)
	}
	s.guesses.mu.Lock()
	s.guesses.from[Network(from)].until = time.Now().Add(time.Hour) // so that it does not end while the test runs
	s.guesses.mu.Unlock()
	_, err := s.now.Load().tokens.Authenticate(Request{Authorization: []string{"Bearer " + bad}, From: from})
	if no := (*Refusal)(nil); !errors.As(err, &no) || no.Why != WhyUnknown || no.err.Retry != true {
		t.Errorf("verified: %v", err)
	}
	if err := ask(mine); err != nil {
		t.Errorf("a token that is in use: %v", err)
	}
	if err := ask(key.sign(t, changed(good(f), "jti", "2"), nil)); err != nil {
		t.Errorf("a new token of an owner who is known: %v", err)
	}
	if err := ask(key.sign(t, eve, nil)); err == nil {
		t.Error("a token of another owner is accepted from an address that must wait")
	}
	if err := ask(stranger.sign(t, changed(good(f), "jti", "3"), nil)); err == nil {
		t.Error("a token that others have signed is accepted")
	}
}

// TestT_10_KeysOfIssuers: without a key id the only key is used; large keys and keys that were fetched long
// ago are not. A key that is missing in a fetch that a caller has caused stays in use.
func TestT_10_KeysOfIssuers(t *testing.T) {
	one, two := newPair(t, "one", "ES256"), newPair(t, "two", "ES256")
	k := &issuerKeys{wake: make(chan struct{}, 1)}
	use := func(regular bool, pairs ...keyPair) {
		var keys []issuerKey
		for _, p := range pairs {
			keys = append(keys, issuerKey{JSONWebKey: p.public(), print: p.kid})
		}
		k.use(keys, regular)
	}
	find := func(kid string) int {
		keys, _ := k.find(kid, "ES256")
		return len(keys)
	}
	use(true, one)
	if find("") != 1 || find("one") != 1 || find("two") != 0 {
		t.Error("the only key is not found")
	}
	use(true, one, two)
	if find("") != 0 || find("two") != 1 {
		t.Error("two keys: one is found without its id")
	}
	use(false, two)
	use(false, two)
	if find("one") != 1 {
		t.Error("a caller has caused the end of a key")
	}
	use(true, two)
	if find("one") != 1 {
		t.Error("a key is not used because it is missing once")
	}
	use(true, two)
	if find("one") != 0 || find("") != 1 {
		t.Error("a key that is no longer listed is used")
	}
	k.known.Load().read = time.Now().Add(-maxStale - time.Minute)
	if _, ok := k.find("two", "ES256"); ok {
		t.Error("old keys are used")
	}
}

// TestT_6_KindsOfNames: a name of a certificate matches only an entry of its kind, and DNS names match in
// any case.
func TestT_6_KindsOfNames(t *testing.T) {
	mail := "ann@corp"
	m, err := newMTLS([]*teamv1.CertificateClient{
		{San: mail, Name: "ann"}, {San: "Bob.example", Name: "bob"}, {San: "spiffe://x/eve@corp", Name: "eve"},
	}, &Certificates{files: &teamv1.ServerTls{ClientCa: "ca.pem"}})
	if err != nil {
		t.Fatal(err)
	}
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, c := range map[string]struct {
		cert x509.Certificate
		want string
	}{
		"an address":               {x509.Certificate{EmailAddresses: []string{mail}}, "ann"},
		"an address as a DNS name": {x509.Certificate{DNSNames: []string{mail}}, ""},
		"an address as a URI":      {x509.Certificate{URIs: []*url.URL{uri(mail)}}, ""},
		"a DNS name":               {x509.Certificate{DNSNames: []string{"bob.EXAMPLE"}}, "bob"},
		"a DNS name as an address": {x509.Certificate{EmailAddresses: []string{"bob.example"}}, ""},
		"a URI":                    {x509.Certificate{URIs: []*url.URL{uri("spiffe://x/eve@corp")}}, "eve"},
		"a URI as a DNS name":      {x509.Certificate{DNSNames: []string{"spiffe://x/eve@corp"}}, ""},
	} {
		c.cert.NotAfter = time.Now().Add(time.Hour)
		chain := []*x509.Certificate{&c.cert}
		who, err := m.Authenticate(Request{TLS: &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}})
		if who.Principal != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %v, %v", name, who, err)
		}
	}
}

// noAccounts are texts that stand for something else in a path.
var noAccounts = []string{"-", ".", ".."}

// TestA_21_NamesOfConfiguration: names with a colon, which are those of tokens, are refused, and so are
// certificates of clients without an authority.
func TestA_21_NamesOfConfiguration(t *testing.T) {
	sum := sha256.Sum256([]byte("x"))
	for name, c := range map[string]Config{
		"a key":        {Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{{Name: "corp:ann", Sha256: hexOf(sum[:])}}}},
		"an account":   {Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{{Name: "ann", Account: "a:b", Sha256: hexOf(sum[:])}}}},
		"a client":     {Accept: &teamv1.AuthConfig{Mtls: []*teamv1.CertificateClient{{San: "a", Name: "corp:ann"}}}, Certificates: &Certificates{files: &teamv1.ServerTls{ClientCa: "ca.pem"}}},
		"no authority": {Accept: &teamv1.AuthConfig{Mtls: []*teamv1.CertificateClient{{San: "a", Name: "ann"}}}, Certificates: &Certificates{}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, account := range noAccounts {
		for name, c := range map[string]Config{
			"a key":      {Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{{Name: "ann", Account: account, Sha256: hexOf(sum[:])}}}},
			"the name":   {Accept: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{{Name: account, Sha256: hexOf(sum[:])}}}},
			"a client":   {Accept: &teamv1.AuthConfig{Mtls: []*teamv1.CertificateClient{{San: "a", Name: "ann", Account: account}}}, Certificates: &Certificates{files: &teamv1.ServerTls{ClientCa: "ca.pem"}}},
			"all tokens": {Accept: &teamv1.AuthConfig{Jwt: []*teamv1.JwtIssuer{{Name: "corp", Issuer: "https://id.example", Audiences: []string{"team"}, Account: account}}}},
		} {
			if _, err := New(c); err == nil || !strings.Contains(err.Error(), "letter or a digit") {
				t.Errorf("%s of %q: %v", name, account, err)
			}
		}
	}
	if _, err := ReadCertificates(&teamv1.ServerTls{Client: teamv1.ClientCertificate_REQUIRED}, nil); err == nil {
		t.Error("certificates of clients are required without an authority")
	}
}
