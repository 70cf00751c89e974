package serve_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
	"github.com/agentteams/team-server/tests/rig"
)

// site is a server with a file that is reloaded, in this process.
type site struct {
	*serve.Running
	t      *testing.T
	dir    string
	signal chan os.Signal
	level  zap.AtomicLevel
	log    *observer.ObservedLogs
	taken  int // lines of log that until has passed
	stop   func()
}

// newSite serves a file until the test ends.
func newSite(t *testing.T, text string, watch bool) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), signal: make(chan os.Signal, 1), level: zap.NewAtomicLevel()}
	return s.start(text, watch)
}

// start serves a file in the folder of the site.
func (s *site) start(text string, watch bool) *site {
	s.t.Helper()
	var core zapcore.Core
	core, s.log = observer.New(&s.level)
	s.write("team.yaml", text)
	source := &serve.Source{Path: s.dir}
	def, err := source.Load()
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.Running, err = serve.Start(ctx, def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.New(core), Level: &s.level})
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, serve.Reloads{Source: source, Signal: s.signal, Watch: watch}) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.stop)
	return s
}

// write replaces a file in the folder of the site at once.
func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for the next line of the log with a message, and returns its text.
func (s *site) until(message string) string {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for i, e := range s.log.All() {
			if i >= s.taken && strings.HasPrefix(e.Message, message) {
				s.taken = i + 1
				return e.Message + " " + fmt.Sprint(e.ContextMap())
			}
		}
	}
	s.t.Fatalf("the log has no line %q; it has %v", message, s.log.All())
	return ""
}

// reload makes a text the file, sends the signal, and waits until the file is served.
func (s *site) reload(text string) string {
	s.t.Helper()
	s.write("team.yaml", text)
	s.signal <- syscall.SIGHUP
	return s.until("configuration reloaded")
}

// target returns the server with a key.
func (s *site) target(key string) rig.Target {
	return rig.Target{GRPC: s.GRPC, HTTP: "http://" + s.HTTP, Key: key}
}

// hashOf returns the SHA-256 of a key in hex.
func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// send sends a message and returns the task, or the reason of the error.
func send(t *testing.T, c rig.Client, tenant, id string) (*a2av1.Task, string) {
	t.Helper()
	resp, err := c.Send(t.Context(), rig.Text(tenant, id, "tides"))
	if err != nil {
		f := rig.Fault(err)
		if f == nil {
			return nil, err.Error()
		}
		return nil, f.Reason
	}
	return resp.GetTask(), ""
}

// desk is a file with a team that has one member, and settings of the server.
func desk(answer, server string) string {
	return fmt.Sprintf(`version: v1
agents: {parrot: {scripted: {steps: [{text: %q}]}}}
teams: {desk: {members: [{agent: parrot}], supervisor: {rules: [{id: one, when: "turn == 1", next: [parrot]}, {id: end, when: "true", finish: parrot}]}}}
server: %s
`, answer, server)
}

// TestReloadUnderLoad: while about a hundred requests a second come in over three bindings, the file is
// reloaded many times, a key is rotated by it, and the certificate is replaced: no request fails but those with the
// key that the file has no more.
func TestReloadUnderLoad(t *testing.T) {
	dir := t.TempDir()
	ca := testcerts.New(t, "ca")
	issue := func() {
		cert, key := ca.Issue(time.Now().Add(30*24*time.Hour), "127.0.0.1")
		testcerts.Write(t, dir, "cert.pem", cert)
		testcerts.Write(t, dir, "key.pem", key)
	}
	issue()
	text := func(n int, keys ...string) string {
		var list []string
		for _, key := range keys {
			name := strings.SplitN(key, "-", 2)[0]
			list = append(list, "{name: "+name+", sha256: "+hashOf(key)+"}")
		}
		return desk(fmt.Sprintf("answer %d", n), "{tls: {cert: cert.pem, key: key.pem}, auth: {api_keys: ["+strings.Join(list, ", ")+"]}}")
	}
	s := &site{t: t, dir: dir, signal: make(chan os.Signal, 1), level: zap.NewAtomicLevel()}
	s.start(text(0, "always-1", "ann-old"), false)
	target := func(key string) rig.Target {
		return rig.Target{GRPC: s.GRPC, HTTP: "https://" + s.HTTP, Key: key}.Secure(t, ca.Client())
	}

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var sent, failed atomic.Int64
	began := time.Now()
	for _, c := range rig.Clients(t, target("always-1")) {
		for worker := range 2 {
			load.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					resp, err := c.Send(t.Context(), rig.Text("desk", fmt.Sprintf("%s-%d-%d", c.Binding(), worker, n), "x"))
					sent.Add(1)
					if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
						failed.Add(1)
						t.Errorf("%s: %v %v", c.Binding(), resp.GetTask().GetStatus(), err)
					}
					select {
					case <-time.After(50 * time.Millisecond): // six workers make about a hundred requests a second
					case <-ctx.Done():
					}
				}
			})
		}
	}
	old, next := rig.Clients(t, target("ann-old")), rig.Clients(t, target("ann-new"))
	for _, c := range old {
		if _, why := send(t, c, "desk", "before-"+c.Binding()); why != "" {
			t.Errorf("the old key over %s before: %s", c.Binding(), why)
		}
	}
	t.Log(s.reload(text(1, "always-1", "ann-old", "ann-new")))
	for _, c := range append(old, next...) {
		if _, why := send(t, c, "desk", "both-"+c.Binding()); why != "" {
			t.Errorf("one of both keys over %s: %s", c.Binding(), why)
		}
	}
	issue()
	t.Log(s.reload(text(2, "always-1", "ann-new")))
	for _, c := range old {
		if _, why := send(t, c, "desk", "after-"+c.Binding()); why != "UNAUTHENTICATED" {
			t.Errorf("the old key over %s afterwards: %q", c.Binding(), why)
		}
	}
	for _, c := range next {
		if _, why := send(t, c, "desk", "new-"+c.Binding()); why != "" {
			t.Errorf("the new key over %s afterwards: %s", c.Binding(), why)
		}
	}
	for n := 3; n < 20; n++ {
		s.reload(text(n, "always-1", "ann-new"))
	}
	s.taken = 0 // they may have been read before the last reload
	t.Log(s.until("certificates of server.tls were read again"))
	handshakes(t, s.HTTP, ca)
	stop()
	load.Wait()
	took := time.Since(began)
	t.Logf("%d requests in %s (%.0f a second), %d of them failed, during 19 reloads, a rotation of a key and one of the certificate",
		sent.Load(), took.Round(time.Millisecond), float64(sent.Load())/took.Seconds(), failed.Load())
	if sent.Load() < 100 {
		t.Errorf("only %d requests were made", sent.Load())
	}
}

// handshakes connects with the certificate that the server has now.
func handshakes(t *testing.T, address string, ca *testcerts.Authority) {
	t.Helper()
	c, err := (&tls.Dialer{Config: ca.Client()}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// TestReloadFaultsChangeNothing: a file with faults, a missing one, a half-written one and one that cannot be applied
// leave everything as it was. The log has each fault once, with its place, and again after a signal.
func TestReloadFaultsChangeNothing(t *testing.T) {
	keys := "{auth: {api_keys: [{name: ann, sha256: " + hashOf("one") + "}]}}"
	good := desk("first", keys)
	s := newSite(t, good, true)
	file := filepath.Join(s.dir, "team.yaml")
	c := rig.Clients(t, s.target("one"))[1]
	n := 0
	says := func(want string) {
		t.Helper()
		n++
		task, why := send(t, c, "desk", fmt.Sprint("m", n))
		if got := textOf(task); why != "" || got != want {
			t.Fatalf("the team answers %q %s, want %q", got, why, want)
		}
	}
	const refused = "configuration not reloaded; the previous one is still served"
	expect := func(what, fault string) {
		t.Helper()
		line := s.until(refused)
		t.Logf("%s: %s", what, line)
		if !strings.Contains(line, fault) {
			t.Errorf("%s: the log has %q, want %q", what, line, fault)
		}
		says("first")
	}
	says("first")
	s.write("team.yaml", strings.Replace(good, "teams:", "teems:", 1))
	expect("a bad key", file+":3:1  unknown key \"teems\"")
	s.write("team.yaml", "# the same fault again\n"+strings.Replace(good, "teams:", "teems:", 1))
	expect("the same at another place", file+":4:1  unknown key \"teems\"")
	s.write("team.yaml", good+"# mended\n")
	t.Log(s.until("configuration reloaded"))

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect("a missing file", "the folder contains no team.yaml")
	s.signal <- syscall.SIGHUP
	expect("the same after a signal", "the folder contains no team.yaml")
	s.write("team.yaml", good)
	t.Log(s.until("configuration reloaded"))

	half := desk("second", keys)
	at := strings.Index(half, "supervisor")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(half[:at]); err != nil {
		t.Fatal(err)
	}
	expect("half of a file", file+":3")
	if _, err := f.WriteString(half[at:]); err != nil {
		t.Fatal(err)
	}
	t.Logf("the rest of it: %s", s.until("configuration reloaded"))
	says("second")

	s.write("team.yaml", desk("third", "{}"))
	line := s.until(refused)
	t.Log(line)
	if !strings.Contains(line, "a running server can neither begin nor cease to authenticate its callers; to add the first entry of server.auth or remove the last one, restart it") {
		t.Errorf("a file without keys: %s", line)
	}
	says("second")
	missing := 0
	for _, e := range s.log.FilterMessage(refused).All() {
		if strings.Contains(fmt.Sprint(e.ContextMap()), "the folder contains no team.yaml") {
			missing++
		}
	}
	if missing != 2 { // once when it was removed, and once after the signal
		t.Errorf("the missing file is logged %d times", missing)
	}
}

func textOf(t *a2av1.Task) string {
	var b strings.Builder
	for _, a := range t.GetArtifacts() {
		for _, p := range a.GetParts() {
			b.WriteString(p.GetText())
		}
	}
	return b.String()
}

// TestReloadRemovedTeam: the tasks of a team that the file has no more end as they began, and new ones are refused.
func TestReloadRemovedTeam(t *testing.T) {
	const gated = `
  gate: {workflow: {steps: [{id: ask, human: {question: "Go on?"}}, {id: say, agent: parrot}]}}
  slow: {workflow: {steps: [{id: wait, agent: sloth}, {id: say, agent: parrot, after: [wait]}]}}`
	text := func(answer, more string) string {
		return fmt.Sprintf("version: v1\nagents: {parrot: {scripted: {steps: [{text: %q}]}}, sloth: {scripted: {steps: [{delay_ms: 1500}, {text: x}]}}}\nteams:\n  stays: {workflow: {steps: [{id: say, agent: parrot}]}}%s\n", answer, more)
	}
	s := newSite(t, text("before", gated), false)
	rig.Each(t, s.target(""), func(t *testing.T, c rig.Client) {
		s.t = t
		begin := func(team string) *a2av1.Task {
			req := rig.Text(team, team+c.Binding(), "x")
			req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
			resp, err := c.Send(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetTask()
		}
		asked, slow := begin("gate"), begin("slow")
		until := func(task *a2av1.Task, state a2av1.TaskState) *a2av1.Task {
			t.Helper()
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				got, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: task.GetId()})
				if err != nil || time.Now().After(end) {
					t.Fatalf("%v %v", got, err)
				}
				if got.GetStatus().GetState() == state {
					return got
				}
			}
		}
		until(asked, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
		t.Log(s.reload(text("after"+c.Binding(), "")))
		if _, why := send(t, c, "gate", "refused-"+c.Binding()); why != "AGENT_NOT_FOUND" {
			t.Errorf("a message to the removed team: %q", why)
		}
		if task, why := send(t, c, "stays", "stays-"+c.Binding()); textOf(task) != "after"+c.Binding() {
			t.Errorf("the team that stays answers %q %s", textOf(task), why)
		}
		if got := textOf(until(slow, a2av1.TaskState_TASK_STATE_COMPLETED)); got != "before" {
			t.Errorf("the task that ran has answered %q", got)
		}
		answer := rig.Text("", "answer-"+c.Binding(), "yes")
		answer.Message.TaskId = asked.GetId()
		if _, err := c.Send(t.Context(), answer); err != nil {
			t.Errorf("the answer to the question: %v", err)
		}
		if got := textOf(until(asked, a2av1.TaskState_TASK_STATE_COMPLETED)); !strings.Contains(got, "before") {
			t.Errorf("the task that had asked has answered %q", got)
		}
		t.Log(s.reload(text("before", gated)))
	})
}

// TestReloadOpenStreams: streams of a caller whose key the file has no more end, and others go on.
func TestReloadOpenStreams(t *testing.T) {
	text := func(keys ...string) string {
		var list []string
		for i, key := range keys {
			list = append(list, fmt.Sprintf("{name: n%d%s, sha256: %s}", i, key, hashOf(key)))
		}
		return "version: v1\nagents: {p: {scripted: {steps: [{text: x}]}}}\nteams: {gate: {workflow: {steps: [{id: ask, human: {question: \"Go on?\"}}]}}}\nserver: {streams: {close: END}, auth: {api_keys: [" + strings.Join(list, ", ") + "]}}\n"
	}
	s := newSite(t, text("kept", "gone"), false)
	ends := map[string]chan error{}
	for _, key := range []string{"kept", "gone"} {
		for _, c := range rig.Clients(t, s.target(key)) {
			end, open := make(chan error, 1), make(chan bool)
			ends[key+c.Binding()] = end
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			go func() {
				var last error
				first := true
				for _, err := range c.Stream(ctx, rig.Text("gate", "m-"+c.Binding(), "x")) {
					if first {
						close(open)
						first = false
					}
					last = err
				}
				end <- last
			}()
			<-open
		}
	}
	s.reload(text("kept"))
	for _, binding := range []string{"grpc", "rest", "jsonrpc"} {
		select {
		case err := <-ends["gone"+binding]:
			if f := rig.Fault(err); f == nil || f.Reason != "UNAUTHENTICATED" {
				t.Errorf("%s: the stream ends with %v", binding, err)
			}
			t.Logf("%s: the stream of the removed key ends with %v", binding, err)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the stream of the removed key goes on", binding)
		}
		select {
		case err := <-ends["kept"+binding]:
			t.Errorf("%s: the stream of the other key has ended: %v", binding, err)
		default:
		}
	}
}

// TestReloadPending: what cannot change while the server runs is named in one line, and the rest of the file is applied.
func TestReloadPending(t *testing.T) {
	s := newSite(t, desk("one", "{}"), false)
	s.write("team.yaml", desk("two", `{http: "127.0.0.1:9", store: "sqlite:x.db", deduplicate: 1h, log: {level: warn, format: json}, cors: {origins: [https://app.example]}}`))
	s.signal <- syscall.SIGHUP
	line := s.until("takes effect at the next start")
	t.Log(line)
	if !strings.HasPrefix(line, "takes effect at the next start: server.http, server.store, server.deduplicate, server.log.format ") {
		t.Errorf("the log has %q", line)
	}
	task, why := send(t, rig.Clients(t, s.target(""))[1], "desk", "m")
	if textOf(task) != "two" {
		t.Errorf("the team answers %q %s", textOf(task), why)
	}
	if s.level.Level() != zapcore.WarnLevel {
		t.Errorf("the level is %s", s.level.Level())
	}
}

// TestReloadSecretFiles: a file that the configuration names for a value is read again.
func TestReloadSecretFiles(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), signal: make(chan os.Signal, 1), level: zap.NewAtomicLevel()}
	s.write("hash", hashOf("one"))
	text := desk("x", `{auth: {api_keys: [{name: ann, sha256: "${file:hash}"}]}}`)
	s.start(text, true)
	s.write("hash", hashOf("two"))
	t.Log(s.until("configuration reloaded"))
	for key, want := range map[string]string{"one": "UNAUTHENTICATED", "two": ""} {
		if _, why := send(t, rig.Clients(t, s.target(key))[0], "desk", "m"+key); why != want {
			t.Errorf("key %s: %q", key, why)
		}
	}
}

// TestT_49_ReloadsAreOnRecord: each reload that changes something is in the audit log, with the digest of its file.
func TestT_49_ReloadsAreOnRecord(t *testing.T) {
	admin := "{auth: {api_keys: [{name: root, permissions: [READ, ADMIN], sha256: " + hashOf("root") + "}]}}"
	s := newSite(t, desk("one", admin), false)
	line := s.reload(desk("two", admin))
	s.signal <- syscall.SIGHUP
	t.Log(s.until("configuration unchanged"))
	log := teamv1.NewAuditServiceClient(rig.Services(t, s.target("root"))[0])
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, err := log.ListAudit(t.Context(), &teamv1.ListAuditRequest{Account: "-"})
		if err != nil || time.Now().After(end) {
			t.Fatalf("%v %v", list, err)
		}
		var actions []string
		for _, r := range list.GetRecords() {
			actions = append(actions, r.GetAction())
			for _, name := range []string{"file_sha256", "files_sha256"} {
				if r.GetAction() == "server.reload" && (r.GetDetails()[name] == "" || !strings.Contains(line, r.GetDetails()[name])) {
					t.Errorf("the record has another %s than the log: %v; %s", name, r, line)
				}
			}
		}
		if len(actions) >= 2 {
			t.Log(actions)
			break
		}
	}
}

// TestReloadTrustedFiles: if only the content of a file by which remote agents are verified has changed, it is used from
// then on: an authority that was replaced is not trusted any more.
func TestReloadTrustedFiles(t *testing.T) {
	ca, other, dir := testcerts.New(t, "ca"), testcerts.New(t, "other"), t.TempDir()
	cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	testcerts.Write(t, dir, "cert.pem", cert)
	testcerts.Write(t, dir, "key.pem", key)
	far := &site{t: t, dir: dir, level: zap.NewAtomicLevel()}
	far.start(desk("from far", "{tls: {cert: cert.pem, key: key.pem}}"), false)

	s := &site{t: t, dir: t.TempDir(), signal: make(chan os.Signal, 1), level: zap.NewAtomicLevel()}
	s.write("ca.pem", string(ca.PEM))
	text := fmt.Sprintf("version: v1\nagents: {there: {description: Repeats., grpc: {address: %q, agent_id: desk, tls: {ca: ca.pem}}}}\nserver: {default_agent: there}\n", far.GRPC)
	s.start(text, false)
	c := rig.Clients(t, s.target(""))[0]
	for n, step := range []struct {
		ca   *testcerts.Authority
		want a2av1.TaskState
	}{{ca, a2av1.TaskState_TASK_STATE_COMPLETED}, {other, a2av1.TaskState_TASK_STATE_FAILED}, {ca, a2av1.TaskState_TASK_STATE_COMPLETED}} {
		if n > 0 {
			s.write("ca.pem", string(step.ca.PEM))
			s.signal <- syscall.SIGHUP
			t.Log(s.until("configuration reloaded"))
		}
		if task, why := send(t, c, "there", fmt.Sprint("m", n)); task.GetStatus().GetState() != step.want {
			t.Errorf("step %d: %v %s, want %s", n, task.GetStatus(), why, step.want)
		}
	}
}

// TestT_51_ReloadedSecretsAreNotExported: with server.tracing.content, secrets of a file that was reloaded are replaced in
// spans, as are those of the file before while runs may still use them.
func TestT_51_ReloadedSecretsAreNotExported(t *testing.T) {
	to := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.URL)
	s := &site{t: t, dir: t.TempDir(), signal: make(chan os.Signal, 1), level: zap.NewAtomicLevel()}
	s.write("key", "canary-one")
	s.start("version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\nmodels: {small: {provider: openai, name: m, api_key: \"${file:key}\"}}\nserver: {default_agent: echo, tracing: {content: true}}\n", false)
	s.write("key", "canary-two")
	s.signal <- syscall.SIGHUP
	t.Log(s.until("configuration reloaded"))
	req := rig.Text("echo", "m", "the key is canary-two, is it not")
	if _, err := rig.Clients(t, s.target(""))[1].Send(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	s.stop()
	text := fmt.Sprint(to.Spans())
	if strings.Contains(text, "canary") || !strings.Contains(text, "the key is ***, is it not") {
		t.Errorf("exported: %s", text)
	}
}
