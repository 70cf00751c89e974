package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/secret"
)

const infoTime = 10 * time.Second

func TestA2AInfoComesFromTheCard(t *testing.T) {
	params, err := structpb.NewStruct(map[string]any{"type": "team", "mode": "workflow", "member_count": "3"})
	if err != nil {
		t.Fatal(err)
	}
	f := fakeagent.New(t, fakeagent.Config{
		Skills: []*teamv1.Skill{{Id: "a", Tags: []string{"x"}}, {Id: "b"}, {Id: "a"}},
		Extensions: []*a2av1.AgentExtension{
			{Uri: "https://github.com/agentteams/team-server/ext/team-run/v1", Params: params},
			{Uri: "https://github.com/agentteams/team-server/ext/inputs/v1", Params: params},
		},
		Card: func(c *a2av1.AgentCard) { c.Description = strings.Repeat("long ", 10_000) },
	})
	a := newA2A(t, f)
	for range 3 {
		info, err := a.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(info.GetCapabilities(), []string{"a", "b"}) || info.GetId() != "far" || info.GetMetadata()["mode"] != "workflow" {
			t.Errorf("info %v", info)
		}
		if info.GetInputs() != nil {
			t.Errorf("the card asks for %v", info.GetInputs())
		}
		if n := len(info.GetDescription()); n > 5000 {
			t.Errorf("a description of %d bytes was taken", n)
		}
	}
	if n := len(f.Requests("Card")); n != 1 {
		t.Errorf("R-000-07: the card was read %d times, want 1", n)
	}
}

func TestA2AChoosesAnInterface(t *testing.T) {
	tests := []struct {
		name          string
		cfg           fakeagent.Config
		prefer        []string
		version, fail string
	}{
		{name: "the card's first", cfg: fakeagent.Config{Bindings: []string{"JSONRPC", "GRPC"}}},
		{name: "the preferred", cfg: fakeagent.Config{}, prefer: []string{"HTTP+JSON", "GRPC"}},
		{name: "A-25 the best version", cfg: fakeagent.Config{Card: alsoOld}},
		{name: "A-25 only another protocol", cfg: fakeagent.Config{Version: "0.2.6", Bindings: []string{"JSONRPC"}},
			fail: `agent "far": card read, but it offers only protocol 0.2.6 over JSONRPC; this server speaks 1.0, and 0.3 over JSONRPC or HTTP+JSON`},
		{name: "A-25 0.3 over a binding that is not spoken", cfg: fakeagent.Config{Version: "0.3", Bindings: []string{"GRPC"}},
			fail: `it offers only protocol 0.3 over GRPC; this server speaks 1.0, and 0.3 over JSONRPC or HTTP+JSON`},
		{name: "A-25 only 0.3", cfg: fakeagent.Config{Old: true, Bindings: []string{"JSONRPC"}}},
		{name: "A-25 only 0.3, over REST", cfg: fakeagent.Config{Old: true, Bindings: []string{"HTTP+JSON"}}},
		{name: "A-25 only 0.3 where that is chosen", cfg: fakeagent.Config{Old: true, Bindings: []string{"JSONRPC"}}, version: "0.3"},
		{name: "A-25 only 0.3 where 1.0 is chosen", cfg: fakeagent.Config{Old: true, Bindings: []string{"JSONRPC"}}, version: "1.0",
			fail: `it offers only protocol 0.3.0 over JSONRPC; this server speaks 1.0 to it. Set a2a.version: "0.3" to use the older version`},
		{name: "A-25 only 1.0 where 0.3 is chosen", cfg: fakeagent.Config{Bindings: []string{"JSONRPC"}}, version: "0.3",
			fail: `it offers only protocol 1.0 over JSONRPC; this server speaks 0.3 over JSONRPC or HTTP+JSON to it`},
		{name: "none preferred", cfg: fakeagent.Config{Bindings: []string{"GRPC"}}, prefer: []string{"JSONRPC"}, fail: "no interface with a preferred binding"},
		{name: "an unknown binding", cfg: fakeagent.Config{Bindings: []string{"PIGEON"}}, fail: `only the binding "PIGEON"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := fakeagent.New(t, tt.cfg)
			a := newA2A(t, f, func(c *remote.A2AConfig) { c.Prefer, c.Version = tt.prefer, tt.version })
			err := newJournal("hello").play(t.Context(), a)
			if tt.fail == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e := asError(t, err); !strings.Contains(e.Message, tt.fail) || e.Retry {
				t.Errorf("error %+v, want %q", e, tt.fail)
			}
		})
	}
}

// alsoOld offers 0.3 first, at an address where nobody is.
func alsoOld(c *a2av1.AgentCard) {
	c.SupportedInterfaces = append([]*a2av1.AgentInterface{
		{Url: "http://127.0.0.1:1/rpc", ProtocolBinding: remote.BindingJSONRPC, ProtocolVersion: "0.3"},
	}, c.GetSupportedInterfaces()...)
}

// serveCard serves one body as a card.
func serveCard(t *testing.T, h http.HandlerFunc, change ...func(*remote.A2AConfig)) *remote.A2A {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	cfg := remote.A2AConfig{ID: "legal", Card: srv.URL}
	for _, c := range change {
		c(&cfg)
	}
	a, err := remote.NewA2A(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func TestCardsThatCannotBeUsed(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		want       string
		retry      bool
	}{
		{"no JSON", `<html>`, 200, "has a card that cannot be read", false},
		{"too large", `{"name":"` + strings.Repeat("x", 300<<10) + `"}`, 200, "has a card that cannot be read", false},
		{"not there", ``, 404, "does not serve a card (HTTP status 404)", false},
		{"not now", ``, 503, "does not serve a card (HTTP status 503)", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := serveCard(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = fmt.Fprint(w, tt.body)
			})
			_, err := a.Info(t.Context())
			if e := asError(t, err); !strings.Contains(e.Message, tt.want) || e.Retry != tt.retry || !strings.Contains(e.Message, `"legal"`) {
				t.Errorf("error %+v, want %q", e, tt.want)
			}
		})
	}
}

func TestT_16_RedirectsOfACard(t *testing.T) {
	var canary atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { canary.Add(1) }))
	defer elsewhere.Close()
	f := fakeagent.New(t, fakeagent.Config{})
	t.Run("to another origin", func(t *testing.T) {
		a := serveCard(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) })
		_, err := a.Info(t.Context())
		if e := asError(t, err); e.Reason != agent.ReasonUnavailable || e.Retry || !e.Fresh || canary.Load() != 0 {
			t.Errorf("error %+v, %d calls", e, canary.Load())
		}
	})
	for hops, ok := range map[int]bool{3: true, 4: false} {
		t.Run(fmt.Sprintf("%d within its origin", hops), func(t *testing.T) {
			left := hops
			a := serveCard(t, func(w http.ResponseWriter, r *http.Request) {
				if left--; left >= 0 {
					http.Redirect(w, r, fmt.Sprintf("/%d", left), http.StatusFound)
					return
				}
				_, _ = fmt.Fprintf(w, `{"name":"x","supportedInterfaces":[{"url":%q,"protocolBinding":"GRPC","protocolVersion":"1.0"}]}`, f.GRPC())
			})
			if _, err := a.Info(t.Context()); (err == nil) != ok {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestT_22_TokenIsBoundToItsOrigin: an evil card does not get it sent elsewhere.
func TestT_22_TokenIsBoundToItsOrigin(t *testing.T) {
	other := fakeagent.New(t, fakeagent.Config{})
	f := fakeagent.New(t, fakeagent.Config{Token: "secret", Card: func(c *a2av1.AgentCard) {
		for _, i := range c.GetSupportedInterfaces() {
			if i.GetProtocolBinding() == remote.BindingREST {
				i.Url = other.URL() + "/rest"
			}
		}
	}})
	with := func(origins, prefer []string) *remote.A2A {
		return newA2A(t, f, func(c *remote.A2AConfig) { c.Token, c.Origins, c.Prefer = secret.New("secret"), origins, prefer })
	}
	err := newJournal("hello").play(t.Context(), with(nil, []string{remote.BindingREST, remote.BindingGRPC}))
	if e := asError(t, err); !strings.Contains(e.Message, "may not receive the token") {
		t.Errorf("error %+v", e)
	}
	if n := len(other.Requests("")); n != 0 {
		t.Errorf("the other host got %d calls", n)
	}
	if err := newJournal("hello").play(t.Context(), with(nil, nil)); err != nil {
		t.Errorf("JSON-RPC at the card's own origin: %v", err)
	}
	if err := newJournal("hello").play(t.Context(), with([]string{f.GRPC()}, []string{remote.BindingGRPC})); err != nil {
		t.Errorf("gRPC at an origin that was named: %v", err)
	}
}

// TestA2AClosed: an agent that was closed connects to nobody; TestMain would find the connection.
func TestA2AClosed(t *testing.T) {
	for _, w := range ways() {
		if !w.a2a {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			_, a := w.start(t, nil)
			if err := newJournal("hello").play(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			closer, ok := a.(io.Closer)
			if !ok {
				t.Fatalf("%T cannot be closed", a)
			}
			if err := closer.Close(); err != nil {
				t.Fatal(err)
			}
			err := newJournal("hello").play(t.Context(), a)
			if e := agent.AsError(err); err == nil || e.Code != agent.CodeUnavailable || !strings.Contains(e.Message, "was closed") {
				t.Errorf("a call after it was closed: %v", err)
			}
			if _, err := a.HealthCheck(t.Context()); err == nil || !strings.Contains(err.Error(), "was closed") {
				t.Errorf("a health check after it was closed: %v", err)
			}
		})
	}
}

func TestA2ADirectReply(t *testing.T) {
	for _, w := range ways() {
		if !w.a2a {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			_, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Direct: true, Text: "at once"} })
			j := newJournal("hello")
			if err := j.play(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if agent.Text(j.reply.GetMessage()) != "at once" || len(j.recorded) != 0 {
				t.Errorf("reply %v, events %v", j.reply, j.recorded)
			}
		})
	}
}

func TestA2APartsThatAreNoText(t *testing.T) {
	data := &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewNumberValue(42)}}
	for _, w := range ways() {
		if !w.a2a {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			_, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Text: "the answer", Parts: []*a2av1.Part{data}} })
			j := newJournal("hello")
			if err := j.play(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			parts := j.reply.GetMessage().GetParts()
			if len(parts) != 2 || parts[0].GetText() != "the answer" || parts[1].GetData().GetNumberValue() != 42 {
				t.Errorf("parts %v", parts)
			}
			if u := last(j, (*teamv1.Event).GetArtifact); len(u.GetArtifact().GetParts()) != 1 || u.GetArtifact().GetArtifactId() == "answer" {
				t.Errorf("artifact %v", u)
			}
		})
	}
}

func TestA2AAuthRequired(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Turns: []fakeagent.Turn{{Auth: "sign in at the desk"}, {Text: "welcome"}}})
	a := newA2A(t, f)
	j := newJournal("hello")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	q := last(j, (*teamv1.Event).GetAsked)
	if q.GetKind() != teamv1.Asked_KIND_AUTH || agent.Text(q.GetMessage()) != "sign in at the desk" {
		t.Errorf("asked %v", q)
	}
	j.answer("done")
	if err := j.play(t.Context(), a); err != nil || agent.Text(j.reply.GetMessage()) != "welcome" {
		t.Errorf("reply %v, error %v", j.reply, err)
	}
}

// TestA2APeerThatLostTheTask: only a new effect helps.
func TestA2APeerThatLostTheTask(t *testing.T) {
	for _, w := range ways() {
		if !w.a2a {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			f, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Ask: "which?"} })
			j := newJournal("hello")
			if err := j.play(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			j.answer("this")
			f.Down()
			if err := f.Up(); err != nil {
				t.Fatal(err)
			}
			err := j.play(t.Context(), a)
			for range 50 { // until the connection is made anew
				if e := asError(t, err); e.Fresh {
					break
				}
				err = j.play(t.Context(), a)
			}
			if e := asError(t, err); !e.Retry || !e.Fresh || !strings.Contains(e.Message, "lost the task") {
				t.Errorf("error %+v", e)
			}
		})
	}
}

// TestA2AHandOver: agents that know the extension get the targets and hand over.
func TestA2AHandOver(t *testing.T) {
	const uri = "https://github.com/agentteams/team-server/ext/routing/v1"
	transfer, err := structpb.NewStruct(map[string]any{uri: map[string]any{"transferTo": "legal", "message": "please check"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, declared := range []bool{true, false} {
		cfg := fakeagent.Config{Default: fakeagent.Turn{Direct: true, Text: "x"}}
		if declared {
			cfg.Extensions = []*a2av1.AgentExtension{{Uri: uri}}
		}
		f := fakeagent.New(t, cfg)
		j := newJournal("hello")
		j.req.Transfers = []*teamv1.TransferTarget{{Id: "legal", Description: "checks"}}
		if err := j.play(t.Context(), newA2A(t, f)); err != nil {
			t.Fatal(err)
		}
		r := f.Requests("SendStreamingMessage")[0]
		m := r.Body.(*a2av1.SendMessageRequest).GetMessage() //nolint:forcetypeassert // the fake's
		if sent := m.GetMetadata().GetFields()[uri] != nil; sent != declared || (len(r.Header["a2a-extensions"]) == 1) != declared {
			t.Errorf("declared %v: metadata %v, header %v", declared, m.GetMetadata(), r.Header["a2a-extensions"])
		}
	}
	got := remote.TransferOf(transfer)
	if got.GetTo() != "legal" || got.GetMessage() != "please check" {
		t.Errorf("transfer %v", got)
	}
}

// TestA_01_RequiredExtensionsOfAPeer: each call activates those that are known, and
// an agent that requires another one cannot be used.
func TestA_01_RequiredExtensionsOfAPeer(t *testing.T) {
	const teamRun, routing = "https://github.com/agentteams/team-server/ext/team-run/v1", "https://github.com/agentteams/team-server/ext/routing/v1"
	for _, c := range []struct {
		name       string
		extensions []*a2av1.AgentExtension
		handsOver  bool
		want, fail string
	}{
		{"one that is known", []*a2av1.AgentExtension{{Uri: teamRun, Required: true}}, false, teamRun, ""},
		{"beside one that is used", []*a2av1.AgentExtension{{Uri: teamRun, Required: true}, {Uri: routing}}, true, teamRun + ", " + routing, ""},
		{"that is used anyway", []*a2av1.AgentExtension{{Uri: routing, Required: true}}, true, routing, ""},
		{"none", []*a2av1.AgentExtension{{Uri: teamRun}}, false, "", ""},
		{"one that nobody knows", []*a2av1.AgentExtension{{Uri: "urn:pigeons", Required: true}}, false, "",
			`agent "far": card read, but it requires the extension urn:pigeons, which this server does not support`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fakeagent.New(t, fakeagent.Config{Extensions: c.extensions, Default: fakeagent.Turn{Text: "x"}})
			j := newJournal("hello")
			if c.handsOver {
				j.req.Transfers = []*teamv1.TransferTarget{{Id: "legal"}}
			}
			err := j.play(t.Context(), newA2A(t, f))
			if c.fail != "" {
				if e := asError(t, err); e.Message != c.fail || e.Retry {
					t.Errorf("error %+v", e)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(f.Requests("SendStreamingMessage")[0].Header["a2a-extensions"], ", "); got != c.want {
				t.Errorf("activated %q, want %q", got, c.want)
			}
		})
	}
}

// TestA2ASilentStreamIsLookedAt: a stream that shows nothing is no end of the call.
func TestA2ASilentStreamIsLookedAt(t *testing.T) {
	gate := make(chan struct{})
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Progress: "working", Gate: gate, Text: "done"}})
	a := newA2A(t, f, func(c *remote.A2AConfig) { c.Idle = 10 * time.Millisecond })
	j := newJournal("hello")
	ended := make(chan error)
	go func() { ended <- j.play(context.WithoutCancel(t.Context()), a) }()
	f.Await(t, "GetTask", 2)
	close(gate)
	if err := <-ended; err != nil || agent.Text(j.reply.GetMessage()) != "done" {
		t.Errorf("reply %v, error %v", j.reply, err)
	}
}

func TestA2AConfigIsChecked(t *testing.T) {
	for _, cfg := range []remote.A2AConfig{
		{}, {Card: "legal.example"}, {Card: "ftp://legal.example"}, {Card: "https://user:pw@legal.example"},
		{Card: "https://legal.example", Prefer: []string{"PIGEON"}},
	} {
		if _, err := remote.NewA2A(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// TestA2APeerThatIsBack takes a message as soon as the peer's card can be read
// again, although Info still tells that it could not.
func TestA2APeerThatIsBack(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Text: "done"}})
	var up atomic.Bool
	out, err := egress.New(egress.Config{Allow: func(context.Context, netip.AddrPort) error {
		if !up.Load() {
			return errors.New("down")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := newA2A(t, f, func(c *remote.A2AConfig) { c.Egress = out })
	if _, err := a.Info(t.Context()); !asError(t, err).Retry {
		t.Fatalf("while it is down: %v", err)
	}
	up.Store(true)
	j := newJournal("hello")
	if err := j.play(t.Context(), a); err != nil || agent.Text(j.reply.GetMessage()) != "done" {
		t.Errorf("reply %v, error %v", j.reply, err)
	}
}

// TestA_25_AddressThatEndsInV1: some cards name where 0.3 is served, most what that is
// below.
func TestA_25_AddressThatEndsInV1(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Old: true, Bindings: []string{remote.BindingREST}, Default: fakeagent.Turn{Text: "done"}, Card: func(c *a2av1.AgentCard) {
		c.SupportedInterfaces[0].Url += "/v1"
	}})
	j := newJournal("hello")
	if err := j.play(t.Context(), newA2A(t, f)); err != nil || agent.Text(j.reply.GetMessage()) != "done" {
		t.Errorf("reply %v, error %v", j.reply, err)
	}
}

// TestA_23_CardThatChangesItsTenant is called under the new one.
func TestA_23_CardThatChangesItsTenant(t *testing.T) {
	var tenant atomic.Value
	var called []string
	a := serveCard(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".json") {
			_, _ = fmt.Fprintf(w, `{"name":"x","supportedInterfaces":[{"url":"http://%s","protocolBinding":"HTTP+JSON","protocolVersion":"1.0","tenant":%q}]}`, r.Host, tenant.Load())
			return
		}
		called = append(called, r.URL.Path)
		_, _ = fmt.Fprint(w, `{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"done"}]}}`)
	})
	for _, name := range []string{"old", "new"} {
		tenant.Store(name)
		if _, err := a.HealthCheck(t.Context()); err != nil { // reads the card anew
			t.Fatal(err)
		}
		if err := newJournal("hello").play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"/old/message:send", "/new/message:send"}; !slices.Equal(called, want) {
		t.Errorf("called are %v, want %v", called, want)
	}
}
