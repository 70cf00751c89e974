//go:build linux

package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// messageShape is a way in which a message causes work. In its teams, K is the name of the shape; its models
// are lead-K and work-K, and the message is sent to desk-K.
type messageShape struct {
	name  string
	teams string
	limit int64 // of what the message may cost, in millionths of a USD
}

const detachAndWake = "async: true, on_open_delegations: DETACH, wake_on_completion: true"

// messageShapes are those of TestBillOfAMessage.
var messageShapes = []messageShape{
	{name: "woken", limit: 9_000, teams: `
  desk-K: {members: [{agent: writer-K}], coordinator: {leader: {model: lead-K}, DETACH}, limits: {max_cost: 0.009, max_depth: 8}}`},
	{name: "two", limit: 12_000, teams: `
  desk-K: {members: [{agent: writer-K}, {agent: editor-K}], coordinator: {leader: {model: lead-K}, DETACH}, limits: {max_cost: 0.012, max_depth: 4}}`},
	{name: "final", limit: 10_000, teams: `
  desk-K: {members: [{agent: writer-K}], coordinator: {leader: {model: lead-K}, on_limit: FINALIZE, DETACH}, limits: {max_cost: 0.01, max_depth: 8}}`},
	{name: "alone", limit: 5_000, teams: `
  desk-K: {members: [{agent: writer-K}], coordinator: {leader: {model: lead-K}, async: true, on_open_delegations: DETACH}, limits: {max_cost: 0.005}}`},
	{name: "inner", limit: 8_000, teams: `
  part-K: {description: Writes parts., members: [{agent: writer-K}], coordinator: {leader: {model: lead-K}, DETACH}}
  desk-K: {members: [{agent: part-K}], coordinator: {leader: {model: lead-K}}, limits: {max_cost: 0.008, max_depth: 8}}`},
	{name: "capped", limit: 8_000, teams: `
  part-K: {description: Writes parts., members: [{agent: writer-K}], coordinator: {leader: {model: lead-K}, DETACH}, limits: {max_cost: 0.006}}
  desk-K: {members: [{agent: part-K}], coordinator: {leader: {model: lead-K}}, limits: {max_cost: 0.008, max_depth: 8}}`},
	{name: "outer", limit: 11_000, teams: `
  part-K: {description: Writes parts., members: [{agent: writer-K}], coordinator: {leader: {model: lead-K}, DETACH}, limits: {max_cost: 0.006}}
  desk-K: {members: [{agent: part-K}], coordinator: {leader: {model: lead-K}, DETACH}, limits: {max_cost: 0.011, max_depth: 6}}`},
	{name: "planned", limit: 12_000, teams: `
  part-K: {description: Writes parts., members: [{agent: writer-K}, {agent: editor-K}], workflow: {plan: {model: lead-K}}}
  desk-K: {members: [{agent: part-K}], coordinator: {leader: {model: lead-K}, DETACH}, limits: {max_cost: 0.012, max_depth: 8}}`},
	{name: "parallel", limit: 10_000, teams: `
  part-K: {description: Writes parts., members: [{agent: writer-K}, {agent: editor-K}], workflow: {steps: [{parallel: [{id: a, agent: writer-K}, {id: b, agent: editor-K}]}]}}
  desk-K: {members: [{agent: part-K}], coordinator: {leader: {model: lead-K}, DETACH}, limits: {max_cost: 0.01, max_depth: 8}}`},
	{name: "step", limit: 20_000, teams: `
  part-K: {description: Writes parts., members: [{agent: writer-K}, {agent: editor-K}], coordinator: {leader: {model: lead-K}, DETACH}}
  desk-K: {members: [{agent: part-K}], workflow: {steps: [{id: a, agent: part-K}, {id: b, agent: part-K}]}, limits: {max_cost: 0.02, max_depth: 6}}`},
}

// messageFile returns the configuration file for all shapes. An input token costs a millionth of a USD, and an
// output token two.
func messageFile(url string) string {
	var models, agents, teams strings.Builder
	for _, s := range messageShapes {
		k := strings.NewReplacer("K", s.name, "LLM", url, "DETACH", detachAndWake)
		models.WriteString(k.Replace(`
  lead-K: {provider: openai, name: lead-K, base_url: "LLM", api_key: k, price: {input: 1, output: 2}, max_output_tokens: 60}
  work-K: {provider: openai, name: work-K, base_url: "LLM", api_key: k, price: {input: 1, output: 2}, max_output_tokens: 200}`))
		agents.WriteString(k.Replace(`
  writer-K: {description: Writes., model: work-K}
  editor-K: {description: Edits., model: work-K}`))
		text := strings.ReplaceAll(s.teams, "on_open_delegations: DETACH", "on_open_delegations: APART")
		teams.WriteString(strings.ReplaceAll(k.Replace(text), "APART", "DETACH"))
	}
	return "version: v1\nmodels:" + models.String() + "\nagents:" + agents.String() + "\nteams:" + teams.String() + "\n"
}

// turnOf returns how a model of messageFile answers: leaders give work to all members for each message that they
// are given, and make a faulty plan before a good one.
func turnOf(r *fakellm.Request) fakellm.Turn {
	t := fakellm.Turn{Text: strings.TrimSpace(strings.Repeat("word ", 10))}
	last := r.Messages[len(r.Messages)-1]
	members := func(calls *[]fakellm.Call) {
		for i, tool := range r.Tools {
			if strings.HasPrefix(tool, "delegate_to_") {
				*calls = append(*calls, fakellm.Call{ID: fmt.Sprintf("c%d-%d", r.N, i), Name: tool, Arguments: fmt.Sprintf(`{"task": "Do part %d."}`, r.N)})
			}
		}
	}
	name := strings.TrimPrefix(r.Model, "lead-")
	switch {
	case name == r.Model:
		words := min(180, int(r.MaxTokens)) // a turn whose budget is nearly used up is allowed less
		t.Text = strings.TrimSpace(strings.Repeat("word ", words))
	case len(r.Tools) > 0 && r.Tools[0] == "plan":
		t.Text, t.Calls = "", []fakellm.Call{{ID: fmt.Sprint("p", r.N), Name: "plan", Arguments: fmt.Sprintf(`{"steps": [{"id": "a", "member": %q, "task": "Write."}, {"id": "b", "member": %q, "task": "Edit.", "after": ["a"]}]}`,
			map[bool]string{true: "writer-" + name, false: "nobody"}[last.Role == "tool"], "editor-"+name)}}
	case last.Role == "user":
		members(&t.Calls)
	}
	t.Usage = &fakellm.Usage{PromptTokens: int64(len(r.Body)) * 2 / 5, CompletionTokens: int64(len(strings.Fields(t.Text))) + 20*int64(len(t.Calls))}
	t.Usage.TotalTokens = t.Usage.PromptTokens + t.Usage.CompletionTokens
	return t
}

// TestBillOfAMessage sends messages whose work is detached, woken, nested and planned, to servers that are killed
// at random moments. The bill of the provider for all that a message causes is never above its limit, and the tasks
// say what was spent of it.
func TestBillOfAMessage(t *testing.T) {
	first, rounds := seed(t), uint64(1)
	if sample.All() {
		rounds = 12
	}
	for _, db := range stores {
		for i := range rounds {
			t.Run(fmt.Sprintf("%s %d", db.name, i), func(t *testing.T) {
				t.Parallel()
				billMessages(t, db, first+i)
			})
		}
	}
}

func billMessages(t *testing.T, db database, seed uint64) {
	llm := fakellm.New(t)
	arrived := make(chan struct{}, 1)
	for _, s := range messageShapes {
		for _, model := range []string{"lead-", "work-"} {
			llm.Answer(model+s.name, func(r *fakellm.Request) fakellm.Turn {
				select {
				case arrived <- struct{}{}:
				default:
				}
				return turnOf(r)
			})
		}
	}
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte(messageFile(llm.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	servers := startRandom(t, db, file)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("the messages have not ended in time"))
	defer cancel()
	var players sync.WaitGroup
	done := make(chan struct{})
	tasks := make([][]*a2av1.Task, len(messageShapes))
	for i, s := range messageShapes {
		players.Go(func() {
			var err error
			if tasks[i], err = servers[i%len(servers)].playAll(ctx, "desk-"+s.name, i); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		})
	}
	go func() { players.Wait(); close(done) }()
	kills := killAtRandom(t, servers, arrived, done, rand.New(rand.NewPCG(seed, 2)), 6)
	<-done
	if t.Failed() {
		t.Fatalf("the log of a server:\n%s", servers[0].now.tail())
	}
	if err := llm.Quiet(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills", kills)
	bills := map[string]int64{}
	for _, r := range llm.Requests() {
		bills[r.Model[len("lead-"):]] += r.Billed.PromptTokens + 2*r.Billed.CompletionTokens
	}
	for i, s := range messageShapes {
		checkMessage(t, s, bills[s.name], tasks[i])
	}
}

// checkMessage compares the bill for a message with its limit and with what its tasks say.
func checkMessage(t *testing.T, s messageShape, bill int64, tasks []*a2av1.Task) {
	t.Helper()
	spent, seen, reasons := int64(0), int64(0), map[string]int{}
	for _, task := range tasks {
		run := a2a.RunOf(task.GetMetadata())
		spent += run.GetSpent().GetCostMicros()
		reasons[run.GetError().GetReason()]++
		if len(tasks) == 1 { // kills in its first turns have used up its budget
			seen = spent
			break
		}
		if len(run.GetBudgets()) == 0 {
			t.Errorf("%s: task %s has no budgets, and spent %v", s.name, task.GetId(), run.GetSpent())
			continue
		}
		of := run.GetBudgets()[0]
		seen = max(seen, of.GetSpentCostMicros())
		if of.GetMaxCostMicros() != s.limit || of.GetSetBy() != "desk-"+s.name || of.GetSpentCostMicros()+of.GetHeldCostMicros() > s.limit {
			t.Errorf("%s: task %s has %v", s.name, task.GetId(), of)
		}
	}
	t.Logf("%-10s %2d tasks  bill %6d  spent %6d  limit %6d  %v", s.name, len(tasks), bill, spent, s.limit, reasons)
	if bill > s.limit || spent > s.limit || bill == 0 {
		t.Errorf("%s: the bill is %d, the tasks have spent %d, and the limit is %d", s.name, bill, spent, s.limit)
	}
	if spent < bill || seen != spent {
		t.Errorf("%s: the tasks have spent %d, the last one says that they have spent %d, and the bill is %d", s.name, spent, seen, bill)
	}
}

// playAll sends a message to a team and returns all tasks of its conversation when they have ended. Calls that
// fail because the server is killed are repeated.
func (s *randomServer) playAll(ctx context.Context, team string, run int) ([]*a2av1.Task, error) {
	first, err := s.play(ctx, team, run)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := 0; ; {
		list, err := rig.NewREST(s.target()).List(ctx, &a2av1.ListTasksRequest{ContextId: first.GetContextId()})
		open := err != nil
		for _, task := range list.GetTasks() { // a task begins the next one before it ends
			open = open || !ended(task)
		}
		if n := len(list.GetTasks()); !open && n == last { // the list is no picture of one moment
			return list.GetTasks(), nil
		} else if !open {
			last = n
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}
