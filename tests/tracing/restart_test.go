package tracing

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// childFile and childStore make the test program a server with a file and a store. It prints its HTTP address, and runs
// until it is killed.
const (
	childFile  = "TRACING_TEST_FILE"
	childStore = "TRACING_TEST_STORE"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := serveFile(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	rig.VerifyMain(m)
}

// serveFile serves a file in this process until it is killed.
func serveFile(path string) error {
	def, err := config.Loader{}.Load(path)
	if err != nil {
		return err
	}
	r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: serve.Off, Store: os.Getenv(childStore), Lease: rig.Lease, Log: zap.NewNop()})
	if err != nil {
		return err
	}
	fmt.Println(r.HTTP)
	return r.Wait()
}

// killable is a server in a process of its own.
type killable struct {
	rig.Target
	cmd  *exec.Cmd
	kill func()
}

func startKillable(t *testing.T, path, store, name string) *killable {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+path, childStore+"="+store, "OTEL_SERVICE_NAME="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &killable{cmd: cmd, kill: sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})}
	t.Cleanup(k.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	k.HTTP = "http://" + strings.TrimSpace(line)
	return k
}

// TestS_66_KilledAndContinued: a run whose server is killed while a model answers, and that another one continues, is one
// trace. The span of the second claim has a link to that of the first. The interrupted call of the model has a span with
// what it may have cost, so that the spans still add up to what the task has spent.
func TestS_66_KilledAndContinued(t *testing.T) {
	for _, kind := range []struct {
		name string
		open func(testing.TB) rig.Place
	}{{"sqlite", rig.SQLite}, {"postgres", rig.PostgreSQL}} {
		t.Run(kind.name, func(t *testing.T) { killedAndContinued(t, kind.open(t)) })
	}
}

func killedAndContinued(t *testing.T, place rig.Place) {
	to := traced(t)
	llm := fakellm.New(t)
	usage := &fakellm.Usage{PromptTokens: 1000, CompletionTokens: 30, TotalTokens: 1030}
	llm.Answer("small", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "said", Usage: usage} })
	var requests atomic.Int32
	gate := fakellm.NewGate()
	llm.Answer("slow", func(*fakellm.Request) fakellm.Turn {
		if requests.Add(1) > 1 {
			return fakellm.Turn{Text: "said at last", Usage: usage}
		}
		return fakellm.Turn{Text: "lost", Gate: gate}
	})
	path := filepath.Join(t.TempDir(), "team.yaml")
	file := strings.ReplaceAll(`version: v1
models:
  small: {provider: openai, name: small, base_url: "LLM", api_key: none, price: {input: 3, output: 7.5}}
  slow: {provider: openai, name: slow, base_url: "LLM", api_key: none, price: {input: 3, output: 7.5}}
agents: {first: {description: Writes., model: small}, second: {description: Writes., model: slow}}
teams: {desk: {members: [{agent: first}, {agent: second}], workflow: {steps: [{id: one, agent: first}, {id: two, agent: second, after: [one]}]}, limits: {max_cost: 1}}}
server: {default_agent: desk}
`, "LLM", llm.URL)
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	one := startKillable(t, path, place.URL, "one")
	req := rig.Text("desk", "m1", "x")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := rig.NewREST(one.Target).Send(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	id := resp.GetTask().GetId()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := gate.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	to.Until(t, "the first step and the request", func(all []collector.Span) bool { return has(all, "invoke_agent first") && has(all, "SendMessage") })
	one.kill()
	gate.Open()
	two := startKillable(t, path, place.URL, "two")
	all := to.Until(t, "the run and its claim", func(all []collector.Span) bool { return has(all, "invoke_workflow desk") && has(all, "claim") })
	task, err := rig.NewREST(two.Target).Get(ctx, &a2av1.GetTaskRequest{Id: id})
	if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatal(task, err)
	}
	run := only(t, all, func(s collector.Span) bool { return s.GetName() == "invoke_workflow desk" })
	var tree []collector.Span
	for _, s := range all {
		if s.Trace() == run.Trace() {
			tree = append(tree, s)
		} else if s.Text("team_server.task.id") == id {
			t.Errorf("%s is in another trace", s.GetName())
		}
	}
	got := collector.Tree(tree, costs)
	t.Logf("the trace, with tokens and costs:\n%s", got)
	const want = `SendMessage [one]
  invoke_workflow desk [two]
    plan desk [one]
    invoke_agent first [one]
      chat small [one] usage: 1000 + 30 tokens, 0.003225 USD
    plan desk [one]
    invoke_agent second [two]
      chat slow [two] LOST error interrupted
      chat slow [two] usage: 1000 + 30 tokens, 0.003225 USD
    claim [two] 1 link
    plan desk [two]
`
	lost := only(t, all, func(s collector.Span) bool { return s.Text("error.type") == "interrupted" })
	if in := lost.Int("gen_ai.usage.input_tokens"); in == 0 || !lost.Bool("team_server.usage.estimated") {
		t.Errorf("the interrupted call has no estimated usage: %v", lost.GetAttributes())
	}
	words := strings.TrimPrefix(strings.TrimSuffix(costs(lost), " error interrupted"), " [two] ")
	if want := sorted(strings.Replace(want, "LOST", words, 1)); sorted(got) != want {
		t.Errorf("the tree is\n%s", got)
	}
	claim := only(t, all, func(s collector.Span) bool { return s.GetName() == "claim" })
	if link := claim.GetLinks()[0]; hex.EncodeToString(link.GetTraceId()) != run.Trace() || hex.EncodeToString(link.GetSpanId()) == claim.ID() || claim.Int("team_server.claim.epoch") < 2 {
		t.Errorf("the claim has links %v", claim.GetLinks())
	}
	spent := a2a.RunOf(task.GetMetadata()).GetSpent()
	if got := sum(all, func(s collector.Span) bool { return s.Trace() == run.Trace() }, "gen_ai.usage"); got != amountOf(spent) || !spent.GetEstimated() {
		t.Errorf("the spans cost %+v, and the task has spent %+v", got, amountOf(spent))
	}
	if run.GetStartTimeUnixNano() > lost.GetStartTimeUnixNano() || lost.GetEndTimeUnixNano() > run.GetEndTimeUnixNano() {
		t.Errorf("the run does not last from its message to its end:\n%v", run.Span)
	}
}

// sorted returns the lines of a tree in the order of their texts.
func sorted(tree string) string {
	lines := strings.Split(tree, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// has reports whether a span has arrived.
func has(all []collector.Span, name string) bool {
	for _, s := range all {
		if s.GetName() == name {
			return true
		}
	}
	return false
}
