//go:build linux

package durable

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// modes is a file with a team of each mode. Each has beta work in its middle.
const modes = `
version: v1
models:
  alpha: {provider: openai, name: alpha, base_url: %[1]q, api_key: none}
  beta: {provider: openai, name: beta, base_url: %[1]q, api_key: none}
  gamma: {provider: openai, name: gamma, base_url: %[1]q, api_key: none}
  router: {provider: openai, name: router, base_url: %[1]q, api_key: none}
  all: {provider: openai, name: all, base_url: %[1]q, api_key: none}
  later: {provider: openai, name: later, base_url: %[1]q, api_key: none}
  one: {provider: openai, name: one, base_url: %[1]q, api_key: none}
  sum: {provider: openai, name: sum, base_url: %[1]q, api_key: none}
  planner: {provider: openai, name: planner, base_url: %[1]q, api_key: none}
agents:
  alpha: {description: First., model: alpha}
  beta: {description: Second., model: beta}
  gamma: {description: Third., model: gamma}
teams:
  supervisor:
    members: [{agent: alpha}, {agent: beta}, {agent: gamma}]
    supervisor:
      rules: [{id: begin, when: "turn == 1", next: [alpha]}]
      router: {model: router}
  workflow:
    workflow:
      steps:
        - {id: a, agent: alpha}
        - id: sides
          after: [a]
          parallel: [{id: b, agent: beta}, {id: c, agent: gamma}]
        - {id: d, agent: alpha, after: [b, c]}
  coordinator:
    members: [{agent: alpha, history_scope: ISOLATED}, {agent: beta, history_scope: ISOLATED}, {agent: gamma, history_scope: ISOLATED}]
    coordinator: {leader: {model: all}, allow_parallel: true}
  async:
    members: [{agent: alpha, history_scope: ISOLATED}, {agent: beta, history_scope: ISOLATED}, {agent: gamma, history_scope: ISOLATED}]
    coordinator: {leader: {model: later}, async: true}
  swarm:
    members: [{agent: alpha}, {agent: beta}, {agent: gamma}]
    swarm: {entry_member: alpha}
  broadcast:
    members: [{agent: alpha}, {agent: beta}, {agent: gamma}]
    broadcast: {model: sum}
  route:
    members: [{agent: alpha}, {agent: beta}, {agent: gamma}]
    route: {model: one}
  planned:
    members: [{agent: alpha}, {agent: beta}, {agent: gamma}]
    workflow: {plan: {model: planner}}
  nested:
    members: [{agent: workflow, history_scope: ISOLATED}, {agent: gamma, history_scope: ISOLATED}]
    coordinator: {leader: {model: all}, allow_parallel: true}
server:
  egress: {allow: [127.0.0.0/8]}
  default_agent: nested
  auth: {api_keys: [{name: ann, account: acme, sha256: %[2]q}]}
`

// modeTeams are the teams of the file.
var modeTeams = []string{"supervisor", "workflow", "coordinator", "async", "swarm", "broadcast", "route", "planned", "nested"}

// middle is a run of a mode that is killed while beta works.
type middle struct {
	*testing.T
	command
	team string
	llm  *fakellm.Server
	gate *fakellm.Gate

	mu   sync.Mutex
	hold bool // the next call of beta hangs until the gate opens; guarded by mu
}

// TestCrash_P1_P2_EveryModeKilledInTheMiddle kills the server while a member of a
// team of each mode works, starts it anew, and shows what ran how often. Nothing
// on record is lost or done again, what had no end on record is called once more with
// its key, and the answer is that of a run that nothing happened to.
func TestCrash_P1_P2_EveryModeKilledInTheMiddle(t *testing.T) {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "mode\tkilled at event\tended before\tran once\tran twice\twhich\tresult")
	for _, team := range modeTeams {
		t.Run("P1 P2 "+team, func(t *testing.T) {
			m := newMiddle(t, team)
			fmt.Fprintf(table, "%s\t%s\n", team, m.run())
		})
	}
	table.Flush()
	t.Logf("\n%s", text.String())
}

func newMiddle(t *testing.T, team string) *middle {
	t.Helper()
	m := &middle{T: t, team: team, llm: fakellm.New(t), gate: fakellm.NewGate()}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		m.llm.Answer(name, m.member)
	}
	for name, answer := range map[string]func(*fakellm.Request) fakellm.Turn{
		"router": func(r *fakellm.Request) fakellm.Turn { return route(r.Last()) },
		"all":    callsAll, "later": callsLater, "one": callsBeta, "planner": plansAll,
		"sum": func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: echo("sum", r.Last())} },
	} {
		m.llm.Answer(name, answer)
	}
	path := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, modes, m.llm.URL, rig.Key(principals[0][0], principals[0][1]).GetSha256()), 0o600); err != nil {
		t.Fatal(err)
	}
	m.command = command{config: path, store: sqlite(t), dir: t.ArtifactDir()}
	return m
}

// member answers with what it was told, and hands over where it can and is not the last.
func (m *middle) member(r *fakellm.Request) fakellm.Turn {
	turn := fakellm.Turn{Text: echo(r.Model, r.Last())}
	to := map[string]string{"alpha": "beta", "beta": "gamma"}[r.Model]
	if to != "" && slices.Contains(r.Tools, "transfer_to_agent") {
		turn = handsOver(to, echo(r.Model, r.Messages[0].Text))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Model == "beta" && m.hold {
		m.hold, turn.Gate = false, m.gate
	}
	return turn
}

// callsAll is a leader that calls all its members at the same time.
func callsAll(r *fakellm.Request) fakellm.Turn {
	if said := results(r); len(said) > 0 {
		return fakellm.Turn{Text: strings.Join(said, " + ")}
	}
	var turn fakellm.Turn
	for _, tool := range r.Tools {
		if member, ok := strings.CutPrefix(tool, "delegate_to_"); ok {
			turn.Calls = append(turn.Calls, gives(member, r.Last()))
		}
	}
	return turn
}

// callsLater is a leader that calls all its members in the background, and looks
// what became of them until all have ended.
func callsLater(r *fakellm.Request) fakellm.Turn {
	said := results(r)
	if len(said) == 0 {
		return callsAll(r)
	}
	if len(said) > 3 && !strings.Contains(said[len(said)-1], "open") {
		var ended []string
		for _, line := range strings.Split(r.Last(), "\n") {
			if strings.Contains(line, "<") {
				ended = append(ended, line)
			}
		}
		if len(ended) == 3 {
			return fakellm.Turn{Text: strings.Join(ended, " + ")}
		}
	}
	return fakellm.Turn{Calls: []fakellm.Call{{Name: "check_delegated_tasks", Arguments: `{"wait_seconds": 30}`}}}
}

func callsBeta(r *fakellm.Request) fakellm.Turn {
	return fakellm.Turn{Calls: []fakellm.Call{gives("beta", r.Last())}}
}

// plansAll is a leader that plans beta and gamma at the same time, after alpha.
func plansAll(r *fakellm.Request) fakellm.Turn {
	if !slices.Contains(r.Tools, "plan") {
		return fakellm.Turn{Text: echo("planner", r.Last())}
	}
	return fakellm.Turn{Calls: []fakellm.Call{{Name: "plan", Arguments: `{"steps": [{"id": "a", "member": "alpha", "task": "{{input}}"},
		{"id": "b", "member": "beta", "task": "second", "after": ["a"]}, {"id": "c", "member": "gamma", "task": "third", "after": ["a"]}]}`}}}
}

// results are what the tools have answered.
func results(r *fakellm.Request) (said []string) {
	for _, m := range r.Messages {
		if m.Role == "tool" {
			_, text, _ := strings.Cut(m.Text, "\n\n")
			said = append(said, text)
		}
	}
	return said
}

// run is a row of the table.
func (m *middle) run() string {
	first := serve(m.T, m.command)
	want := m.end(first, m.send(first, "undisturbed"))
	quiet := len(m.llm.Requests())
	m.mu.Lock()
	m.hold = true
	m.mu.Unlock()
	task := m.send(first, "killed")
	await(m.T, "only beta works", func() bool { return m.onlyBeta(first, task, quiet) })
	first.end(syscall.SIGKILL)
	before := m.journal(task)
	second := serve(m.T, m.command)
	got := m.end(second, task)
	if s := second.end(syscall.SIGTERM); s.ExitStatus() != 0 {
		m.Errorf("the server ended with %v\n%s", s, second.tail())
	}
	if got != want || got == "" {
		m.Errorf("the answer is\n%s\nand undisturbed\n%s", got, want)
	}
	return m.row(before, m.journal(task), m.llm.Requests()[quiet:], got == want)
}

func (m *middle) client(r *replica) rig.Client {
	target := r.target.As(principals[0][0], principals[0][1])
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	return rig.NewREST(target)
}

func (m *middle) send(r *replica, message string) string {
	m.Helper()
	req := rig.Text(m.team, message, "tides")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	sent, err := m.client(r).Send(m.Context(), req)
	if err != nil {
		m.Fatal(err)
	}
	return sent.GetTask().GetId()
}

func (m *middle) get(r *replica, task string) *a2av1.Task {
	m.Helper()
	t, err := m.client(r).Get(m.Context(), &a2av1.GetTaskRequest{Id: task})
	if err != nil {
		m.Fatal(err)
	}
	return t
}

// end is the answer of a task that has to complete.
func (m *middle) end(r *replica, task string) string {
	m.Helper()
	await(m.T, "the end", func() bool { return state(m.get(r, task).GetStatus().GetState()).ended() })
	t := m.get(r, task)
	if t.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		m.Errorf("the task ended with %v\n%s", t.GetStatus(), r.tail())
	}
	return result(t)
}

// onlyBeta is whether beta hangs and everybody else has done their work on record.
func (m *middle) onlyBeta(r *replica, task string, quiet int) bool {
	beta := false
	for _, req := range m.llm.Requests()[quiet:] {
		if req.Finished.IsZero() && req.Model != "beta" {
			return false
		}
		beta = beta || req.Model == "beta"
	}
	var of string // its path
	open := []string{}
	for _, d := range a2a.RunOf(m.get(r, task).GetMetadata()).GetDelegations() {
		if strings.HasSuffix(d.GetPath(), "/beta") {
			of = d.GetPath()
		}
		if d.GetOutcome() == teamv1.Outcome_OUTCOME_UNSPECIFIED {
			open = append(open, d.GetPath())
		}
	}
	return beta && !slices.ContainsFunc(open, func(path string) bool { return !strings.HasPrefix(of, path) })
}

// journal is what is on record of a task; no server runs.
func (m *middle) journal(task string) []*teamv1.Event {
	m.Helper()
	ctx := context.Background()
	s, err := sqlstore.Open(ctx, m.store, sqlstore.Config{})
	if err != nil {
		m.Fatal(err)
	}
	defer s.Close()
	all, err := events(ctx, s, runs.Key{Owner: owner(0), ID: task})
	if err != nil {
		m.Fatal(err)
	}
	return all
}

// row tells what ran how often: calls of models, each a step of its own, by the
// keys that the model server has seen.
func (m *middle) row(before, after []*teamv1.Event, requests []fakellm.Request, equal bool) string {
	m.Helper()
	for i, ev := range before {
		if i >= len(after) || ev.String() != after[i].String() {
			m.Fatalf("event %d is lost: %v", i+1, ev)
		}
	}
	ended, agents, calls := endedKeys(before), keys(after), map[string]int{}
	for _, r := range requests {
		calls[r.Header.Get("Idempotency-Key")]++
	}
	once, twice := 0, []string{}
	for _, key := range slices.Sorted(maps.Keys(calls)) {
		n := calls[key]
		switch {
		case agents[key] == "":
			m.Errorf("a model was called with key %q, which is not on record", key)
		case n == 1:
			once++
		case n == 2 && !ended[key]:
			twice = append(twice, agents[key])
		default:
			m.Errorf("%s was called %d times; its end was on record: %v", agents[key], n, ended[key])
		}
	}
	shown := fmt.Sprintf("%d\t%d\t%s", once, len(twice), strings.Join(twice, " "))
	// The leader that works beside beta may be caught between its turn and the record of it.
	twice = slices.DeleteFunc(twice, func(agent string) bool { return agent == "async" && m.team == "async" })
	if len(twice) != 1 || !strings.HasSuffix(twice[0], "/beta") {
		m.Errorf("these ran twice: %v, want beta alone", twice)
	}
	word := map[bool]string{true: "equal", false: "DIFFERENT"}[equal]
	return fmt.Sprintf("%d of %d\t%d\t%s\t%s", len(before), len(after), len(ended), shown, word)
}

// keys are the agents that called something, by the key of the call.
func keys(events []*teamv1.Event) map[string]string {
	all := map[string]string{}
	for _, ev := range events {
		if key := ev.GetStarted().GetKey(); key != "" {
			all[key] = ev.GetAgent()
		}
	}
	return all
}

// endedKeys are the keys of steps that have ended.
func endedKeys(events []*teamv1.Event) map[string]bool {
	open, ended := map[string]string{}, map[string]bool{} // by scope, by key
	for _, ev := range events {
		if s := ev.GetStarted(); s != nil {
			open[ev.GetScope()] = s.GetKey()
		}
		if key := open[ev.GetScope()]; ev.GetEnded() != nil && key != "" {
			ended[key] = true
		}
	}
	return ended
}
