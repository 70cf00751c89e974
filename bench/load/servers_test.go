//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentteams/team-server/bench/measure"
	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const repository = "../.."

// server is a whole server that is measured.
type server struct {
	name, store string
	old         bool // speaks A2A 0.3 only
	// prepare builds or installs it, and returns how it is started on a fresh store. The error
	// says why it cannot be measured here.
	prepare func(testing.TB) (func(testing.TB) *exec.Cmd, error)
}

// servers returns all of them. The first is ours, and the one named yardstick is that of the
// official SDK for Go.
func servers() []server {
	return []server{
		{name: own, store: "memory", prepare: ours(places["memory"])},
		{name: own, store: "sqlite", prepare: ours(places["sqlite"])},
		{name: own, store: "postgres", prepare: ours(places["postgres"])},
		{name: yardstick, store: "memory", prepare: goServer("a2ago")},
		{name: "Python SDK 1.3.0", store: "memory", prepare: python("pythonsdk", "memory")},
		{name: "Python SDK 1.3.0", store: "sqlite", prepare: python("pythonsdk", "sqlite")},
		{name: "adk-go 2.2.0", store: "memory", prepare: goServer("adkgo")},
		{name: "trpc-agent-go 1.11.2", store: "none", old: true, prepare: goServer("trpc")},
		{name: "LangGraph API 0.16.7", store: "memory", prepare: python("langgraph")},
		{name: "Agno 3.1.10", store: "none", old: true, prepare: python("agno")},
	}
}

// places return the URL of an empty store, by kind.
var places = map[string]func(testing.TB) string{
	"memory":   func(testing.TB) string { return "memory:" },
	"sqlite":   func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "team.db") },
	"postgres": func(t testing.TB) string { return pgtest.URL(t) },
}

const (
	own       = "team-server"
	yardstick = "a2a-go 2.4.0"
)

// config is an agent that echoes, with the defaults of the server.
const config = "version: v1\nagents:\n  echo: {scripted: {steps: [{echo: true}]}}\n"

// ours prepares our server with stores whose URLs place returns.
func ours(place func(testing.TB) string) func(testing.TB) (func(testing.TB) *exec.Cmd, error) {
	return func(t testing.TB) (func(testing.TB) *exec.Cmd, error) {
		return built(child.Build(t, repository, "./cmd/team-server"), place)(t)
	}
}

// built prepares a program that is our server, or was.
func built(program string, place func(testing.TB) string) func(testing.TB) (func(testing.TB) *exec.Cmd, error) {
	return func(t testing.TB) (func(testing.TB) *exec.Cmd, error) {
		file := filepath.Join(t.TempDir(), "team.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		return func(t testing.TB) *exec.Cmd {
			return command(program, "serve", "-c", file, "--http=127.0.0.1:0", "--grpc=off", "--log-level=warn", "--store="+place(t))
		}, nil
	}
}

// command returns a program that is ended by a signal, not by a context.
func command(program string, args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), program, args...)
}

// goServer prepares a server of the module bench/servers.
func goServer(name string) func(testing.TB) (func(testing.TB) *exec.Cmd, error) {
	return func(t testing.TB) (func(testing.TB) *exec.Cmd, error) {
		program := child.Build(t, "../servers", "./"+name)
		return func(testing.TB) *exec.Cmd { return command(program) }, nil
	}
}

// requirements returns the file with the pinned packages of a server in Python. Those of Agno are the
// ones that the tests with other frameworks use.
func requirements(name string) string {
	if name == "agno" {
		return repository + "/tests/night/agno/requirements.txt"
	}
	return "../servers/" + name + "/requirements.txt"
}

// python prepares a server in Python, which gets the arguments and a folder of its own.
func python(name string, args ...string) func(testing.TB) (func(testing.TB) *exec.Cmd, error) {
	return func(t testing.TB) (func(testing.TB) *exec.Cmd, error) {
		interpreter, err := install(t.Context(), name)
		if err != nil {
			return nil, err
		}
		return func(t testing.TB) *exec.Cmd {
			return command(interpreter, slices.Concat([]string{"../servers/" + name + "/server.py"}, args, []string{t.TempDir()})...)
		}, nil
	}
}

// install installs the packages of a server in Python into bin/servers, unless they are there. All are
// pinned with their hashes.
func install(ctx context.Context, name string) (interpreter string, err error) {
	system, err := exec.LookPath("python3")
	if err != nil {
		return "", errors.New("python3 is not installed")
	}
	pins := requirements(name)
	lock, err := os.ReadFile(pins)
	if err != nil {
		return "", err
	}
	env, err := filepath.Abs(filepath.Join(repository, "bin", "servers", name))
	if err != nil {
		return "", err
	}
	interpreter = filepath.Join(env, "bin", "python")
	done := filepath.Join(env, "installed.txt")
	if have, err := os.ReadFile(done); err == nil && bytes.Equal(have, lock) {
		return interpreter, nil
	}
	for _, args := range [][]string{
		{system, "-m", "venv", "--clear", env},
		{interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", pins},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("installing the packages: %w: %s", err, lastLine(out))
		}
	}
	return interpreter, os.WriteFile(done, lock, 0o600)
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// contest measures servers in turn.
type contest struct {
	callers []int
	load    load // of one server in one round; url and callers are set for each
	warm    int  // calls before that
	rounds  int
}

// entrant is a server in a contest.
type entrant struct {
	server
	start   func(testing.TB) *exec.Cmd
	figures map[int][]measure.Figures // by callers; Bytes is the peak of the resident memory
	out     error                     // why it is not measured, or not to the end
}

// run starts each server anew in each round, sends it the load, and stops it.
func (c contest) run(t testing.TB, all []server) []*entrant {
	t.Helper()
	entrants := make([]*entrant, len(all))
	for i, s := range all {
		e := &entrant{server: s, figures: map[int][]measure.Figures{}}
		e.start, e.out = s.prepare(t)
		entrants[i] = e
	}
	for range c.rounds {
		for _, e := range entrants {
			if e.out == nil {
				e.out = c.round(t, e)
			}
		}
	}
	return entrants
}

// round measures one server once with each number of callers.
func (c contest) round(t testing.TB, e *entrant) error {
	s, err := child.Serve(e.start(t))
	if err != nil {
		return err
	}
	defer s.End(syscall.SIGTERM)
	for _, n := range c.callers {
		l := c.load
		l.url, l.callers, l.old = address(s.Ready), n, e.old
		warm := l
		warm.calls = c.warm
		if _, err := warm.run(t.Context()); err != nil {
			return err
		}
		before := descendantsCPU()
		r, err := l.run(t.Context())
		if err != nil {
			return err
		}
		cpu := descendantsCPU() - before
		e.figures[n] = append(e.figures[n], measure.Figures{
			Rate: r.rate(), P50: r.p50, P99: r.p99, CPU: cpu / time.Duration(r.calls), Bytes: peakMemory(s.Cmd.Process.Pid),
		})
	}
	return nil
}

// address returns the URL for JSON-RPC in a ready line: ours has both listeners.
func address(ready string) string {
	for field := range strings.FieldsSeq(ready) {
		if at, ok := strings.CutPrefix(field, "http="); ok {
			return "http://" + at + "/rpc"
		}
	}
	return ready
}

// table returns the results.
func (c contest) table(entrants []*entrant) *measure.Table {
	t := &measure.Table{
		Title: fmt.Sprintf("whole servers, JSON-RPC SendMessage of %d characters, a task that completes", messageSize),
		Head:  "callers\tserver\tstore\ttasks/s\tp50\tp99\tcpu/task\ttasks/s of a core\tpeak RSS\txa2a-go",
		Once:  c.rounds == 1,
		Goals: []string{
			"goal servers: callers=64, server=" + own + ", store=postgres: xa2a-go >= 1",
			"goal servers: callers=64, server=" + own + ", store=sqlite: tasks/s >= 3,000",
			"cpu/task: of the server and its database, without the load; its inverse is what one core does. peak RSS: of the server, without the database",
			"a2a-go, adk-go and the Python SDK in memory lose their tasks with the process, and so does LangGraph's development server if it is killed",
			"trpc-agent-go answers with a message over A2A 0.3, and Agno without its database with a task over A2A 0.3; both keep no task",
		},
	}
	var base *entrant
	for _, e := range entrants {
		if e.name == yardstick {
			base = e
		}
	}
	for _, n := range c.callers {
		for _, e := range entrants {
			f := e.figures[n]
			if len(f) == 0 {
				t.Add("%d\t%s\t%s\t-\t-\t-\t-\t-\t-\t-", n, e.name, e.store)
				continue
			}
			ratio := "-"
			if base != nil && len(base.figures[n]) > 0 {
				both := min(len(f), len(base.figures[n])) // one of them may have ended early
				ratio = fmt.Sprintf("%.2f", measure.Ratio(f[:both], base.figures[n][:both], rate))
			}
			cpu := measure.Median(f, measure.CPU)
			t.Add("%d\t%s\t%s\t%.0f\t%s\t%s\t%s\t%.0f\t%.1f MB\t%s", n, e.name, e.store, measure.Median(f, rate),
				measure.Short(measure.Median(f, func(f measure.Figures) float64 { return float64(f.P50) })),
				measure.Short(measure.Median(f, func(f measure.Figures) float64 { return float64(f.P99) })),
				measure.Short(cpu), float64(time.Second)/max(cpu, 1), measure.Median(f, measure.Bytes)/1e6, ratio)
		}
	}
	for _, e := range entrants {
		if e.out != nil {
			t.Goals = append(t.Goals, fmt.Sprintf("%s, %s: its measurement ended: %s", e.name, e.store, brief(e.out)))
		}
	}
	return t
}

// brief returns an error as one line of at most 200 characters.
func brief(err error) string {
	text := []rune(strings.Join(strings.Fields(err.Error()), " "))
	if len(text) > 200 {
		return string(text[:200]) + "…"
	}
	return string(text)
}

func rate(f measure.Figures) float64 { return f.Rate }

// BenchmarkServers sends the same message to whole servers, each in a process of its own: this one
// on every store, and those of other projects.
func BenchmarkServers(b *testing.B) {
	w := measure.BudgetOf(b)
	c := contest{callers: []int{1, 64}, load: load{time: cmp.Or(w.Time, maxTime), calls: 64 * w.Ops}, warm: 50, rounds: measure.Rounds}
	all := servers()
	if testing.Short() {
		all, c.rounds = short(all), 1
	}
	entrants := c.run(b, all)
	b.ReportMetric(0, "ns/op") // of the whole contest: says nothing
	c.table(entrants).Print()
}

// short returns those that need nothing but Go.
func short(all []server) []server {
	var some []server
	for _, s := range all {
		if s.store == "memory" && (s.name == own || s.name == yardstick) {
			some = append(some, s)
		}
	}
	return some
}

// TestA_27_ServersSideBySide measures our server and that of the official Go SDK with few calls.
func TestA_27_ServersSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two servers; run without -short")
	}
	c := contest{callers: []int{1, 8}, load: load{time: time.Minute, calls: 40}, warm: 5, rounds: 1}
	entrants := c.run(t, short(servers()))
	if len(entrants) != 2 {
		t.Fatalf("%d servers, want 2", len(entrants))
	}
	for _, e := range entrants {
		if e.out != nil {
			t.Errorf("%s: %v", e.name, e.out)
			continue
		}
		for _, n := range c.callers {
			f := e.figures[n]
			if len(f) != 1 || f[0].Rate <= 0 || f[0].P50 <= 0 || f[0].P99 < f[0].P50 || f[0].Bytes < 1<<20 {
				t.Errorf("%s with %d callers: %+v", e.name, n, f)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "tables")
	t.Setenv(measure.TablesVariable, file)
	c.table(entrants).Print()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`["1","team-server","memory",`, `["8","team-server","memory",`, `["1","a2a-go 2.4.0","memory",`, `["8","a2a-go 2.4.0","memory",`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("there is no row %s in\n%s", want, b)
		}
	}
}

// TestA_27_AWrongServerIsOut notes why a server is not measured, and measures the others.
func TestA_27_AWrongServerIsOut(t *testing.T) {
	url, _ := serveAnswers(t, func(int64, string) string {
		return `{"result":{"task":{"status":{"state":"TASK_STATE_FAILED"}}}}`
	})
	wrong := server{name: "wrong", store: "memory", prepare: func(testing.TB) (func(testing.TB) *exec.Cmd, error) {
		return func(testing.TB) *exec.Cmd { return command("sh", "-c", "echo ready "+url+"; exec sleep 60") }, nil
	}}
	missing := server{name: "missing", store: "memory", prepare: func(testing.TB) (func(testing.TB) *exec.Cmd, error) {
		return nil, errors.New("python3 is not installed")
	}}
	entrants := contest{callers: []int{1}, load: load{time: time.Minute, calls: 2}, warm: 1, rounds: 2}.run(t, []server{wrong, missing})
	for i, want := range []string{`the task is "TASK_STATE_FAILED"`, "python3 is not installed"} {
		if err := entrants[i].out; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", entrants[i].name, err, want)
		}
	}
}
