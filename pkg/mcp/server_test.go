package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
	"github.com/agentteams/team-server/pkg/secret"
)

// program is the configuration of the program of the tests.
func program(which string) mcp.Config {
	return mcp.Config{Name: "web", Command: []string{os.Args[0]}, Env: map[string]secret.Secret{
		"MCP_TEST_PROGRAM": secret.New(which),
		"GORACE":           secret.New("atexit_sleep_ms=0"), // the race detector sleeps for a second at each exit
	}}
}

func start(t *testing.T, c mcp.Config) *mcp.Server {
	t.Helper()
	s, err := mcp.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func find(t *testing.T, s *mcp.Server, name string) agent.Tool {
	t.Helper()
	for _, tool := range s.Known() {
		if tool.Spec().Name == name {
			return tool
		}
	}
	t.Fatalf("there is no tool %q", name)
	return nil
}

// call calls a tool that must succeed.
func call(t *testing.T, s *mcp.Server, name string) *teamv1.ToolResult {
	t.Helper()
	r, err := find(t, s, name).Call(t.Context(), json.RawMessage(`{"text":"x"}`), "key-1")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func pid(t *testing.T, s *mcp.Server) int {
	t.Helper()
	n, err := strconv.Atoi(call(t, s, "pid").GetText())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	ends(t, fmt.Sprintf("process %d", pid), func() bool {
		p, err := os.FindProcess(pid)
		return err == nil && p.Signal(syscall.Signal(0)) == nil
	})
}

// ends waits until something is not alive.
func ends(t *testing.T, what string, alive func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for alive() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s is still there", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// killProcess kills a process.
func killProcess(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTools(t *testing.T) {
	s := start(t, program("odd"))
	effects := map[string]agent.Effect{
		"echo": agent.EffectSafe, "put": agent.EffectKeyed, "pid": agent.EffectUnsafe, "files_read": agent.EffectUnsafe,
		strings.Repeat("x", 55) + "_" + agent.ToolName(strings.Repeat("x", 70))[56:]: agent.EffectUnsafe,
	}
	seen := map[string]agent.ToolSpec{}
	for _, tool := range s.Known() {
		spec := tool.Spec()
		seen[spec.Name] = spec
		if len(spec.Name) > 64 || spec.Description == "" {
			t.Errorf("R-004-08: %+v", spec)
		}
	}
	for name, want := range effects {
		if spec, ok := seen[name]; !ok || spec.Effect != want {
			t.Errorf("%s: effect %v, want %v", name, spec.Effect, want)
		}
	}
	var schema map[string]any
	if err := json.Unmarshal(seen["echo"].Parameters, &schema); err != nil || schema["type"] != "object" || schema["required"] == nil {
		t.Errorf("parameters %s", seen["echo"].Parameters)
	}
}

func TestResults(t *testing.T) {
	s := start(t, program("plain"))
	for name, want := range map[string]string{
		"echo": `{"text":"x"} with key key-1`,
		"show": "see\n[image of type image/png, 3 bytes]\n[audio of type audio/wav, 1 bytes]\n[resource x at file:///x]\ninside\n[resource file:///z of type image/gif, 4 bytes]",
		"data": `{"n":1}`,
	} {
		if r := call(t, s, name); r.GetText() != want || r.GetIsError() {
			t.Errorf("%s: %v", name, r)
		}
	}
	var files []string
	for _, f := range call(t, s, "show").GetFiles() {
		files = append(files, f.GetMediaType()+" "+f.GetFilename()+" "+string(f.GetRaw()))
	}
	if want := []string{"image/png  abc", "audio/wav  a", "image/gif z 1234"}; !slices.Equal(files, want) {
		t.Errorf("C-07 the files of a result: %q, want %q", files, want)
	}
	if r := call(t, s, "fails"); r.GetText() != "no such page" || !r.GetIsError() {
		t.Errorf("fails: %v", r)
	}
	_, err := find(t, s, "refuses").Call(t.Context(), json.RawMessage(`{}`), "k")
	if e := agent.AsError(err); err == nil || e.Retry || !e.Fresh || !strings.Contains(e.Message, "the server refused the call: not for you") {
		t.Errorf("refuses: %v", err)
	}
	if r := call(t, s, "long"); !strings.HasSuffix(r.GetText(), "ü\n[cut: 147456 more bytes]") || len(r.GetText()) > 257<<10 {
		t.Errorf("long: %d bytes, %q", len(r.GetText()), r.GetText()[len(r.GetText())-40:])
	}
	for _, arguments := range []string{`[1]`, `null`, `"x"`} {
		_, err := find(t, s, "echo").Call(t.Context(), json.RawMessage(arguments), "k")
		if e := agent.AsError(err); err == nil || e.Retry || !e.Fresh || !strings.Contains(e.Message, "must be a JSON object") {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

func TestAllowAndEffects(t *testing.T) {
	c := program("plain")
	c.Allow = []string{"echo", "pid"}
	c.Effects = map[string]agent.Effect{"echo": agent.EffectUnsafe, "*": agent.EffectKeyed}
	s := start(t, c)
	tools, err := s.Tools(t.Context())
	if err != nil || len(tools) != 2 || tools[0].Spec().Effect != agent.EffectUnsafe || tools[1].Spec().Effect != agent.EffectKeyed {
		t.Error(tools, err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("MCP_TEST_SECRET", "of the server")
	c := program("plain")
	c.Dir, c.Env["TOKEN"] = t.TempDir(), secret.New("of the tool")
	c.Env["HOME"] = secret.New("/own")
	got := call(t, start(t, c), "variables").GetText()
	dir, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got, dir+"\n") || !strings.Contains(got, "TOKEN=of the tool") || !strings.Contains(got, "HOME=/own") || !strings.Contains(got, "PATH=") {
		t.Errorf("folder and environment:\n%s", got)
	}
	if strings.Contains(got, "MCP_TEST_SECRET") || strings.Count(got, "HOME=") != 1 {
		t.Errorf("it sees too much:\n%s", got)
	}
}

// TestProgramEnds: the program ends with the server that started it, and what it
// says is logged.
func TestProgramEnds(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	c := program("plain")
	c.Log = zap.New(core)
	s, err := mcp.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	n := pid(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, n)
	if logs.FilterMessage("MCP server stderr").Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
	_, err = find(t, s, "pid").Call(t.Context(), json.RawMessage(`{}`), "k")
	if err == nil {
		t.Error("a closed server is called")
	}
	if err := s.Close(); err != nil {
		t.Error("closed twice: ", err)
	}
}

// TestLinesThatAreNoMessages: what a program writes to its standard output besides messages is logged without its
// secrets, and changes nothing.
func TestLinesThatAreNoMessages(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	c := program("noisy")
	c.Env["TOKEN"], c.Log = secret.New("canary-token"), zap.New(core)
	s := start(t, c)
	n := pid(t, s)
	if got := call(t, s, "noise").GetText(); got != "fine" || pid(t, s) != n {
		t.Errorf("answer %q, or started again", got)
	}
	var lines []string
	for _, e := range logs.All() {
		lines = append(lines, fmt.Sprint(e.ContextMap()["line"]))
	}
	want := []string{"[db] Connected to data.db", `{"level":"info","msg":"ready"}`, "42", "[1, {}]", "debug: ***", `{"jsonrpc":"2.0"}`, "null"}
	if !slices.Equal(lines, want) {
		t.Errorf("logged %q, want %q", lines, want)
	}
}

// TestProgramDies: the outcome of a call in progress is unknown, and the program is started
// again for the next call.
func TestProgramDies(t *testing.T) {
	s := start(t, program("plain"))
	first := pid(t, s)
	_, err := find(t, s, "die").Call(t.Context(), json.RawMessage(`{}`), "k")
	var e *agent.Error
	if !errors.As(err, &e) || !e.Retry || e.Fresh || !strings.Contains(e.Message, "it is unknown whether the call took effect") || e.Err == nil {
		t.Fatalf("error %#v", err)
	}
	second := pid(t, s)
	if second == first {
		t.Error("it was not started again")
	}
	gone(t, first)
}

// TestProgramIsKilled between two calls: the next one is not in doubt.
func TestProgramIsKilled(t *testing.T) {
	s := start(t, program("plain"))
	first := pid(t, s)
	killProcess(t, first)
	gone(t, first)
	for range 500 { // the end of its output is seen soon
		if _, err := find(t, s, "pid").Call(t.Context(), json.RawMessage(`{}`), "k"); err == nil {
			break
		}
	}
	if pid(t, s) == first {
		t.Error("it was not started again")
	}
}

// TestKilledInMidCall kills the program while it works.
func TestKilledInMidCall(t *testing.T) {
	s := start(t, program("plain"))
	n := pid(t, s)
	done := make(chan error)
	go func() {
		_, err := find(t, s, "hang").Call(t.Context(), json.RawMessage(`{}`), "k")
		done <- err
	}()
	for call(t, s, "echo") == nil { // it reads what came before
	}
	killProcess(t, n)
	if e := agent.AsError(<-done); !e.Retry || e.Fresh {
		t.Errorf("error %#v", e)
	}
	gone(t, n)
}

// TestCancel ends a call that hangs, with its cause; the program goes on.
func TestCancel(t *testing.T) {
	s := start(t, program("plain"))
	n := pid(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(agent.ErrCanceled) })
	if _, err := find(t, s, "hang").Call(ctx, json.RawMessage(`{}`), "k"); !errors.Is(err, agent.ErrCanceled) {
		t.Errorf("error %v", err)
	}
	if pid(t, s) != n {
		t.Error("the program was started again")
	}
}

// TestListChanges: what a server offers now is what its tools are asked for next.
func TestListChanges(t *testing.T) {
	s := start(t, program("plain"))
	before := len(s.Known())
	call(t, s, "grow")
	tools, err := s.Tools(t.Context())
	if err != nil || len(tools) != before+1 {
		t.Fatalf("%d tools, %v", len(tools), err)
	}
	if got := call(t, s, "grown").GetText(); got != "grown" {
		t.Error(got)
	}
}

// TestListOfADeadServer: a server that cannot be started again has the tools that
// were known.
func TestListOfADeadServer(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	link := filepath.Join(t.TempDir(), "program")
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	c := program("plain")
	c.Command, c.Log = []string{link}, zap.New(core)
	s := start(t, c)
	n := len(s.Known())
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	_, _ = find(t, s, "die").Call(t.Context(), json.RawMessage(`{}`), "k")
	tools, err := s.Tools(t.Context())
	if err != nil || len(tools) != n || logs.Len() == 0 {
		t.Errorf("%d tools, %v, log %v", len(tools), err, logs.All())
	}
	_, err = tools[0].Call(t.Context(), json.RawMessage(`{}`), "k")
	if e := agent.AsError(err); !e.Retry || !e.Fresh || !strings.Contains(e.Message, `tool "web" could not be reached`) {
		t.Errorf("error %#v", e)
	}
}

// TestEndlessList: a server whose pages of tools have no end is named as such, however it goes on.
func TestEndlessList(t *testing.T) {
	for which, says := range map[string]string{
		"again": `does not end its list of tools: nextCursor is "again" again after 2 tools`,
		"turns": `does not end its list of tools: nextCursor is "a" again after 3 tools`,
		"more":  `has more than 1000 tools`,
		"empty": `does not end its list of tools: it has nextCursor after 1000 pages with 0 tools`,
	} {
		t.Run(which, func(t *testing.T) {
			_, c := serve(t, func(*testing.T) http.Handler { return pages(which) })
			_, err := mcp.Start(t.Context(), c)
			if e := agent.AsError(err); !strings.Contains(e.Message, says) || !strings.Contains(e.Message, `tool "web"`) {
				t.Errorf("error %v, want %q", err, says)
			}
		})
	}
}

// pages is a server whose list of tools has no end.
func pages(which string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor string }
		}
		_ = json.NewDecoder(req.Body).Decode(&m)
		cursor := m.Params.Cursor
		next := map[string]string{"again": "again", "turns": "a", "more": cursor + "x", "empty": cursor + "x"}[which]
		if which == "turns" && cursor == "a" {
			next = "b"
		}
		tools := fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object"}}`, len(cursor))
		if which == "empty" {
			tools = ""
		}
		result := `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
		switch m.Method {
		case "server/discover":
			w.WriteHeader(http.StatusBadRequest)
			return
		case "tools/list":
			result = fmt.Sprintf(`{"tools":[%s],"nextCursor":%q}`, tools, next)
		case "initialize":
		default:
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	})
}

// TestTimeouts: a server that does not answer in time is named with its limit and the key that raises it.
func TestTimeouts(t *testing.T) {
	c := program("silent")
	c.StartTimeout = 200 * time.Millisecond
	_, err := mcp.Start(t.Context(), c)
	if e := agent.AsError(err); e.Message != `the MCP server of tool "web" did not list its tools within 200ms; check its command or url, or raise timeouts.start` || !e.Retry || !e.Fresh {
		t.Errorf("%v", err)
	}
	c = program("plain")
	c.CallTimeout = 300 * time.Millisecond
	s := start(t, c)
	_, err = find(t, s, "hang").Call(t.Context(), json.RawMessage(`{}`), "k")
	if e := agent.AsError(err); !strings.Contains(e.Message, `hang had neither a result nor progress within 300ms (timeouts.call of tool "web")`) || !e.Retry || e.Fresh {
		t.Errorf("%v", err)
	}
}

// TestProgress: each progress that a server reports extends its call, and the steps above it, over each transport.
func TestProgress(t *testing.T) {
	for name, c := range map[string]func(*testing.T) mcp.Config{
		"stdio": func(*testing.T) mcp.Config { return program("plain") },
		"http":  func(t *testing.T) mcp.Config { _, c := serve(t, real); return c },
	} {
		t.Run(name, func(t *testing.T) {
			c := c(t)
			c.CallTimeout = 700 * time.Millisecond
			s := start(t, c)
			var extended atomic.Int32
			ctx := agent.WithProgress(t.Context(), func() { extended.Add(1) })
			r, err := find(t, s, "steps").Call(ctx, json.RawMessage(`{}`), "k")
			if err != nil || r.GetText() != "six steps" || extended.Load() < 5 {
				t.Errorf("%v %v, extended %d times", r, err, extended.Load())
			}
		})
	}
}

// TestDownAtFirst: a server that does not answer when it is made has no tools, and the error says why; it is asked again
// each time, and has them as soon as it answers.
func TestDownAtFirst(t *testing.T) {
	r, c := serve(t, real)
	h := *r.handler.Load()
	r.handle(http.NotFoundHandler())
	s, err := mcp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if tools, err := s.Tools(t.Context()); err == nil || s.Answered() || !strings.Contains(err.Error(), `tool "web" could not be reached`) {
		t.Errorf("%v, %v", tools, err)
	}
	r.handle(h)
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) == 0 || !s.Answered() {
		t.Errorf("%v, %v", tools, err)
	}
}

// TestSlowAtFirst: a server whose start takes longer than a caller waits goes on starting.
func TestSlowAtFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	c := program("waits")
	c.Env["WAIT_FOR"] = secret.New(file)
	s, err := mcp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Tools(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) == 0 {
		t.Errorf("%v, %v", tools, err)
	}
}

func TestStartFaults(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	for name, c := range map[string]struct {
		config func(*mcp.Config)
		says   string
	}{
		"no name":              {func(c *mcp.Config) { c.Name = "" }, "name is missing"},
		"neither":              {func(c *mcp.Config) { c.Command = nil }, `tool "web" has neither a command nor a url`},
		"both":                 {func(c *mcp.Config) { c.URL = "http://x" }, `tool "web" has a command and a url`},
		"no such program":      {func(c *mcp.Config) { c.Command = []string{"/no/such/program"} }, `tool "web" could not be reached`},
		"a negative timeout":   {func(c *mcp.Config) { c.CallTimeout = -1 }, `tool "web" has a negative timeout`},
		"a program that ends":  {func(c *mcp.Config) { c.Command = []string{"false"} }, `tool "web" ended with exit code 1 before it answered`},
		"a tool that is none":  {func(c *mcp.Config) { c.Allow = []string{"echo", "sing"} }, `tool "web" allows "sing", which its MCP server does not have`},
		"two tools of a name":  {func(c *mcp.Config) { c.Env["MCP_TEST_PROGRAM"] = secret.New("same") }, `"files.read" and "files_read", which a model cannot tell apart as "files_read"`},
		"nobody listens there": {func(c *mcp.Config) { c.Command, c.URL = nil, "http://127.0.0.1:1/mcp" }, `tool "web" could not be reached`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := program("plain")
			c.config(&cfg)
			s, err := mcp.Start(t.Context(), cfg)
			if err == nil || !strings.Contains(agent.AsError(err).Message+err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if s != nil {
				t.Error("there is a server")
			}
		})
	}
	goleak.VerifyNone(t, leaks)
}

// TestStartTakesNoLongerThanItMay: a program that never answers is ended.
func TestStartTakesNoLongerThanItMay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	leaks := goleak.IgnoreCurrent()
	if _, err := mcp.Start(ctx, program("silent")); err == nil {
		t.Error("it started")
	}
	goleak.VerifyNone(t, leaks)
}

// TestServerThatCrashes: the error names the exit code, and for the log the last lines
// that the program wrote.
func TestServerThatCrashes(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	_, err := mcp.Start(t.Context(), program("crash"))
	const start = `the MCP server of tool "web" ended with exit code 7 before it answered; check its command`
	if e := agent.AsError(err); e.Message != start || !strings.HasSuffix(err.Error(), "stderr: reading config | cannot open data.db: permission denied") {
		t.Errorf("at its start: %v\nwant %s", err, start)
	}
	s, err := mcp.Start(t.Context(), program("plain"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = find(t, s, "die").Call(t.Context(), json.RawMessage(`{}`), "k")
	const call = `the MCP server of tool "web" ended with exit code 3 while die was called; it is unknown whether the call took effect`
	if e := agent.AsError(err); e.Message != call || !e.Retry || e.Fresh || !strings.HasSuffix(err.Error(), "stderr: the program starts | out of paper") {
		t.Errorf("in a call: %v\nwant %s", err, call)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, leaks)
}
