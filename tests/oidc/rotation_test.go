package oidc

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// credential is a bearer token that callers use until a test replaces it.
type credential struct{ atomic.Value }

func (c *credential) get() string { s, _ := c.Load().(string); return s }

// TestT_11_RotationUnderLoad replaces an API key, the certificate of the server and the key of an issuer
// while callers with each kind of credential call over each binding, with a new connection for every
// tenth call. No call fails. What was replaced is refused within a minute.
func TestT_11_RotationUnderLoad(t *testing.T) {
	t.Parallel()
	one, two := newKey(t, "one"), newKey(t, "two")
	p, ca, dir := newProvider(t, one), testcerts.New(t, "ca"), t.TempDir()
	certify := func() { // replaces the files at once, as tools do
		cert, private := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
		for name, b := range map[string][]byte{"key.pem": private, "cert.pem": cert} {
			if err := os.WriteFile(filepath.Join(dir, "new-"+name), b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "new-"+name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	certify()
	admin := rig.Admin("acme", "root")
	says, err := scripted.New(scripted.Config{ID: "says", Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Text{Text: "hello"}}}})
	if err != nil {
		t.Fatal(err)
	}
	store, _ := rig.SQLite(t).Open(t)
	s, err := server.New(server.Config{
		Agent:    says,
		Store:    store,
		Settings: &teamv1.ServerSettings{Auth: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{admin}, Jwt: []*teamv1.JwtIssuer{{Name: "corp", Issuer: p.url, Audiences: []string{"team-server"}, Account: "acme"}}}, Http: "127.0.0.1:0", Grpc: "127.0.0.1:0", Tls: &teamv1.ServerTls{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	target := rig.Target{GRPC: s.Addrs().GRPC, HTTP: s.Addrs().URL}.Secure(t, ca.Client())
	as := func(token string) rig.Target {
		at := rig.Target{GRPC: target.GRPC, HTTP: target.HTTP}.Secure(t, ca.Client())
		at.Key = token
		return at
	}
	code := func(token string) string {
		at := as(token)
		defer at.Disconnect()
		_, err := rig.NewREST(at).List(t.Context(), &a2av1.ListTasksRequest{})
		if f := rig.Fault(err); f != nil {
			return f.Code
		}
		return "OK"
	}
	keys := teamv1.NewKeyServiceClient(rig.Services(t, target.As("acme", "root"))[0])
	newAPIKey := func() *teamv1.CreateKeyResponse {
		made, err := keys.CreateKey(t.Context(), &teamv1.CreateKeyRequest{Name: "ann", Account: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		becomes(t, "the new key is not accepted", func() bool { return code(made.GetSecret()) == "OK" })
		return made
	}
	var apiKey, token credential
	before := newAPIKey()
	apiKey.Store(before.GetSecret())
	token.Store(p.token(t, "robot"))
	becomes(t, "the token is not accepted", func() bool { return code(token.get()) == "OK" })

	calls, stop := load(t, as, &apiKey, &token)
	reaches := func() { // until each worker has made calls with new connections
		for n, want := calls.Load(), int64(200); calls.Load() < n+want; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	reaches()

	serial := func() string {
		conn, err := tls.Dial("tcp", s.Addrs().GRPC, ca.Client())
		if err != nil {
			t.Error(err)
			return ""
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	old := serial()
	certify()
	becomes(t, "the new certificate is not shown", func() bool { return serial() != old })
	reaches()

	after := newAPIKey()
	apiKey.Store(after.GetSecret())
	reaches()
	began := time.Now()
	if _, err := keys.RevokeKey(t.Context(), &teamv1.RevokeKeyRequest{Id: before.GetKey().GetId()}); err != nil {
		t.Fatal(err)
	}
	becomes(t, "the old key is not refused", func() bool { return code(before.GetSecret()) == "Unauthenticated" })
	t.Logf("the API key was refused after %s", time.Since(began).Round(time.Millisecond))

	first := token.get()
	p.rotate(two, one, two) // its new key is listed, and not used by callers before servers know it
	second := p.token(t, "robot")
	becomes(t, "a token of the new key is not accepted", func() bool { return code(second) == "OK" })
	token.Store(second)
	reaches()
	began = time.Now()
	p.rotate(two, two)
	becomes(t, "a token of the old key is accepted on", func() bool { return code(first) == "Unauthenticated" })
	t.Logf("tokens of the old key were refused after %s", time.Since(began).Round(time.Millisecond))
	reaches()
	stop()
	t.Logf("%d calls, of which none may have failed", calls.Load())
}

// load has callers call over each binding with both credentials until stop is called. A call that fails
// fails the test.
func load(t *testing.T, as func(token string) rig.Target, credentials ...*credential) (calls *atomic.Int64, stop func()) {
	t.Helper()
	calls = new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for _, cred := range credentials {
		for binding := range 3 {
			workers.Go(func() {
				pace := time.NewTicker(20 * time.Millisecond)
				defer pace.Stop()
				for ctx.Err() == nil {
					batch(t, as(cred.get()), binding, pace.C, calls)
				}
			})
		}
	}
	stop = sync.OnceFunc(func() { cancel(); workers.Wait() })
	t.Cleanup(stop)
	return calls, stop
}

// batch makes ten calls over a connection of its own.
func batch(t *testing.T, target rig.Target, binding int, pace <-chan time.Time, calls *atomic.Int64) {
	defer target.Disconnect()
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Error(err)
		return
	}
	defer g.Close()
	c := []rig.Client{g, rig.NewREST(target), rig.NewJSONRPC(target)}[binding]
	for i := range 10 {
		<-pace
		if i == 0 {
			_, err = c.Send(t.Context(), rig.Text("", rand.Text(), "x"))
		} else {
			_, err = c.List(t.Context(), &a2av1.ListTasksRequest{})
		}
		if err != nil {
			t.Errorf("%s: %v", c.Binding(), err)
		}
		calls.Add(1)
	}
}
