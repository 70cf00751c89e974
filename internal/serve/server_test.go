package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// define parses a definition with variables.
func define(t *testing.T, text string, env map[string]string) *config.Config {
	t.Helper()
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

// serveLocal serves a definition until the test ends.
func serveLocal(t *testing.T, def *config.Config) *Running {
	t.Helper()
	r, err := Local(t.Context(), def, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// process gives an agent of a server a message and tells its run.
func process(ctx context.Context, t *testing.T, r *Running, id, text string) (*transcript.Printer, string, error) {
	t.Helper()
	return processRequest(ctx, t, r, &teamv1.ProcessRequest{AgentId: id, Message: agent.UserMessage(uuid.NewString(), text)})
}

// processRequest makes a call and prints its run until the call ends.
func processRequest(ctx context.Context, t *testing.T, r *Running, req *teamv1.ProcessRequest) (*transcript.Printer, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	c, err := client.NewTeam("http://"+r.HTTP, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var talk strings.Builder
	run := &transcript.Printer{Talk: &talk}
	for resp, err := range c.Process(ctx, req, 0) {
		if err != nil {
			return run, talk.String(), err
		}
		run.Event(resp.GetTaskId(), resp.GetEvent())
	}
	return run, talk.String(), nil
}

const far = `version: v1
agents:
  member: {KIND}
teams:
  desk:
    members: [{agent: member}]
    supervisor: {rules: [{id: ask, when: "turn == 1", next: [member]}, {id: end, when: "true", finish: member}]}
`

// TestTwoServers has a team of one server as a member of a team of another one.
func TestTwoServers(t *testing.T) {
	demo, err := Demo()
	if err != nil {
		t.Fatal(err)
	}
	b := serveLocal(t, demo)
	for name, kind := range map[string]string{
		"by AgentService": `grpc: {address: "${B_GRPC}", agent_id: newsroom}`,
		"by A2A":          `a2a: {card: "http://${B_HTTP}/newsroom/.well-known/agent-card.json"}`,
		"by A2A REST":     `a2a: {card: "http://${B_HTTP}/newsroom", binding: REST}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := serveLocal(t, define(t, strings.Replace(far, "KIND", kind, 1), map[string]string{"B_GRPC": b.GRPC, "B_HTTP": b.HTTP}))
			run, talk, err := process(t.Context(), t, a, "desk", "tides")
			if err != nil || run.Failed() || !strings.HasPrefix(run.Answer, `First version. On "tides"`) {
				t.Errorf("answer %q, %v, %v\n%s", run.Answer, run.Err, err, talk)
			}
		})
	}
}

// TestStoreOfTheCommandLine: a store of the command line takes precedence over that of the file, which the log
// says, without passwords.
func TestStoreOfTheCommandLine(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	def := define(t, "version: v1\nagents: {parrot: {description: Repeats., scripted: {steps: [{echo: true}]}}}\nserver: {store: \"postgres://team:pa55@127.0.0.1:1/team\"}\n", nil)
	r, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Store: "sqlite:" + filepath.Join(t.TempDir(), "team.db"), Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	lines := logged.FilterMessageSnippet("server.store of the file is not used").All()
	if len(lines) != 1 || strings.Contains(fmt.Sprint(lines[0].ContextMap()), "pa55") || !strings.Contains(fmt.Sprint(lines[0].ContextMap()), "sqlite:") {
		t.Errorf("logged %v", logged.All())
	}
}

// TestServersInACircle has two servers whose teams contain each other: info,
// health and a message end with a clear error (R-000-36).
func TestServersInACircle(t *testing.T) {
	kind := `grpc: {address: "${PEER}", agent_id: desk}`
	text := strings.Replace(far, "KIND", kind, 1)
	b := serveLocal(t, define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1), nil))
	a := serveLocal(t, define(t, text, map[string]string{"PEER": b.GRPC}))
	if err := b.Agents.Refresh(t.Context(), define(t, text, map[string]string{"PEER": a.GRPC})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	team, err := a.Agents.Get("desk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := team.Info(ctx); err != nil && agent.AsError(err).Reason != agent.ReasonMaxDepth {
		t.Errorf("info: %v", err)
	}
	if h, err := team.HealthCheck(ctx); err != nil || h.GetHealthy() {
		t.Errorf("health is %v, %v", h, err)
	}
	run, talk, err := process(ctx, t, a, "desk", "tides")
	if err != nil {
		t.Fatal(err)
	}
	if !run.Failed() || run.Err.GetReason() == "" {
		t.Errorf("the run ended with %v\n%s", run.Outcome, talk)
	}
	if !strings.Contains(run.Err.GetMessage(), "nested") {
		t.Errorf("the error does not say why: %v", run.Err)
	}
}

func TestListen(t *testing.T) {
	taken, err := Listen(t.Context(), "http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	_, err = Listen(t.Context(), "http", address)
	want := "cannot listen on " + address + ": in use by another program.  Use --http 127.0.0.1:0 to take any free port"
	if !errors.Is(err, syscall.EADDRINUSE) || err.Error() != want {
		t.Errorf("error is %v", err)
	}
	l, instead, err := listenNear(t.Context(), "http", address)
	if err != nil || instead != address || l.Addr().String() == address {
		t.Fatalf("listens on %v instead of %q: %v", l, instead, err)
	}
	_ = l.Close()
	for _, bad := range []string{"nowhere", "127.0.0.1:99999", "256.0.0.1:80"} {
		if _, err := Listen(t.Context(), "grpc", bad); err == nil {
			t.Errorf("listens on %s", bad)
		}
	}
}

func TestDevMovesOnFromTheDefaultOnly(t *testing.T) {
	taken, err := Listen(t.Context(), "http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	var says []string
	d := &Dev{Say: func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }}
	if l, err := d.listen(t.Context(), "http", address, "127.0.0.1:0"); !errors.Is(err, syscall.EADDRINUSE) || len(says) > 0 {
		t.Errorf("listens on %v, %v, and says %q", l, err, says)
	}
	l, err := d.listen(t.Context(), "http", "", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if want := address + " is in use by another program; http listens on " + l.Addr().String() + " instead"; len(says) != 1 || says[0] != want {
		t.Errorf("says %q, want %q", says, want)
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "localhost:80": true, "[::1]:80": true, ":80": false, "0.0.0.0:80": false, "10.0.0.1:80": false, "x": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

func TestServeRefuses(t *testing.T) {
	def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1), nil)
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		_, err := Start(t.Context(), def, Config{HTTP: address, GRPC: "127.0.0.1:0", Log: zap.NewNop()})
		if err == nil || !strings.HasPrefix(err.Error(), "command line  --http: refusing to serve on 0.0.0.0 without authentication; add server.auth") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestPublicAddresses has the addresses of the file in the cards of serve. A
// server on this machine only is reached where it listens.
func TestPublicAddresses(t *testing.T) {
	text := strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1) +
		"server: {public_url: \"https://team.example/desk\", public_grpc: \"team.example:443\"}\n"
	def := define(t, text, nil)
	served, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = served.Stop() }()
	local := serveLocal(t, def)
	for _, tt := range []struct {
		server *Running
		want   []string
	}{
		{served, []string{"https://team.example/desk/desk/rpc", "https://team.example/desk/desk", "team.example:443"}},
		{local, []string{"http://" + local.HTTP + "/desk/rpc", "http://" + local.HTTP + "/desk", local.GRPC}},
	} {
		card, _, err := a2aclient.ReadCard(t.Context(), "http://"+tt.server.HTTP+"/desk", a2aclient.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range card.GetSupportedInterfaces() {
			got = append(got, i.GetUrl())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("card names %v, not %v", got, tt.want)
		}
	}
}

// TestA_10_TheFileOrdersInterfaces has the interfaces of the file on the cards, in its order,
// and no gRPC where that is off.
func TestA_10_TheFileOrdersInterfaces(t *testing.T) {
	for settings, want := range map[string]string{
		"":                                    "JSONRPC HTTP+JSON GRPC",
		"card: {}":                            "JSONRPC HTTP+JSON GRPC",
		"card: {interfaces: [GRPC, JSONRPC]}": "GRPC JSONRPC",
		`card: {interfaces: ["HTTP+JSON"]}`:   "HTTP+JSON",
		`grpc: "off"`:                         "JSONRPC HTTP+JSON",
		"grpc: off":                           "JSONRPC HTTP+JSON",
	} {
		def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1)+"server: {"+settings+"}\n", nil)
		flags := Config{HTTP: "127.0.0.1:0", Log: zap.NewNop()}
		if !strings.Contains(settings, "grpc") {
			flags.GRPC = "127.0.0.1:0"
		}
		served, err := Start(t.Context(), def, flags)
		if err != nil {
			t.Fatalf("%q: %v", settings, err)
		}
		card, _, err := a2aclient.ReadCard(t.Context(), "http://"+served.HTTP+"/desk", a2aclient.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range card.GetSupportedInterfaces() {
			if i.GetProtocolVersion() == "1.0" {
				got = append(got, i.GetProtocolBinding())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: the card names %v, want %s", settings, got, want)
		}
		if off := strings.Contains(settings, "grpc"); off != (served.GRPC == "off") {
			t.Errorf("%q: gRPC is at %q", settings, served.GRPC)
		}
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestA_25_TheFileTurnsItOff has A2A 0.3 served, unless the file says otherwise.
func TestA_25_TheFileTurnsItOff(t *testing.T) {
	for settings, want := range map[string]bool{
		"": true, "server: {protocol: {}}": true, "server: {protocol: {v0_3: true}}": true, "server: {protocol: {v0_3: false}}": false,
	} {
		def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1)+settings+"\n", nil)
		served, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get("http://" + served.HTTP + "/.well-known/agent.json") //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		if got := resp.StatusCode == http.StatusOK; got != want {
			t.Errorf("%q: status %d", settings, resp.StatusCode)
		}
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestA_21_TheFileNamesOrigins has pages of other origins call where the file says so.
func TestA_21_TheFileNamesOrigins(t *testing.T) {
	for settings, want := range map[string]int{
		"{}": http.StatusForbidden, "{cors: {origins: [https://app.example], headers: [X-Mine]}}": http.StatusNoContent,
		"{cors: {origins: [https://another.example]}}": http.StatusForbidden,
	} {
		def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1)+"server: "+settings+"\n", nil)
		served, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, "http://"+served.HTTP+"/message:send", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://app.example")
		req.Header.Set("Access-Control-Request-Method", http.MethodPost)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		if mine := strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "X-Mine"); resp.StatusCode != want || mine != (want == http.StatusNoContent) {
			t.Errorf("%s: status %d %v", settings, resp.StatusCode, resp.Header)
		}
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestA_03_TheFileIsStrict has calls that name no version refused where the file
// says so.
func TestA_03_TheFileIsStrict(t *testing.T) {
	for settings, want := range map[string]int{"{}": http.StatusOK, "{strict_version: false}": http.StatusOK, "{strict_version: true}": http.StatusBadRequest} {
		def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1)+"server: {protocol: "+settings+"}\n", nil)
		served, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get("http://" + served.HTTP + "/tasks") //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		if resp.StatusCode != want {
			t.Errorf("%q: status %d", settings, resp.StatusCode)
		}
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestA_09_StreamsOfTheFile: the file says where streams are closed, and how many
// there may be.
func TestA_09_StreamsOfTheFile(t *testing.T) {
	for text, want := range map[string]*teamv1.StreamSettings{
		"":                            {PerTask: proto.Int32(64), PerCaller: proto.Int32(1000)},
		"close: END":                  {PerTask: proto.Int32(64), PerCaller: proto.Int32(1000), Close: teamv1.StreamClose_END},
		"per_task: 7, per_caller: 99": {PerTask: proto.Int32(7), PerCaller: proto.Int32(99)},
	} {
		def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1)+"server: {streams: {"+text+"}}\n", nil)
		if got := settings.Of(settingsOf(def, nil)).Load().GetStreams(); !proto.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestA_01_TheFileRequiresTheExtension: cards say so, and calls without it are refused.
func TestA_01_TheFileRequiresTheExtension(t *testing.T) {
	def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1)+"server: {protocol: {require_team_run: true}}\n", nil)
	s, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + s.HTTP + "/desk"
	card, _, err := a2aclient.ReadCard(t.Context(), url, a2aclient.Config{})
	if e := card.GetCapabilities().GetExtensions(); err != nil || len(e) != 1 || !e[0].GetRequired() {
		t.Errorf("card: %v, %v", e, err)
	}
	for _, uris := range [][]string{nil, {project.TeamRunURI}} {
		c, err := a2aclient.Open(t.Context(), url, a2aclient.Config{Extensions: uris})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.SendMessage(t.Context(), &a2av1.SendMessageRequest{Message: agent.UserMessage("m", "x")})
		if (err == nil) != (len(uris) == 1) || err != nil && !strings.Contains(err.Error(), project.TeamRunURI) {
			t.Errorf("with %v: %v", uris, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// TestA_18_PushIsSwitchedOffInTheFile: the cards say whether there are push
// notifications: there are, unless the file says no.
func TestA_18_PushIsSwitchedOffInTheFile(t *testing.T) {
	for settings, want := range map[string]bool{"{}": true, "{push: {}}": true, "{push: {enabled: true}}": true, "{push: {enabled: false}}": false} {
		def := define(t, strings.Replace(far, "KIND", "scripted: {steps: [{echo: true}]}", 1)+"server: "+settings+"\n", nil)
		s, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		card, _, err := a2aclient.ReadCard(t.Context(), "http://"+s.HTTP+"/desk", a2aclient.Config{})
		if err != nil || card.GetCapabilities().GetPushNotifications() != want {
			t.Errorf("server: %s: %v, %v", settings, card.GetCapabilities(), err)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestDotEnv(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".env")
	if env, err := ReadDotEnv(path); err != nil || len(env) != 0 {
		t.Errorf("no file: %v, %v", env, err)
	}
	text := "\ufeff# a comment\n\nA=1\nexport B=\"two words\"\nC='x'\nD=a=b\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env, err := ReadDotEnv(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"A": "1", "B": "two words", "C": "x", "D": "a=b"} {
		if got, ok := env.Lookup(name); !ok || got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	t.Setenv("A", "process")
	if got, _ := env.Lookup("A"); got != "process" {
		t.Errorf("the process's own comes first, not %q", got)
	}
	for _, line := range []string{"A=\"secret", "A='secret", "A=\"x\" # secret", "A=\"it's secret'"} {
		if err := os.WriteFile(path, []byte("A=1\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadDotEnv(path)
		if !errors.As(err, new(source.Faults)) || !strings.Contains(err.Error(), ".env:2:1  the closing quote is missing") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{"nonsense", "=secret", "1A=secret", "A B=secret", "A-B=secret", "export =secret"} {
		if err := os.WriteFile(path, []byte("A=1\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadDotEnv(path)
		if !errors.As(err, new(source.Faults)) || !strings.Contains(err.Error(), ".env:2:1  expected NAME=value") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
