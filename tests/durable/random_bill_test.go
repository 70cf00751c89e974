//go:build linux

package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// randomFile is the configuration file of TestS_60_RandomRuns: workflows, one of them with work at the same
// time, and a leader that calls them; models of two providers, with fallbacks that cost more.
const randomFile = `version: v1
models:
  m: {provider: openai, name: m, base_url: "LLM", api_key: k, price: {input: 1, output: 2, cached_input: 0.1}, max_output_tokens: 120, idle_timeout: 2s, fallback: [n]}
  n: {provider: anthropic, name: n, base_url: "ROOT", api_key: k, price: {input: 3, output: 5}, max_output_tokens: 90, idle_timeout: 2s}
  o: {provider: openai, name: o, base_url: "LLM", api_key: k, price: {input: 2, output: 2, cached_input: 0.1}, max_output_tokens: 60, idle_timeout: 2s}
agents:
  writer: {description: Writes., model: m}
  editor: {description: Edits., model: o}
  critic: {description: Reads., model: n}
teams:
  desk:
    members: [{agent: writer}, {agent: editor}]
    workflow: {steps: [{id: a, agent: writer}, {id: b, agent: editor}]}
    limits: {max_cost: 0.009, retry: {attempts: 4, backoff: 1ms}}
  both:
    members: [{agent: writer}, {agent: critic}, {agent: editor}]
    workflow: {steps: [{parallel: [{id: a, agent: writer}, {id: b, agent: critic}]}, {id: c, agent: editor}]}
    limits: {max_cost: 0.015, retry: {attempts: 6, backoff: 1ms}}
  lead:
    members: [{agent: desk}, {agent: critic}]
    coordinator: {leader: {model: m}, on_limit: FINALIZE}
    limits: {max_cost: 0.04, retry: {attempts: 3, backoff: 1ms}}
`

// randomLimits are the limits of the teams of randomFile, in millionths of a USD.
var randomLimits = map[string]int64{"desk": 9000, "both": 15_000, "lead": 40_000}

// randomRates are the prices of the models of randomFile for a token: of input, cached input and output, in
// tenths of a millionth of a USD.
var randomRates = map[string][3]int64{"m": {10, 1, 20}, "n": {30, 30, 50}, "o": {20, 1, 20}}

var runNumber = regexp.MustCompile(`#(\d+)#`)

// numberedRun returns the number of the run that a request belongs to.
func numberedRun(r *fakellm.Request) int {
	m := runNumber.FindSubmatch(r.Body)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// randomTurns answers as a provider does that has any of its faults at any time.
type randomTurns struct {
	seed    uint64
	arrived chan struct{} // receives for each request, as long as something waits

	mu   sync.Mutex
	asks map[int]uint64 // number of requests, by run; guarded by mu
}

// turn answers a request.
func (a *randomTurns) turn(r *fakellm.Request) fakellm.Turn {
	run := numberedRun(r)
	a.mu.Lock()
	a.asks[run]++
	dice := rand.New(rand.NewPCG(a.seed, uint64(run)<<32+a.asks[run]))
	a.mu.Unlock()
	select {
	case a.arrived <- struct{}{}:
	default:
	}
	words := 1 + dice.IntN(int(min(max(r.MaxTokens, 2), 120)-1))
	t := fakellm.Turn{Text: strings.TrimSpace(fmt.Sprintf("#%d# ", run) + strings.Repeat("word ", words)), Chunks: 1 + dice.IntN(8)}
	if len(r.Tools) > 0 && dice.IntN(2) == 0 && len(r.Messages) < 6 {
		t.Calls = []fakellm.Call{{Name: []string{"desk", "critic"}[dice.IntN(2)], Arguments: fmt.Sprintf(`{"task": "Go on with #%d#."}`, run)}}
	}
	prompt := int64(len(r.Body)) / int64(4+dice.IntN(8))
	if r.Model == "n" { // its tokenizer has a token for each byte
		prompt = int64(len(r.System))
		for _, m := range r.Messages {
			prompt += int64(len(m.Text))
		}
	}
	t.Usage = &fakellm.Usage{PromptTokens: prompt, CompletionTokens: int64(words), TotalTokens: prompt + int64(words)}
	if r.Model != "n" {
		t.Usage.Details = &fakellm.PromptDetails{CachedTokens: dice.Int64N(prompt + 1)}
	}
	if dice.IntN(3) == 0 {
		t.Delay = time.Duration(dice.IntN(30)) * time.Millisecond
	}
	switch dice.IntN(12) {
	case 0, 4:
		t.Status = []int{429, 500, 503, 529}[dice.IntN(4)]
	case 1:
		t.NoUsage = true
	case 2:
		t.Broken, t.BreakAfter = true, dice.IntN(t.Chunks+1)
	case 3:
		t.NoFinish = true
	}
	return t
}

// randomServer is a server that is killed and started again.
type randomServer struct {
	start command

	mu  sync.Mutex
	now *replica // guarded by mu
}

// target returns where the server is now.
func (s *randomServer) target() rig.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.target
}

// again kills the server and starts it again.
func (s *randomServer) again() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.end(syscall.SIGKILL)
	r, err := s.start.start()
	if err == nil {
		s.now = r
	}
	return err
}

// play has a team do a run and returns its task when it has ended. Calls that fail because the server
// is killed are repeated.
func (s *randomServer) play(ctx context.Context, team string, run int) (*a2av1.Task, error) {
	req := rig.Text(team, fmt.Sprint("run-", run), fmt.Sprintf("Write about #%d#.%s", run, strings.Repeat(" Mind the tides.", run%60)))
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last error
	for id := ""; ; {
		c := rig.NewREST(s.target())
		if id == "" {
			sent, err := c.Send(ctx, req)
			id, last = sent.GetTask().GetId(), err
		} else {
			task, err := c.Get(ctx, &a2av1.GetTaskRequest{Tenant: team, Id: id})
			if last = err; err == nil && ended(task) { // one whose calls were all refused has spent nothing
				return task, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), last)
		}
	}
}

// ended reports whether a task has a final state.
func ended(t *a2av1.Task) bool {
	switch t.GetStatus().GetState() {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED:
		return true
	default:
		return false
	}
}

// TestS_60_RandomRuns plays random runs against a provider that breaks streams, refuses requests and leaves
// out usage, on servers that are killed at random moments. What each run says that it has spent is never below
// what the provider bills, and is the same if the provider has reported everything; the bill is never above the
// limit of the run; and the costs of all tasks are the sum of these. TEAM_CRASH_BILLED is the number of
// runs, and TEAM_CRASH_SEED the seed: it decides which runs there are, what happens to the first, second and
// further request of a run, and after how many requests a server is killed. It does not decide how requests follow
// each other, of different runs or of steps that work at the same time, nor which of them a kill repeats: the same
// seed makes the same failure likely, not certain.
func TestS_60_RandomRuns(t *testing.T) {
	runs := int(number(t, billedVariable, 40))
	for _, db := range sample.Of(t, stores) {
		t.Run("S-60 "+db.name, func(t *testing.T) { randomRuns(t, db, runs, seed(t)) })
	}
}

func randomRuns(t *testing.T, db database, runs int, seed uint64) {
	llm := fakellm.New(t)
	answers := &randomTurns{seed: seed, arrived: make(chan struct{}, 1), asks: map[int]uint64{}}
	for model := range randomRates {
		llm.Answer(model, answers.turn)
	}
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer("LLM", llm.URL, "ROOT", llm.Root).Replace(randomFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	servers := startRandom(t, db, file)
	replicas := len(servers)
	dice := rand.New(rand.NewPCG(seed, 1))
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute+time.Duration(runs)*time.Second, errors.New("the runs have not ended in time"))
	defer cancel()

	tasks, teams := make([]*a2av1.Task, runs), make([]string, runs)
	names := []string{"desk", "both", "lead"}
	for i := range teams {
		teams[i] = names[dice.IntN(len(names))]
	}
	var players sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		players.Go(func() {
			for i := int(next.Add(1)) - 1; i < runs; i = int(next.Add(1)) - 1 {
				task, err := servers[i%replicas].play(ctx, teams[i], i)
				if err != nil {
					t.Errorf("run %d of %s: %v", i, teams[i], err)
				}
				tasks[i] = task
			}
		})
	}
	done := make(chan struct{})
	go func() { players.Wait(); close(done) }()
	kills := killAtRandom(t, servers, answers.arrived, done, dice, 40)
	<-done
	if t.Failed() {
		t.Fatalf("the log of a server:\n%s", servers[0].now.tail())
	}
	if err := llm.Quiet(ctx); err != nil {
		t.Fatal(err)
	}
	sum, estimated, failed := checkBills(t, llm, teams, tasks)
	for _, s := range servers {
		if total := costsOf(t, s.now).GetSpent(); !proto.Equal(total, sum) {
			t.Errorf("ListCosts says %v, and the tasks have spent %v", total, sum)
		}
	}
	logs, err := filepath.Glob(filepath.Join(t.ArtifactDir(), "server-*.log"))
	if err != nil || len(logs) < replicas {
		t.Errorf("%d logs of servers: %v", len(logs), err)
	}
	for _, log := range logs {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(b)) { // a leader may still answer in a last turn
			if strings.Contains(line, "a provider billed more") {
				t.Errorf("a reservation was too small: %s", line)
			}
		}
	}
	t.Logf("%d replicas, %d runs, %d requests, %d kills; %d runs with estimates, %d failed; spent %s USD", replicas, runs, len(llm.Requests()), kills, estimated, failed, spending.Dollars(sum.GetCostMicros()))
}

// startRandom starts servers with one store: two if the store can have several.
func startRandom(t *testing.T, db database, file string) (servers []*randomServer) {
	t.Helper()
	url := db.url(t)
	for range map[string]int{"sqlite": 1, "postgres": 2}[db.name] {
		s := &randomServer{start: command{config: file, store: url, dir: t.ArtifactDir(), args: db.args}}
		var err error
		if s.now, err = s.start.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.now.end(syscall.SIGKILL) })
		servers = append(servers, s)
	}
	return servers
}

// killAtRandom kills a server at random requests until the runs are done, and returns how often. The first kill is
// after at most 5 and most requests.
func killAtRandom(t *testing.T, servers []*randomServer, arrived, done <-chan struct{}, dice *rand.Rand, most int) (kills int) {
	for left := 5 + dice.IntN(most); ; left-- {
		select {
		case <-done:
			return kills
		case <-arrived:
		}
		if left > 0 {
			continue
		}
		if err := servers[dice.IntN(len(servers))].again(); err != nil {
			t.Errorf("the server does not start again: %v", err)
			return kills
		}
		kills++
		left = 5 + dice.IntN(most*3/2)
	}
}

// checkBills compares what the provider bills for each run with what it says that it has spent. It returns
// the sum, and the numbers of runs with estimates and of failed ones.
func checkBills(t *testing.T, llm *fakellm.Server, teams []string, tasks []*a2av1.Task) (sum *teamv1.Spent, estimated, failed int) {
	t.Helper()
	bills := make([]int64, len(tasks))
	for _, r := range llm.Requests() {
		u, cached, rate := r.Billed, int64(0), randomRates[r.Model]
		if u.Details != nil {
			cached = u.Details.CachedTokens
		}
		bills[numberedRun(&r)] += (rate[0]*(u.PromptTokens-cached) + rate[1]*cached + rate[2]*u.CompletionTokens + 5) / 10
	}
	sum = &teamv1.Spent{}
	for i, task := range tasks {
		run := a2a.RunOf(task.GetMetadata())
		spent, limit := run.GetSpent(), randomLimits[teams[i]]
		sum = agent.AddSpent(sum, spent)
		if spent.GetEstimated() {
			estimated++
		}
		if run.GetError() != nil {
			failed++
		}
		switch {
		case spent.GetCostMicros() < bills[i], !spent.GetEstimated() && spent.GetCostMicros() != bills[i]:
			t.Errorf("run %d of %s has spent %v, and the bill is %d", i, teams[i], spent, bills[i])
		case bills[i] > limit:
			t.Errorf("run %d of %s: the bill is %d, and the limit %d", i, teams[i], bills[i], limit)
		case strings.Contains(run.GetError().GetMessage(), "billed"):
			t.Errorf("run %d of %s: %v", i, teams[i], run.GetError())
		}
	}
	return sum, estimated, failed
}
