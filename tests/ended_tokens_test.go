package tests

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// issuer is an issuer of tokens with one key, whose key a test replaces.
type issuer struct {
	*httptest.Server

	mu  sync.Mutex
	id  string            // guarded by mu
	key *ecdsa.PrivateKey // guarded by mu
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.replaceKey(t, "one")
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: i.id, Algorithm: "ES256", Use: "sig"}}}
		i.mu.Unlock()
		if err := json.NewEncoder(w).Encode(set); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

// replaceKey replaces the key, so that the one before is no longer listed.
func (i *issuer) replaceKey(t *testing.T, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id, i.key = id, key
}

// token returns a token of bob that expires after a time.
func (i *issuer) token(t *testing.T, life time.Duration) string {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := json.Marshal(map[string]any{"iss": i.URL, "aud": "team", "sub": "bob", "exp": time.Now().Add(life).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// accepted returns the configuration that accepts the issuer, whose keys are read at an address.
func (i *issuer) accepted(keys string) *teamv1.JwtIssuer {
	return &teamv1.JwtIssuer{Name: "corp", Issuer: i.URL, JwksUrl: keys, Audiences: []string{"team"}, Account: "acme", Leeway: durationpb.New(0)}
}

// signedIn is a team whose members wait in b, on a server that a caller has signed in to with a token or certificate.
type signedIn struct {
	*issuer
	owner  string
	crew   *crew
	store  server.Store
	config server.Config
	server *server.TeamServer
	target rig.Target
	hook   *rig.Receiver
	stop   func()
}

func newSignedIn(t *testing.T, at rig.Place, rights teamv1.EndedRights_Value, configure ...func(*signedIn)) *signedIn {
	t.Helper()
	s := &signedIn{issuer: newIssuer(t), owner: "acme/corp:bob", crew: newCrew("b"), hook: rig.NewReceiver(t)}
	m := s.crew.members(t)
	four(t, m, "workflow")
	admin := rig.Admin("acme", "root")
	s.config = server.Config{
		Agents:   m,
		Settings: &teamv1.ServerSettings{Auth: &teamv1.AuthConfig{Ended: rights, ApiKeys: []*teamv1.ApiKey{admin, rig.Key("acme", "ann")}, Jwt: []*teamv1.JwtIssuer{s.accepted(s.URL)}}, DefaultAgent: "team", Grpc: "127.0.0.1:0", Http: "127.0.0.1:0", Egress: &teamv1.EgressSettings{Allow: egress.Loopback()}},
	}
	for _, set := range configure {
		set(s)
	}
	s.start(t, at)
	return s
}

// start starts a server on what a place keeps.
func (s *signedIn) start(t *testing.T, at rig.Place) {
	t.Helper()
	store, closeStore := at.Open(t)
	s.store, s.config.Store = store, store
	started, err := server.New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- started.Serve(ctx) }()
	s.server, s.target = started, rig.Target{GRPC: started.Addrs().GRPC, HTTP: started.Addrs().URL}
	s.stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		closeStore()
	})
	t.Cleanup(s.stop)
}

// accept has the server accept issuers, and no others, from now on.
func (s *signedIn) accept(t *testing.T, issuers ...*teamv1.JwtIssuer) {
	t.Helper()
	s.config.Settings.Auth.Jwt = issuers
	if err := s.server.Reload(s.config); err != nil {
		t.Fatal(err)
	}
}

// clients has the server accept the certificates of some clients, and of no others, from now on.
func (s *signedIn) clients(t *testing.T, list []*teamv1.CertificateClient) {
	t.Helper()
	s.config.Settings.Auth.Mtls = list
	if err := s.server.Reload(s.config); err != nil {
		t.Fatal(err)
	}
}

// with returns a client with a token, once it is accepted.
func (s *signedIn) with(t *testing.T, token string) rig.Client {
	t.Helper()
	as := s.target
	as.Key = token
	return accepted(t, as)
}

// accepted returns a client, once its calls are accepted.
func accepted(t *testing.T, as rig.Target) rig.Client {
	t.Helper()
	c := rig.Clients(t, as)[0]
	becomes(t, "the caller is not accepted", func() bool {
		_, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
		return err == nil
	})
	return c
}

// begin sends a message with a webhook and waits until member b works on it.
func (s *signedIn) begin(t *testing.T, c rig.Client) (id string) {
	t.Helper()
	req := rig.Text("team", "m1", "x")
	req.Configuration = &a2av1.SendMessageConfiguration{
		ReturnImmediately: true, TaskPushNotificationConfig: &a2av1.TaskPushNotificationConfig{Url: s.hook.URL},
	}
	id = send(t, c, req).GetId()
	<-s.crew.entered["b"]
	return id
}

// halted reports whether the owner, and nobody else, is halted, on all replicas.
func (s *signedIn) halted(t *testing.T) bool {
	t.Helper()
	list, err := s.store.Halts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	behind, err := s.store.HaltsBehind(t.Context(), list.Version, "")
	if err != nil {
		t.Fatal(err)
	}
	return len(behind) == 0 && len(list.Halts) == 1 && list.Halts[0].GetName() == s.owner && list.Halts[0].GetKind() == teamv1.HaltKind_HALT_KIND_OWNER
}

// parks checks that the work of the owner has stopped: after b nobody is called, and the webhook is not told.
func (s *signedIn) parks(t *testing.T) (told int) {
	t.Helper()
	becomes(t, "the owner is not halted", func() bool { return s.halted(t) })
	told = s.hook.Calls()
	s.crew.open("b")
	other := rig.Clients(t, s.target.As("acme", "ann"))[0]
	if got := send(t, other, rig.Text("team", "m2", "y")); got.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("the task of another owner is %v", got.GetStatus())
	}
	<-s.crew.entered["b"]
	if calls := s.crew.called(); calls["c"] != 1 || calls["d"] != 1 {
		t.Errorf("called for both tasks: %v", calls)
	}
	return told
}

// resumes checks that the task ends and its webhook is told, after its owner is back.
func (s *signedIn) resumes(t *testing.T, id string, told int, signIn func() rig.Client) {
	t.Helper()
	if n := s.hook.Calls(); n != told {
		t.Errorf("%d webhooks were called after the rights had ended", n-told)
	}
	back := signIn()
	becomes(t, "the task does not continue", func() bool { return stateOf(t, s.store, s.owner, id) == a2av1.TaskState_TASK_STATE_COMPLETED })
	if got, err := back.Get(t.Context(), &a2av1.GetTaskRequest{Id: id}); err != nil || got.GetId() != id {
		t.Errorf("when the owner is back: %v, %v", got, err)
	}
	s.hook.Until(t, "the end of the task", func(list []rig.Notification) bool { return len(list) > 0 && rig.Ended(list[len(list)-1]) })
}

// TestT_11_TasksOfEndedTokens: when the last token of an owner has expired, or its issuer no longer lists the
// key that has signed it, or the issuer is no longer accepted, the unfinished tasks of the owner are paused, and
// its webhooks are not called. Both go on when the owner is back with a new token.
func TestT_11_TasksOfEndedTokens(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		life time.Duration
		ends func(*testing.T, *signedIn)
	}{
		"expired": {8 * time.Second, func(*testing.T, *signedIn) {}},
		"key gone": {time.Hour, func(t *testing.T, s *signedIn) {
			s.replaceKey(t, "two")
			s.accept(t, s.accepted(s.URL+"/again")) // so that the keys are read now
		}},
		"issuer gone": {time.Hour, func(t *testing.T, s *signedIn) { s.accept(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.EachStore(t, func(t *testing.T, at rig.Place) {
				s := newSignedIn(t, at, teamv1.EndedRights_PARK)
				id := s.begin(t, s.with(t, s.token(t, end.life)))
				end.ends(t, s)
				told := s.parks(t)
				s.accept(t, s.accepted(s.URL))
				s.resumes(t, id, told, func() rig.Client { return s.with(t, s.token(t, time.Hour)) })
			})
		})
	}
}

// TestT_11_TasksOfEndedCertificates: when the last certificate of an owner has expired, or its authority is no
// longer trusted, or its name is no longer configured, its tasks are paused, and its webhooks are not called, until the
// owner is back with another one.
func TestT_11_TasksOfEndedCertificates(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{"expired": 8 * time.Second, "authority gone": time.Hour, "name gone": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.EachStore(t, func(t *testing.T, at rig.Place) {
				bob := []*teamv1.CertificateClient{{San: "bob.example", Name: "bob", Account: "acme"}}
				ca, other, dir := testcerts.New(t, "ca"), testcerts.New(t, "other"), t.TempDir()
				cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
				s := newSignedIn(t, at, teamv1.EndedRights_PARK, func(s *signedIn) {
					s.owner = "acme/bob"
					s.config.Settings.Auth.Mtls = bob
					s.config.Settings.Tls = &teamv1.ServerTls{
						Cert: testcerts.Write(t, dir, "cert.pem", cert), Key: testcerts.Write(t, dir, "key.pem", key), ClientCa: testcerts.Write(t, dir, "ca.pem", ca.PEM),
					}
				})
				as := func(by *testcerts.Authority, life time.Duration) rig.Client {
					pair, err := tls.X509KeyPair(by.Issue(time.Now().Add(life), "bob.example"))
					if err != nil {
						t.Fatal(err)
					}
					config := ca.Client()
					config.Certificates = []tls.Certificate{pair}
					return accepted(t, s.target.Secure(t, config))
				}
				id := s.begin(t, as(ca, life))
				by := ca
				switch name {
				case "authority gone":
					by = other
					testcerts.Write(t, dir, "ca.pem", other.PEM)
				case "name gone":
					s.clients(t, []*teamv1.CertificateClient{{San: "eve.example", Name: "eve", Account: "acme"}})
				}
				s.target = s.target.Secure(t, ca.Client())
				told := s.parks(t)
				s.clients(t, bob)
				s.resumes(t, id, told, func() rig.Client { return as(by, time.Hour) })
			})
		})
	}
}

// TestT_11_EndedTokensAfterRestart: a server that starts again knows until when the owners of tokens may
// call, whether their issuer can be reached or not.
func TestT_11_EndedTokensAfterRestart(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{"expired": 6 * time.Second, "valid": time.Hour} {
		t.Run(name, func(t *testing.T) {
			rig.EachStore(t, func(t *testing.T, at rig.Place) {
				s := newSignedIn(t, at, teamv1.EndedRights_PARK)
				id := s.begin(t, s.with(t, s.token(t, life)))
				s.stop()
				s.Close() // the issuer is down from now on
				s.start(t, at)
				if life < time.Hour {
					<-s.crew.entered["b"]
					s.parks(t)
					return
				}
				<-s.crew.entered["b"]
				s.crew.open("b")
				becomes(t, "the task does not end", func() bool { return stateOf(t, s.store, s.owner, id) == a2av1.TaskState_TASK_STATE_COMPLETED })
				s.hook.Until(t, "the end of the task", func(list []rig.Notification) bool { return len(list) > 0 && rig.Ended(list[len(list)-1]) })
			})
		})
	}
}

// TestT_11_EndedTokensAsConfigured: tasks of owners whose tokens have expired are canceled, or continue, as
// configured. Those of an owner whose issuer is gone are not canceled as long as the token would last.
func TestT_11_EndedTokensAsConfigured(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		t.Run("cancel", func(t *testing.T) {
			s := newSignedIn(t, at.Another(t), teamv1.EndedRights_CANCEL)
			id := s.begin(t, s.with(t, s.token(t, 6*time.Second)))
			becomes(t, "the task is not canceled", func() bool { return stateOf(t, s.store, s.owner, id) == a2av1.TaskState_TASK_STATE_CANCELED })
		})
		t.Run("cancel only what has expired", func(t *testing.T) {
			s := newSignedIn(t, at.Another(t), teamv1.EndedRights_CANCEL)
			id := s.begin(t, s.with(t, s.token(t, time.Hour)))
			s.accept(t)
			told := s.parks(t)
			s.accept(t, s.accepted(s.URL))
			s.resumes(t, id, told, func() rig.Client { return s.with(t, s.token(t, time.Hour)) })
		})
		t.Run("continue", func(t *testing.T) {
			s := newSignedIn(t, at.Another(t), teamv1.EndedRights_CONTINUE)
			id := s.begin(t, s.with(t, s.token(t, 3*time.Second)))
			becomes(t, "the token does not expire", func() bool {
				rights, err := s.store.Rights(t.Context(), s.owner)
				return err == nil && len(rights) == 1 && time.Now().After(rights[0].Until)
			})
			s.crew.open("b")
			becomes(t, "the task does not continue", func() bool { return stateOf(t, s.store, s.owner, id) == a2av1.TaskState_TASK_STATE_COMPLETED })
			for _, n := range s.hook.Taken() {
				if rig.Ended(n) {
					t.Error("the webhook is told the end although the rights have ended")
				}
			}
		})
	})
}
