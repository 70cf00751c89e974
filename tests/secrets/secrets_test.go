// Package secrets looks for the secrets of a whole server in what it logs, answers and stores.
package secrets

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/admin"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/teams"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

const file = `version: v1
models:
  echoing: {provider: openai, name: m, base_url: "${WEB}/model", api_key: "${file:model.key}"}
  worker: {provider: openai, name: worker, base_url: "${LLM}", api_key: "${WORKER}"}
  claude: {provider: anthropic, name: m, base_url: "${WEB}/model", api_key: "${CLAUDE}"}
tools:
  far: {mcp: {url: "${MCP}", bearer: "${file:mcp.key}"}}
agents:
  asks: {description: Asks., api: true, scripted: {steps: [{ask: "which?"}, {text: "{{answer}}"}]}}
  thinks: {description: Thinks., model: echoing, instructions: Think.}
  ponders: {description: Thinks., model: claude, instructions: Think.}
  works: {description: Works., model: worker, instructions: Work., tools: [far]}
  remote: {description: Is elsewhere., a2a: {card: "${WEB}/card", auth: {bearer: "${REMOTE}"}}}
  member: {description: Is elsewhere., grpc: {address: "${GRPC}", agent_id: x, auth: {bearer: "${MEMBER}"}}}
teams:
  all: {members: [{agent: remote}, {agent: member}, {agent: thinks}, {agent: works}, {agent: ponders}], broadcast: {model: echoing}}
server:
  default_agent: asks
  store: "${STORE}"
  egress: {allow: [127.0.0.0/8]}
  signing: {keys: [{kid: one, file: sign.pem}]}
  encryption: {keys: [{id: one, value: "${file:store.key}"}]}
  auth:
    api_keys:
      - {name: ann, account: acme, sha256: "${ANN}", permissions: [READ, CALL, ANSWER, MANAGE, HALT, ADMIN]}
`

// canaries are the secrets of a test, by name.
type canaries map[string][]byte

// add makes a secret.
func (c canaries) add(name string) string {
	text := "canary-" + name + "-" + rand.Text()
	c[name] = []byte(text)
	return text
}

// search fails the test for each secret in a text, in one of the forms in which it could be there.
func (c canaries) search(t *testing.T, where string, text []byte) {
	t.Helper()
	for name, value := range c {
		for form, is := range map[string]string{
			"clear": string(value), "hex": hex.EncodeToString(value), "base64": base64.RawStdEncoding.EncodeToString(value),
			"base64url": base64.RawURLEncoding.EncodeToString(value), "quoted": strings.Trim(fmt.Sprintf("%q", value), `"`), "numbers": strings.Trim(fmt.Sprintf("%d", value), "[]"),
		} {
			if i := bytes.Index(text, []byte(is)); i >= 0 {
				t.Errorf("%s has the secret %q in %s: %q", where, name, form, text[max(0, i-200):min(len(text), i+200)])
			}
		}
	}
}

// buffer is a buffer for several writers.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.b.Bytes())
}

// indiscreet answers every request with an error that has all that the request was sent with.
func indiscreet(t *testing.T, seen *buffer) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := fmt.Sprint(r.Header["Authorization"], r.Header["X-Api-Key"], r.URL)
		fmt.Fprintln(seen, said)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Www-Authenticate", said)
		w.WriteHeader(http.StatusBadRequest)
		if err := json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"type": "invalid_request_error", "code": -32600, "message": "bad key " + said}, "detail": said}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// indiscreetGRPC is like indiscreet.
func indiscreetGRPC(t *testing.T, seen *buffer) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		fmt.Fprintln(seen, md["authorization"])
		return status.Errorf(codes.InvalidArgument, "bad token %v", md["authorization"])
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // the error says that it was stopped
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

// indiscreetTool is an MCP server whose tool fails with an error that has all that it was sent with.
func indiscreetTool(t *testing.T, seen *buffer) string {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "far", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "leak", Description: "Fails.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			fmt.Fprintln(seen, r.Extra.Header["Authorization"])
			return nil, fmt.Errorf("bad token %v", r.Extra.Header["Authorization"])
		})
	s.AddTool(&sdk.Tool{Name: "show", Description: "Shows headers.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(r.Extra.Header["Authorization"])}}}, nil
		})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	return h.URL
}

// put writes a file of the test.
func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestT_42_NoSecretComesOut runs a server with all kinds of secrets, beside models, tools, agents and webhooks
// that answer with what they were sent, and looks for the secrets in its log, its answers and its store.
func TestT_42_NoSecretComesOut(t *testing.T) {
	secrets, dir := canaries{}, t.TempDir()
	var log, out, seen buffer
	put(t, dir, "model.key", []byte(secrets.add("model")+"\n"))
	put(t, dir, "mcp.key", []byte(secrets.add("mcp")))
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	secrets["encryption"] = raw
	put(t, dir, "store.key", []byte(base64.StdEncoding.EncodeToString(raw)+"\n"))
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secrets["signing"] = private.Seed()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "sign.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	key := secrets.add("api-key")
	sum := sha256.Sum256([]byte(key))
	db := filepath.Join(dir, "team.db")
	llm := fakellm.New(t)
	llm.Answer("worker", func(r *fakellm.Request) fakellm.Turn {
		if r.Last() != "tides" {
			return fakellm.Turn{Text: "the tools said: " + r.Last()}
		}
		var calls []fakellm.Call
		for _, tool := range r.Tools {
			calls = append(calls, fakellm.Call{Name: tool, Arguments: "{}"})
		}
		return fakellm.Turn{Calls: calls}
	})
	web := indiscreet(t, &seen)
	env := map[string]string{
		"WEB": web, "GRPC": indiscreetGRPC(t, &seen), "MCP": indiscreetTool(t, &seen), "LLM": llm.URL, "WORKER": secrets.add("worker"), "CLAUDE": secrets.add("claude"),
		"REMOTE": secrets.add("remote"), "MEMBER": secrets.add("member"), "STORE": "sqlite:" + db, "ANN": hex.EncodeToString(sum[:]), "OTHER": secrets.add("environment"),
	}
	put(t, dir, "team.yaml", []byte(file))
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Load(filepath.Join(dir, "team.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.AddSync(&log), zap.DebugLevel))
	logger.Debug("configuration", zap.Any("file", def), zap.Any("server", def.Server), zap.Any("keys", def.EncryptionKeys()))
	r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	target := rig.Target{GRPC: r.GRPC, HTTP: "http://" + r.HTTP, Key: key}
	note := func(m proto.Message, err error) {
		if err != nil {
			fmt.Fprintln(&out, err)
			return
		}
		b, err := protojson.Marshal(m)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintln(&out, string(b))
	}
	rig.Each(t, target, func(t *testing.T, c rig.Client) { calls(t, c, web, secrets, note) })
	for _, wrong := range []string{secrets.add("wrong-key"), "tsk_abcdefghij_" + secrets.add("wrong-made"), "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(secrets.add("jwt"))) + ".x"} {
		target.Key = wrong
		rig.Each(t, target, func(t *testing.T, c rig.Client) {
			if resp, err := c.Send(t.Context(), rig.Text("asks", "w"+rand.Text(), "x")); err == nil {
				t.Errorf("a wrong key was accepted: %v", resp)
			} else {
				note(nil, err)
			}
		})
	}
	commands(t, target.HTTP, key, dir, &out)
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	badStores(t, def, secrets, &out)
	badProgram(t, secrets, logger, &out)
	for name := range map[string]bool{"model": true, "claude": true, "remote": true, "member": true, "mcp": true} {
		if !bytes.Contains(seen.bytes(), secrets[name]) {
			t.Errorf("the secret %q was not used:\n%s", name, seen.bytes())
		}
	}
	if n := bytes.Count(out.bytes(), []byte("the tools said: ")); n == 0 {
		t.Error("no tool was called")
	}
	secrets.search(t, "the log", log.bytes())
	secrets.search(t, "an answer", out.bytes())
	files, err := filepath.Glob(db + "*")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		secrets.search(t, filepath.Base(f), b)
	}
	t.Logf("%d secrets; %d bytes of log, %d of answers", len(secrets), len(log.bytes()), len(out.bytes()))
}

// calls makes calls that use the secrets, most of which fail.
func calls(t *testing.T, c rig.Client, web string, secrets canaries, note func(proto.Message, error)) {
	t.Helper()
	ctx := t.Context()
	for _, agent := range []string{"thinks", "ponders", "works", "remote", "member", "all"} {
		resp, err := c.Send(ctx, rig.Text(agent, rand.Text(), "tides"))
		note(resp, err)
		if id := resp.GetTask().GetId(); id != "" {
			task, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: id})
			note(task, err)
		}
	}
	resp, err := c.Send(ctx, rig.Text("asks", rand.Text(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	task := resp.GetTask().GetId()
	p, ok := c.(rig.PushClient)
	if !ok {
		t.Fatal("no client of webhooks")
	}
	hook := &a2av1.TaskPushNotificationConfig{
		TaskId: task, Id: "hook", Url: web + "/hook?q=" + secrets.add("hook-query-"+c.Binding()), Token: secrets.add("hook-token-" + c.Binding()),
		Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: secrets.add("hook-credentials-" + c.Binding())},
	}
	made, err := p.CreatePush(ctx, hook)
	if err != nil {
		t.Fatal(err)
	}
	made.Url, _, _ = strings.Cut(made.GetUrl(), "?") // the caller sees its own address
	note(made, nil)
	got, err := p.GetPush(ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task, Id: "hook"})
	got.Url, _, _ = strings.Cut(got.GetUrl(), "?")
	note(got, err)
	bad := proto.CloneOf(hook)
	bad.Id, bad.Url = "bad", "ftp://ann:"+secrets.add("hook-password-"+c.Binding())+"@127.0.0.1/"
	_, err = p.CreatePush(ctx, bad)
	if err == nil {
		t.Error("took a webhook at an ftp address")
	}
	note(nil, err)
	answer := rig.Text("asks", rand.Text(), "this")
	answer.Message.TaskId = task
	last, err := c.Send(ctx, answer)
	note(last, err)
	list, err := c.List(ctx, &a2av1.ListTasksRequest{})
	note(list, err)
	card, err := c.Card(ctx, &a2av1.GetExtendedAgentCardRequest{})
	note(card, err)
}

// commands runs commands against a server and on its file.
func commands(t *testing.T, server, key, dir string, out io.Writer) {
	t.Helper()
	put(t, dir, "own.yaml", []byte("agents: {own: {description: \"${file:model.key} ${OTHER}\", scripted: {steps: [{echo: true}]}}}\n"))
	put(t, dir, "good.yaml", []byte("version: v1\nteams: {good: {members: [{agent: asks}], supervisor: {rules: [{id: a, when: \"turn == 1\", next: [asks]}, {id: b, when: \"true\", finish: asks}]}}}\n"))
	level := zapcore.DebugLevel
	s := &cli.Shell{Console: console.Console{Out: out, Talk: out, JSON: true, Level: &level}, Connection: console.Connection{Server: server, Token: key}}
	on, as := &teams.Commands{Console: &s.Console, Connection: &s.Connection}, &admin.Commands{Console: &s.Console, Connection: &s.Connection}
	if err := s.Validate([]string{filepath.Join(dir, "team.yaml")}, false); err == nil {
		t.Error("the file is valid without its variables")
	}
	for name, run := range map[string]func() error{
		"apply what reads files": func() error { return on.ApplyTeams(t.Context(), filepath.Join(dir, "own.yaml"), false) },
	} {
		if err := run(); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			fmt.Fprintln(out, err)
		}
	}
	for name, run := range map[string]func() error{
		"apply": func() error { return on.ApplyTeams(t.Context(), filepath.Join(dir, "good.yaml"), false) },
		"show":  func() error { return on.GetTeam(t.Context(), "good") },
		"list":  func() error { return on.ListTeams(t.Context()) },
		"audit": func() error { return as.ListAudit(t.Context(), admin.AuditQuery{Account: "acme"}) },
		"keys":  func() error { return as.ListKeys(t.Context()) },
	} {
		if err := run(); err != nil && name != "show" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// badStores opens stores that cannot be opened, with passwords and keys.
func badStores(t *testing.T, def *config.Config, secrets canaries, out io.Writer) {
	t.Helper()
	for _, url := range []string{
		"postgres://ann:" + secrets.add("postgres") + "@127.0.0.1:1/db", "postgres://127.0.0.1:1/db?password=" + secrets.add("postgres-query"),
		"postgres://ann:%zz" + secrets.add("postgres-bad") + "@127.0.0.1/db",
	} {
		if r, err := serve.Start(t.Context(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Store: url, Log: zap.NewNop()}); err == nil {
			_ = r.Stop()
			t.Error("opened a store that does not exist")
		} else {
			fmt.Fprintln(out, err)
		}
	}
}

// badProgram starts a server with a tool that prints its environment and ends.
func badProgram(t *testing.T, secrets canaries, log *zap.Logger, out io.Writer) {
	t.Helper()
	const file = `version: v1
models: {m: {provider: openai, name: m, base_url: "http://127.0.0.1:1", api_key: none}}
tools: {here: {mcp: {required: true, command: [sh, -c, "echo my token is $TOKEN >&2; printf $TOKEN >&2; exit 7"], env: {TOKEN: "${PROGRAM}"}}}}
agents: {works: {description: Works., model: m, instructions: Work., tools: [here]}}
`
	token := secrets.add("program")
	def, err := config.Loader{Env: func(name string) (string, bool) { return token, name == "PROGRAM" }}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := serve.Start(t.Context(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: log})
	if err == nil {
		_ = r.Stop()
		t.Fatal("started without its tool")
	}
	if !strings.Contains(err.Error(), "my token is ***") {
		t.Errorf("the error does not have what the program said: %v", err)
	}
	fmt.Fprintln(out, err)
}
