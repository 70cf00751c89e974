//go:build linux

package main_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

var update = flag.Bool("update", false, "record the histories that are replayed")

func TestMain(m *testing.M) { pgtest.Main(cleaning{m}) }

// cleaning removes the programs after the tests.
type cleaning struct{ *testing.M }

func (c cleaning) Run() int {
	code := c.M.Run()
	http.DefaultClient.CloseIdleConnections()
	if p, err := programs(); err == nil {
		_ = os.RemoveAll(p.dir)
	}
	return code
}

// built are the programs of the tests.
type built struct{ dir, temporal, program, plain string }

// programs builds the programs once a process.
var programs = sync.OnceValues(func() (b built, err error) {
	if b.dir, err = os.MkdirTemp("", "temporal"); err != nil {
		return b, err
	}
	b.temporal, b.program, b.plain = filepath.Join(b.dir, "temporal"), filepath.Join(b.dir, "team-server-temporal"), filepath.Join(b.dir, "team-server")
	for _, p := range []struct{ dir, pkg, out string }{{"../../tests/temporal", ".", b.temporal}, {".", ".", b.program}, {"../..", "./cmd/team-server", b.plain}} {
		cmd := exec.CommandContext(context.Background(), "go", "build", "-o", p.out, p.pkg)
		cmd.Dir = p.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return b, fmt.Errorf("building %s: %w\n%s", p.out, err, out)
		}
	}
	return b, nil
})

const (
	// lease is that of the servers under test.
	lease = 3 * time.Second
	// patience bounds every wait.
	patience = time.Minute
)

// agents are what the servers under test serve besides the demo.
const agents = `
version: v1
agents:
  echo: {scripted: {steps: [{echo: true}]}}
  slow: {scripted: {steps: [{delay_ms: 4000}, {text: done}]}}
  long: {scripted: {steps: [{delay_ms: 600000}, {text: done}]}}
  asks: {scripted: {steps: [{ask: "Which one?"}, {text: "{{answer}}"}]}}
`

// stack is a database, a Temporal and servers.
type stack struct {
	testing.TB
	built
	setup
	store, file string // of the servers
	temporal    *child.Server
	door        *door // before Temporal
	namespace   string
	client      client.Client // of Temporal itself
	env         []string      // further variables of the servers
}

// setup is what a test wants of a stack.
type setup struct {
	yaml     string   // agents and teams
	server   string   // lines below server:, each indented
	temporal []string // arguments of Temporal, which is in memory without them
	store    string   // URL of an empty database; that of the tests if not given
}

// start starts Temporal in memory. The file of the servers has the agents and the teams of yaml.
func start(t testing.TB, yaml string) *stack {
	t.Helper()
	return setup{yaml: yaml}.start(t)
}

func (c setup) start(t testing.TB) *stack {
	t.Helper()
	b, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{TB: t, built: b, setup: c, store: c.store}
	if s.store == "" {
		s.store = pgtest.URL(t)
	}
	s.startTemporal()
	t.Cleanup(func() { s.temporal.End(syscall.SIGKILL) })
	address, namespace, _ := strings.Cut(s.temporal.Ready, " ")
	s.namespace = namespace
	s.door = newDoor(t, address)
	if s.client, err = client.Dial(client.Options{HostPort: address, Namespace: namespace, Logger: quiet{}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Close)
	s.file = s.fileFor(s.door.address(), s.store)
	return s
}

// startTemporal starts Temporal.
func (s *stack) startTemporal() {
	s.Helper()
	p, err := child.Serve(exec.CommandContext(context.Background(), s.built.temporal, s.setup.temporal...))
	if err != nil {
		s.Fatal(err)
	}
	s.temporal = p
}

// fileFor writes a file for servers that find Temporal and the store elsewhere.
func (s *stack) fileFor(temporal, store string) string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "team.yaml")
	text := fmt.Sprintf("%s\nserver:\n%s\n  store: %q\n  engine: {temporal: {address: %q, namespace: %s, ui: https://temporal.example/}}\n", s.yaml, s.server, store, temporal, s.namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return file
}

// server is a server under test.
type server struct {
	*child.Server
	*rig.GRPC
	ctx    context.Context
	target rig.Target
}

// serve starts a server.
func (s *stack) serve(name string, flags ...string) *server {
	s.Helper()
	return s.serveWith(name, s.file, nil, flags...)
}

// serveWith starts a server with a file. log, if it is not nil, gets its log.
func (s *stack) serveWith(name, file string, log io.Writer, flags ...string) *server {
	s.Helper()
	flags = append([]string{"serve", "-c", file, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--lease", lease.String(), "--replica", name, "--log-level", "warn"}, flags...)
	cmd := exec.CommandContext(context.Background(), s.program, flags...)
	cmd.Env = append(append(os.Environ(), "OTEL_SERVICE_NAME="+name), s.env...)
	cmd.Stderr = log
	p, err := child.Serve(cmd)
	if err != nil {
		s.Fatal(err)
	}
	return s.connect(name, p)
}

// connect returns a server that has been started, and ends it after the test.
func (s *stack) connect(name string, p *child.Server) *server {
	s.Helper()
	r := &server{Server: p, ctx: s.Context()}
	var http string
	if _, err := fmt.Sscanf(p.Ready, "http=%s grpc=%s", &http, &r.target.GRPC); err != nil {
		s.Fatal(p.Ready, err)
	}
	r.target.HTTP = "http://" + http
	var err error
	if r.GRPC, err = rig.NewGRPC(r.target); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = r.Close()
		stopped := time.Now()
		p.End(syscall.SIGTERM)
		if took := time.Since(stopped); took > 10*time.Second {
			s.Errorf("%s took %v to stop", name, took)
		}
		if s.Failed() {
			s.Logf("%s:\n%s", name, p.Log())
		}
	})
	return r
}

// send sends a message, and returns the task when it waits for people or has ended, or at once.
func (r *server) send(t testing.TB, to, text string, atOnce bool) *a2av1.Task {
	t.Helper()
	resp, err := r.Send(r.ctx, &a2av1.SendMessageRequest{
		Tenant: to, Message: agent.UserMessage(uuid.NewString(), text), Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: atOnce},
	})
	if err != nil {
		t.Fatalf("send to %s: %v", to, err)
	}
	return resp.GetTask()
}

// reply sends a message to a task.
func (r *server) reply(t testing.TB, id, text string) {
	t.Helper()
	m := agent.UserMessage(uuid.NewString(), text)
	m.TaskId = id
	if _, err := r.Send(r.ctx, &a2av1.SendMessageRequest{Message: m, Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: true}}); err != nil {
		t.Fatalf("reply to %s: %v", id, err)
	}
}

// await waits until a task is in a state.
func (r *server) await(t testing.TB, id string, want a2av1.TaskState) *a2av1.Task {
	t.Helper()
	for until := time.Now().Add(patience); ; {
		task, err := r.Get(r.ctx, &a2av1.GetTaskRequest{Id: id})
		state := task.GetStatus().GetState()
		if err == nil && state == want {
			return task
		}
		if taskstate.Final(state) || time.Now().After(until) {
			t.Fatalf("task %s is %v, %v, want %v", id, state, err, want)
		}
		_ = agent.Sleep(r.ctx, 20*time.Millisecond)
	}
}

// number returns the number that a query of the database selects.
func (s *stack) number(query string, args ...any) (n int64) {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.store)
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close(s.Context())
	if err := conn.QueryRow(s.Context(), query, args...).Scan(&n); err != nil {
		s.Fatal(query, err)
	}
	return n
}

// events returns the number of events of the last workflow of a task.
func (s *stack) events(id string) (n int) {
	s.Helper()
	for list := s.client.GetWorkflowHistory(s.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); list.HasNext(); n++ {
		if _, err := list.Next(); err != nil {
			s.Fatal(err)
		}
	}
	return n
}

// record writes the history of a workflow, the last one of its id if run is "", for the test that replays it, if -update
// is given.
func (s *stack) record(id, run, name string) {
	s.Helper()
	if !*update {
		return
	}
	h := &history.History{}
	for list := s.client.GetWorkflowHistory(s.Context(), id, run, true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); list.HasNext(); {
		e, err := list.Next()
		if err != nil {
			s.Fatal(err)
		}
		h.Events = append(h.Events, e)
	}
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(h)
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("internal", "temporal", "testdata", name+".json"), append(text, '\n'), 0o600); err != nil {
		s.Fatal(err)
	}
}

// door passes connections on to an address, unless it is closed or holds what is sent.
type door struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	shut  bool       // guarded by mu
	conns []net.Conn // guarded by mu

	there, back sync.RWMutex // locked, they hold what is sent to the address, and back
}

// hold holds what is sent, until the door lets go.
func (d *door) hold() {
	d.there.Lock()
	d.back.Lock()
}

func (d *door) letGo() {
	d.there.Unlock()
	d.back.Unlock()
}

func newDoor(t testing.TB, to string) *door {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{listener: l, to: to}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { d.pass(in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.close()
		wg.Wait()
	})
	return d
}

func (d *door) address() string { return d.listener.Addr().String() }

// pass copies between a connection and the address until one of both ends.
func (d *door) pass(in net.Conn) {
	defer in.Close()
	out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", d.to)
	if err != nil {
		return
	}
	defer out.Close()
	d.mu.Lock()
	if d.shut {
		d.mu.Unlock()
		return
	}
	d.conns = append(d.conns, in, out)
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, way := range []struct {
		to, from net.Conn
		held     *sync.RWMutex
	}{{out, in, &d.there}, {in, out, &d.back}} {
		wg.Go(func() {
			copyUnless(way.held, way.to, way.from)
			_, _ = in.Close(), out.Close()
		})
	}
	wg.Wait()
}

// copyUnless copies what is sent while it is not held.
func copyUnless(held *sync.RWMutex, to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		held.RLock()
		if n > 0 && err == nil {
			_, err = to.Write(buf[:n])
		}
		held.RUnlock()
		if err != nil {
			return
		}
	}
}

// close ends all connections and accepts no new ones until open is called.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

func (d *door) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = false
}

// quiet logs nothing.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

const (
	completed = a2av1.TaskState_TASK_STATE_COMPLETED
	canceled  = a2av1.TaskState_TASK_STATE_CANCELED
	waiting   = a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
	working   = a2av1.TaskState_TASK_STATE_WORKING
)

// demo returns the agents and teams of the demo, whose models take so many times as long.
func demo(t *testing.T, times int) string {
	t.Helper()
	yaml, err := os.ReadFile("../../examples/demo/team.yaml")
	if err != nil {
		t.Fatal(err)
	}
	answers, err := os.ReadFile("../../examples/demo/team.script.yaml")
	if err != nil {
		t.Fatal(err)
	}
	slower := regexp.MustCompile(`delay_ms: \d+`).ReplaceAllStringFunc(string(answers), func(delay string) string {
		ms, _ := strconv.Atoi(strings.TrimPrefix(delay, "delay_ms: "))
		return fmt.Sprintf("delay_ms: %d", times*ms)
	})
	script := filepath.Join(t.TempDir(), "team.script.yaml")
	if err := os.WriteFile(script, []byte(slower), 0o600); err != nil {
		t.Fatal(err)
	}
	agents, _, _ := strings.Cut(string(yaml), "\nserver:\n")
	return strings.ReplaceAll(agents, "team.script.yaml", script) + "\n"
}

// TestTemporal_Demo: the teams of the demo run on Temporal, each with a history of one drive.
func TestTemporal_Demo(t *testing.T) {
	t.Parallel()
	s := start(t, demo(t, 1))
	r := s.serve("a")
	for team, want := range map[string]string{
		"newsroom": "First version.", "release": "Published.", "company": "tides", "panel": "nothing against it", "reception": "tides",
	} {
		task := r.send(t, team, "Write about tides", false)
		var reply strings.Builder
		for _, a := range task.GetArtifacts() {
			for _, p := range a.GetParts() {
				reply.WriteString(p.GetText())
			}
		}
		if task.GetStatus().GetState() != completed || !strings.Contains(reply.String(), want) {
			t.Errorf("%s: %v, %q, want %q", team, task.GetStatus().GetState(), reply.String(), want)
		}
		if n := s.events(task.GetId()); n > 12 {
			t.Errorf("%s has %d events, want 12 at most", team, n)
		}
	}
}

// TestTemporal_DeathOfAServer: what a killed server has driven, and what waits for an answer, goes on at another one.
func TestTemporal_DeathOfAServer(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	first := s.serve("a")
	asks := first.send(t, "asks", "x", false).GetId()
	var slow []string
	for range 8 {
		slow = append(slow, first.send(t, "slow", "x", true).GetId())
	}
	first.await(t, slow[7], working)
	second := s.serve("b")
	first.End(syscall.SIGKILL)
	killed := time.Now()
	second.reply(t, asks, "that one")
	second.await(t, asks, completed)
	t.Logf("the answer took %v", time.Since(killed))
	s.record(asks, "", "question")
	for _, id := range slow {
		second.await(t, id, completed)
	}
	t.Logf("runs that were driven took %v", time.Since(killed))
	if n := s.number(`SELECT count(*) FROM run WHERE epoch > 2`); n > 0 {
		t.Errorf("%d runs were claimed more than twice", n)
	}
}

// TestTemporal_FrozenServer: a server that is frozen keeps the tasks that Temporal gives it. What it drove, and what comes
// then, goes on at another one within three leases, and it does nothing more for them when it goes on.
func TestTemporal_FrozenServer(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	a, b := s.serve("a"), s.serve("b")
	var ids []string
	for range 20 {
		ids = append(ids, b.send(t, "slow", "x", true).GetId())
	}
	for _, id := range ids {
		b.await(t, id, working)
	}
	_ = a.Cmd.Process.Signal(syscall.SIGSTOP)
	frozen := time.Now()
	for range 20 {
		ids = append(ids, b.send(t, "echo", "x", true).GetId())
	}
	for _, id := range ids {
		b.await(t, id, completed)
	}
	took := time.Since(frozen)
	t.Logf("all runs had ended %v after the freeze", took)
	if most := 3*lease + 4*time.Second + 5*time.Second; took > most { // a drive takes 4 s; the machine may be busy
		t.Errorf("more than %v", most)
	}
	claims := s.number(`SELECT sum(epoch) FROM run`)
	_ = a.Cmd.Process.Signal(syscall.SIGCONT)
	_ = agent.Sleep(t.Context(), lease)
	if n := s.number(`SELECT sum(epoch) FROM run`); n != claims {
		t.Errorf("%d claims after the server went on", n-claims)
	}
}

// TestTemporal_Cancel: a cancel ends a run that is driven by another server, and one that waits.
func TestTemporal_Cancel(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	a, b := s.serve("a"), s.serve("b")
	asks, long := a.send(t, "asks", "x", false).GetId(), a.send(t, "long", "x", true).GetId()
	a.await(t, long, working)
	for _, id := range []string{asks, long} {
		for _, r := range []*server{a, b} {
			began := time.Now()
			if task, err := r.Cancel(r.ctx, &a2av1.CancelTaskRequest{Id: id}); err != nil || task.GetStatus().GetState() != canceled {
				t.Errorf("cancel: %v, %v", task.GetStatus().GetState(), err)
			}
			t.Logf("the cancel took %v", time.Since(began))
		}
	}
}

// TestTemporal_FollowUps: a run that is driven hears of messages by itself, so its history does not grow with them.
func TestTemporal_FollowUps(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	r := s.serve("a")
	id := r.send(t, "long", "x", true).GetId()
	r.await(t, id, working)
	for range 200 {
		r.reply(t, id, "more")
	}
	if n := s.events(id); n > 20 {
		t.Errorf("%d events after 200 messages to a run that is driven", n)
	}
	if _, err := r.Cancel(r.ctx, &a2av1.CancelTaskRequest{Id: id}); err != nil {
		t.Error(err)
	}
}

// TestTemporal_Away: while Temporal hangs, while it gets what is sent and nothing comes back, and while it refuses
// connections, runs that are driven go on under the same claim, and what was acknowledged ends, once.
func TestTemporal_Away(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	r := s.serve("a")
	r.send(t, "echo", "x", false)
	for name, outage := range map[string][2]func(){
		"hangs":        {s.door.hold, s.door.letGo},
		"is not heard": {s.door.back.Lock, s.door.back.Unlock},
		"refuses":      {s.door.close, s.door.open},
	} {
		var ids []string
		for range many(5, 50) {
			ids = append(ids, r.send(t, "slow", "x", true).GetId())
		}
		r.await(t, ids[len(ids)-1], working)
		outage[0]()
		for range 20 {
			ids = append(ids, r.send(t, "echo", "x", true).GetId())
		}
		_ = agent.Sleep(t.Context(), 3*lease)
		outage[1]()
		back := time.Now()
		for _, id := range ids {
			r.await(t, id, completed)
		}
		t.Logf("Temporal %s for %v; all runs had ended %v later", name, 3*lease, time.Since(back))
	}
	if n := s.number(`SELECT count(*) FROM run WHERE epoch <> 1`); n > 0 {
		t.Errorf("%d runs were claimed more than once", n)
	}
}

// TestTemporal_Forgets: a workflow that people terminate does not end its run.
func TestTemporal_Forgets(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	r := s.serve("a")
	asks, slow := r.send(t, "asks", "x", false).GetId(), r.send(t, "slow", "x", true).GetId()
	r.await(t, slow, working)
	for _, id := range []string{asks, slow} {
		if err := s.client.TerminateWorkflow(t.Context(), id, "", "test"); err != nil {
			t.Fatal(err)
		}
	}
	r.reply(t, asks, "that one")
	r.await(t, asks, completed)
	r.await(t, slow, completed)
}

// TestTemporal_Doctor: doctor says what it finds at Temporal, and what is missing.
func TestTemporal_Doctor(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	s.serve("a")
	doctor := func(program string) string {
		out, _ := exec.CommandContext(t.Context(), program, "doctor", s.file).CombinedOutput()
		return string(out)
	}
	for program, want := range map[string]string{s.program: "keeps ended workflows for", s.plain: "team-server-temporal, which is in the same release"} {
		if out := doctor(program); !strings.Contains(out, want) {
			t.Errorf("%s says not %q:\n%s", program, want, out)
		}
	}
	s.door.close()
	if out := doctor(s.program); !strings.Contains(out, "start Temporal, or correct server.engine.temporal") {
		t.Errorf("without Temporal:\n%s", out)
	}
}

// servePlain starts a server of the program without Temporal, whose file has no engine.
func (s *stack) servePlain(name string) (*server, error) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte(s.yaml), 0o600); err != nil {
		s.Fatal(err)
	}
	p, err := child.Serve(exec.CommandContext(context.Background(), s.plain, "serve", "-c", file, "--store", s.store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--lease", lease.String(), "--replica", name, "--log-level", "warn"))
	if err != nil {
		return nil, err
	}
	return s.connect(name, p), nil
}

// move moves the engine of the database.
func (s *stack) move(to string) (string, error) {
	out, err := exec.CommandContext(s.Context(), s.plain, "engine", "move", "--to", to, "--store", s.store).CombinedOutput()
	return string(out), err
}

// TestTemporal_Move: a database has one engine, until it is moved. Runs that wait, and that were driven by a server that
// was killed or stopped, go on with the other engine, there and back.
func TestTemporal_Move(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	first := s.serve("first")
	begin := func(r *server) (asks, slow []string) {
		for range 20 {
			asks = append(asks, r.send(t, "asks", "x", false).GetId())
			slow = append(slow, r.send(t, "slow", "x", true).GetId())
		}
		r.await(t, slow[len(slow)-1], working)
		return asks, slow
	}
	end := func(r *server, asks []string, others ...string) {
		for _, id := range asks {
			r.reply(t, id, "that one")
		}
		for _, id := range append(others, asks...) {
			r.await(t, id, completed)
		}
	}
	asks, slow := begin(first)
	if _, err := s.servePlain("other"); err == nil || !strings.Contains(err.Error(), "team-server engine move --to store") {
		t.Errorf("a server of another engine: %v", err)
	}
	if out, err := s.move("store"); err == nil || !strings.Contains(out, "stop them") {
		t.Errorf("a move while a server runs: %v\n%s", err, out)
	}
	first.End(syscall.SIGKILL)
	_ = agent.Sleep(t.Context(), lease+time.Second)
	if out, err := s.move("store"); err != nil {
		t.Fatalf("a move: %v\n%s", err, out)
	}
	second, err := s.servePlain("second")
	if err != nil {
		t.Fatal(err)
	}
	end(second, asks[:10], slow...)
	more, slow := begin(second)
	second.End(syscall.SIGTERM)
	if out, err := s.move("temporal"); err != nil {
		t.Fatalf("a move back: %v\n%s", err, out)
	}
	third := s.serve("third")
	end(third, append(asks[10:], more...), slow...)
	if n := s.number(`SELECT count(*) FROM run WHERE ended IS NULL OR epoch > 3`); n > 0 {
		t.Errorf("%d runs have not ended, or were claimed more than three times", n)
	}
}

// TestTemporal_NotFromTheStart: a server whose Temporal was never reachable acknowledges messages and drives them
// by itself after two leases.
func TestTemporal_NotFromTheStart(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	s.door.close()
	r := s.serve("a")
	began := time.Now()
	id := r.send(t, "echo", "x", true).GetId()
	r.await(t, id, completed)
	t.Logf("without Temporal a run took %v", time.Since(began))
	if took := time.Since(began); took < lease {
		t.Error("driven before its time:", took)
	}
}
