//go:build linux

// Package memory runs the real server as a process of its own with GOMEMLIMIT=512MiB and the default configuration, and
// has one account attack its memory: with templates, large messages, answers that nobody reads, teams, webhooks, and
// with models, tools and agents whose answers are large. The resident memory of the server stays below a bound, the
// small tasks of another account do not fail and take about as long as without the attack, and what is refused is told
// when to try again.
//
// The attackers, and what the agents call, are processes of their own that run at nice 19, so that what the other
// account waits for is the server. By default one of the attacks is played for some seconds on one store; with
// TEAM_TESTS=all each of them alone, and a mix of all for five minutes, on both. The tests take from the environment:
//
//	TEAM_MEMORY_SERVER  the program to test in place of one built from the sources
//	TEAM_MEMORY_ATTACK  a pattern of the names of attacks, to make only these in full length; "mix" is all at once
//	TEAM_MEMORY_TIME    how long each attack lasts, such as 20s
package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	serverVariable = "TEAM_MEMORY_SERVER"
	attackVariable = "TEAM_MEMORY_ATTACK"
	timeVariable   = "TEAM_MEMORY_TIME"
	// orderVariable makes this program an attacker, or what the agents call.
	orderVariable = "MEMORY_TEST_ORDER"
	elsewhere     = "elsewhere"

	// most is how much resident memory the server may have.
	most = 700 << 20
	// tooMuch is the resident memory at which the server is killed, to protect the machine.
	tooMuch = 6 << 30
	// worse is how many times longer the small tasks may take during an attack.
	worse = 3
	// floor is the least time that small tasks are taken to need alone, so that noise does not decide: the limit is
	// never below three times as long.
	floor = 25 * time.Millisecond
	mix   = "mix"
	// short is the only attack of a short test.
	short = "burst-rest"
)

func TestMain(m *testing.M) {
	switch text := os.Getenv(orderVariable); text {
	case "":
		pgtest.Main(closing{m})
	case elsewhere:
		os.Exit(beElsewhere())
	default:
		os.Exit(beAttacker(text))
	}
}

// closing closes idle connections of the default HTTP client before the check for leaks.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	http.DefaultClient.CloseIdleConnections()
	return code
}

// stores are where the tasks of the server are kept. The database is on a disk, because the messages are large.
var stores = map[string]func(testing.TB) string{
	"sqlite":   func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "team.db") },
	"postgres": func(t testing.TB) string { return pgtest.New(t).URL() },
}

// TestP11_MemoryOfOneAccount attacks the memory of a server.
func TestP11_MemoryOfOneAccount(t *testing.T) {
	program := os.Getenv(serverVariable)
	if program == "" {
		program = child.Build(t, "../..", "./cmd/team-server")
	}
	only := os.Getenv(attackVariable)
	for _, store := range sample.Of(t, []string{"sqlite", "postgres"}) {
		for _, name := range append(attackNames(), mix) {
			lasts, full := 15*time.Second, only != "" || sample.All()
			switch {
			case only != "" && !regexp.MustCompile("^(?:"+only+")$").MatchString(name), !full && name != short:
				continue
			case full && name == mix:
				lasts = 5 * time.Minute
			case !full:
				lasts = 8 * time.Second
			}
			if d, err := time.ParseDuration(os.Getenv(timeVariable)); err == nil {
				lasts = d
			}
			t.Run(store+" "+name, func(t *testing.T) { play(t, program, stores[store](t), name, lasts, full) })
		}
	}
}

// play makes one attack on a server of its own.
func play(t *testing.T, program, url, attack string, lasts time.Duration, full bool) {
	far := start(t, orderVariable+"="+elsewhere)
	s := serve(t, program, url, far.Ready)
	p := newProbe(t, s.target)
	alone := p.during(t, "alone", min(lasts/2, 10*time.Second), nil)
	rest := s.goroutines(t)
	s.forgetPeak(t)
	w := s.watch()
	done, attacked := make(chan struct{}), report{}
	go func() {
		defer close(done)
		attacked = s.attack(t, attack, far.Ready, lasts)
	}()
	under := p.during(t, "attacked", lasts, done)
	rss := w.end()
	_, peak := memoryOf(s.Cmd.Process.Pid)
	peak = max(peak, slices.Max(rss))
	_, farPeak := memoryOf(far.Cmd.Process.Pid)
	t.Logf("%-18s RSS at most %d MiB of %d; small tasks alone p50 %v p99 %v, attacked p50 %v p99 %v (%.1f times), %d of %d failed",
		attack, peak>>20, most>>20, alone.p(50), alone.p(99), under.p(50), under.p(99), float64(under.p(99))/float64(alone.p(99)), under.failed, len(under.took)+under.failed)
	t.Logf("%-18s RSS in MiB over time: %s", attack, overTime(rss))
	t.Logf("%-18s attackers: %s; with up to %d MiB, and %d MiB elsewhere", attack, attacked, attacked.Peak>>20, farPeak>>20)
	if !s.alive() {
		t.Fatalf("the server has ended:\n%s", s.Log())
	}
	if peak > most {
		t.Errorf("the server had up to %d MiB, want at most %d", peak>>20, most>>20)
	}
	if under.failed > 0 {
		t.Errorf("%d small tasks failed, the first with %v", under.failed, under.first)
	}
	if limit := worse * max(alone.p(99), floor); full && under.p(99) > limit {
		t.Errorf("99 of 100 small tasks took up to %v, want at most %v", under.p(99), limit)
	}
	for outcome, n := range attacked.Outcomes {
		if strings.Contains(outcome, "INTERNAL") || strings.HasPrefix(outcome, "broken") || strings.HasPrefix(outcome, "error INSUFFICIENT") || strings.HasPrefix(outcome, "error  ") {
			t.Errorf("%d attackers were answered with: %s", n, outcome)
		}
	}
	if peak > 2*most {
		t.FailNow() // it would take long to come back
	}
	s.comesBack(t, rest, full && attack == mix)
	p.large(t)
	if t.Failed() {
		t.Logf("the log of the server ends with\n%s", s.Log())
	}
}

// overTime returns about twenty of the samples.
func overTime(rss []int64) string {
	var b strings.Builder
	for part := range slices.Chunk(rss, max(1, (len(rss)+19)/20)) {
		fmt.Fprintf(&b, "%d ", slices.Max(part)>>20)
	}
	return b.String()
}

// String lists the outcomes, the most frequent first.
func (r report) String() string {
	names := []string{}
	for name := range r.Outcomes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return r.Outcomes[b] - r.Outcomes[a] })
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%d %s", r.Outcomes[name], name))
	}
	return strings.Join(all, ", ")
}

// start starts this program as another process, in a process group of its own.
func start(t *testing.T, env ...string) *child.Server {
	t.Helper()
	s, err := child.Serve(command(os.Args[0], env))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.End(syscall.SIGKILL) })
	return s
}

func command(program string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// attack has an attacker attack the server.
func (s *underTest) attack(t *testing.T, name, far string, lasts time.Duration) (r report) {
	o, err := json.Marshal(order{Attack: name, HTTP: strings.TrimPrefix(s.target.HTTP, "http://"), GRPC: s.target.GRPC, Key: "acme/ann", Elsewhere: far, Lasts: lasts, Size: 1})
	if err != nil {
		t.Error(err)
		return r
	}
	cmd := command(os.Args[0], []string{orderVariable + "=" + string(o)})
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	p, err := child.Start(cmd)
	if err != nil {
		t.Error(err)
		return r
	}
	late := time.AfterFunc(lasts+20*time.Second, func() { p.End(syscall.SIGKILL) })
	<-p.Gone
	late.Stop()
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Errorf("the attacker: %v\n%s", err, &said)
	}
	return r
}

// configuration has the defaults, two accounts, and the agents that are attacked. The address of metrics and those of
// other servers are the only further keys.
const configuration = `version: v1
models:
  far: {provider: openai, name: m, base_url: "http://FAR/v1", api_key: k}
tools:
  sea: {mcp: {url: "http://FAR/mcp", effects: {dive: SAFE}}}
agents:
  echo: {description: Echoes., scripted: {steps: [{echo: true}]}}
  slow: {description: Echoes after some time., scripted: {steps: [{delay_ms: 5000}, {echo: true}]}}
  double: {description: Says it twice., scripted: {steps: [{text: "{{input}}{{input}}"}]}}
  flood: {description: Repeats., scripted: {steps: [{text: "FLOOD"}]}}
  talker: {description: Talks., model: far}
  tooluser: {description: Dives., model: far, tools: [sea]}
  remote: {description: Is elsewhere., a2a: {card: "http://FAR/agent"}}
teams:
  stepflood: {members: [{agent: echo}], workflow: {steps: [{id: a, agent: echo, task: "FLOOD"}]}}
  planned: {members: [{agent: echo}], workflow: {plan: {model: far}}}
  eight:
    members: [{agent: double}]
    workflow: {steps: [{parallel: [{id: a, agent: double}, {id: b, agent: double}, {id: c, agent: double}, {id: d, agent: double}, {id: e, agent: double}, {id: f, agent: double}, {id: g, agent: double}, {id: h, agent: double}]}]}
  others: {members: [{agent: flood}, {agent: slow}, {agent: talker}, {agent: tooluser}, {agent: remote}], workflow: {steps: [{id: a, agent: slow}]}}
server:
  metrics: METRICS
  default_agent: echo
  egress: {allow: [127.0.0.0/8]}
  auth: {api_keys: [{account: acme, name: ann, sha256: "ANN"}, {account: other, name: bob, sha256: "BOB"}]}
`

// underTest is the server.
type underTest struct {
	*child.Server
	target  rig.Target
	metrics string // URL
}

// serve starts the server.
func serve(t *testing.T, program, url, far string) *underTest {
	t.Helper()
	metrics := "127.0.0.1:" + child.FreePort(t)
	text := strings.NewReplacer("FAR", far, "FLOOD", strings.Repeat("{{input}}", 2000), "METRICS", metrics,
		"ANN", rig.Key("acme", "ann").GetSha256(), "BOB", rig.Key("other", "bob").GetSha256()).Replace(configuration)
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	process, err := child.Serve(command(program, []string{"GOMEMLIMIT=512MiB"}, "serve", "-c", file, "--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--log-level=error", "--store="+url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.End(syscall.SIGKILL) }) // tasks are left
	s := &underTest{Server: process, metrics: "http://" + metrics + "/metrics"}
	var web string
	if _, err := fmt.Sscanf(s.Ready, "http=%s grpc=%s", &web, &s.target.GRPC); err != nil {
		t.Fatalf("%q: %v", s.Ready, err)
	}
	s.target.HTTP = "http://" + web
	return s
}
