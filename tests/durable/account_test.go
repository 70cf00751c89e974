//go:build linux

package durable

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // to read the ledger
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// cappedFile is the configuration file of the tests of accounts. The prices are those of pricedFile.
// No run has a limit of its own.
const cappedFile = `version: v1
models:
  m: {provider: openai, name: m, base_url: "LLM", api_key: k, price: {input: 1, output: 2, cached_input: 0.1}, max_output_tokens: 120}
agents:
  writer: {description: Writes., model: m}
teams:
  desk:
    members: [{agent: writer}]
    workflow: {steps: [{id: a, agent: writer}]}
    limits: {retry: {attempts: 2, backoff: 10ms}}
server:
  accounts:
    local: {max_cost_per_day: CAP}
`

// TestC_07_ThreeReplicasOneCap begins many tasks at the same time on three replicas, whose account
// may spend about half of what they cost. The provider reports no usage for some, breaks some off,
// and one replica is killed with calls in flight. The provider counts its bill itself.
func TestC_07_ThreeReplicasOneCap(t *testing.T) {
	sends := 90
	if sample.All() {
		sends = 1000
	}
	llm := fakellm.New(t)
	gate := fakellm.NewGate()
	text := strings.TrimSpace(strings.Repeat("word ", 40))
	var n atomic.Int64
	llm.Answer("m", func(*fakellm.Request) fakellm.Turn {
		switch i := n.Add(1); {
		case i <= 6:
			return fakellm.Turn{Text: text, Chunks: 10, Gate: gate, GateAfter: 8}
		case i%10 == 3:
			return fakellm.Turn{Text: text, NoUsage: true}
		case i%10 == 7:
			return fakellm.Turn{Text: text, Chunks: 10, Broken: true, BreakAfter: 9}
		}
		return fakellm.Turn{Text: text}
	})
	limit := int64(sends) * 120 // millionths of a USD
	file := filepath.Join(t.TempDir(), "team.yaml")
	config := strings.NewReplacer("LLM", llm.URL, "CAP", fmt.Sprintf("%.6f", float64(limit)/1e6)).Replace(cappedFile)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	url := pgtest.URL(t)
	start := command{config: file, store: url, dir: t.ArtifactDir(), args: []string{"--lease=1s"}}
	var replicas []*replica
	for range 3 {
		r, err := start.start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.end(syscall.SIGKILL) })
		replicas = append(replicas, r)
	}
	ledger := openLedger(t, url)

	var begun sync.Map // ids of tasks
	var refused atomic.Int64
	var sending sync.WaitGroup
	work := make(chan int)
	for range 12 {
		sending.Go(func() {
			for i := range work {
				id, err := begin(t.Context(), replicas[i%3], i)
				if f := rig.Fault(err); f != nil && f.Reason == "ACCOUNT_LIMIT_REACHED" {
					refused.Add(1)
				} else if err != nil { // that of the replica that is killed
					id, err = begin(t.Context(), replicas[1], i)
					if f := rig.Fault(err); f != nil && f.Reason == "ACCOUNT_LIMIT_REACHED" {
						refused.Add(1)
					} else if err != nil {
						t.Errorf("send %d: %v", i, err)
					}
				}
				if err == nil {
					begun.Store(id, true)
				}
			}
		})
	}
	for i := range sends / 2 {
		work <- i
	}
	if err := gate.Wait(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	replicas[0].end(syscall.SIGKILL)
	gate.Open()
	for i := sends / 2; i < sends; i++ {
		work <- i
	}
	close(work)
	sending.Wait()

	completed, stopped := 0, 0
	begun.Range(func(id, _ any) bool {
		var task *a2av1.Task
		await(t, "the end of a task", func() bool {
			var err error
			task, err = rig.NewREST(replicas[1].target).Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "desk", Id: id.(string)})
			return err == nil && task.GetStatus().GetState() > a2av1.TaskState_TASK_STATE_WORKING
		})
		switch reason := a2a.RunOf(task.GetMetadata()).GetError().GetReason(); {
		case task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED:
			completed++
		case reason == "ACCOUNT_LIMIT_REACHED":
			stopped++
		case reason == "UNAVAILABLE": // every attempt broke off
		default:
			t.Errorf("task %s is %s: %v", id, task.GetStatus().GetState(), a2a.RunOf(task.GetMetadata()).GetError())
		}
		return true
	})
	if err := llm.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	bill := billOf(llm)
	var spent, held, flight int64
	await(t, "nothing is held", func() bool {
		spent, held, flight = ledger(t)
		return held == 0 && flight == 0
	})
	t.Logf("%d sends: %d completed, %d stopped, %d refused; bill %d <= ledger %d <= cap %d", sends, completed, stopped, refused.Load(), bill, spent, limit)
	if bill > spent || spent > limit || bill < limit/3 {
		t.Errorf("bill %d, ledger %d, cap %d", bill, spent, limit)
	}
	if stopped+int(refused.Load()) == 0 || completed == 0 {
		t.Errorf("%d completed, %d stopped, %d refused", completed, stopped, refused.Load())
	}

	// The other replicas agree after a restart.
	replicas[1].end(syscall.SIGKILL)
	again, err := start.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.end(syscall.SIGKILL) })
	for i := range 20 { // until nothing is left for one more
		if _, err := begin(t.Context(), again, sends+i); err != nil {
			break
		}
	}
	if bill2, _, _ := ledger(t); bill2 > limit {
		t.Errorf("the ledger has %d after a restart, more than %d", bill2, limit)
	}
}

// begin sends a message and returns the id of its task.
func begin(ctx context.Context, r *replica, i int) (string, error) {
	req := rig.Text("desk", fmt.Sprint("m-", i), "Write about the tides.")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	sent, err := rig.NewREST(r.target).Send(ctx, req)
	return sent.GetTask().GetId(), err
}

// openLedger returns a function that reads what the account local has spent and holds for all days,
// and what it has in flight, in millionths of a USD.
func openLedger(t *testing.T, url string) func(t *testing.T) (spent, held, flight int64) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return func(t *testing.T) (spent, held, flight int64) {
		t.Helper()
		err := db.QueryRowContext(t.Context(), `SELECT coalesce(sum(spent_micros), 0), coalesce(sum(CASE WHEN day <> '' THEN held_micros END), 0),
coalesce(sum(CASE WHEN day = '' THEN held_micros END), 0) FROM account_day WHERE account = 'local'`).Scan(&spent, &held, &flight)
		if err != nil {
			t.Fatal(err)
		}
		return spent, held, flight
	}
}

// TestC_07_AnAccountAfterAKill kills the only server with a call in flight. The next one books the
// call that was lost, holds nothing after the end, and refuses what the account does not cover.
func TestC_07_AnAccountAfterAKill(t *testing.T) {
	const limit = 1500 // millionths of a USD
	llm, gate := fakellm.New(t), fakellm.NewGate()
	text := strings.TrimSpace(strings.Repeat("word ", 40))
	llm.Script("m", fakellm.Turn{Text: text, Chunks: 10, Gate: gate, GateAfter: 8})
	llm.Answer("m", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: text} })
	file := filepath.Join(t.TempDir(), "team.yaml")
	config := strings.NewReplacer("LLM", llm.URL, "CAP", fmt.Sprintf("%.6f", float64(limit)/1e6)).Replace(cappedFile)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	start := command{config: file, store: sqlite(t), dir: t.ArtifactDir(), args: []string{"--lease=1s"}}
	r, err := start.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end(syscall.SIGKILL) })
	account := func() *teamv1.Account {
		resp, err := r.target.Do(t.Context(), http.MethodGet, "/team/v1/accounts/-", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := resp.Body()
		got := &teamv1.GetAccountResponse{}
		if err == nil {
			err = protojson.Unmarshal(body, got)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return got.GetAccount()
	}
	id, err := begin(t.Context(), r, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	held := account().GetInFlight().GetCostMicros()
	if held == 0 || account().GetSpent().GetCostMicros() != 0 {
		t.Errorf("in flight: %v", account())
	}
	r.end(syscall.SIGKILL)
	if r, err = start.start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the task", func() bool {
		task, err := rig.NewREST(r.target).Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "desk", Id: id})
		return err == nil && task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED
	})
	if err := llm.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, second := account(), llm.Requests()[1].Billed
	want := held + second.PromptTokens + 2*second.CompletionTokens
	if a.GetSpent().GetCostMicros() != want || a.GetInFlight().GetCostMicros() != 0 || billOf(llm) > want {
		t.Errorf("after the restart: %v, want %d spent; the bill is %d", a, want, billOf(llm))
	}
	t.Logf("in flight before the kill: %d; bill %d <= ledger %d <= cap %d", held, billOf(llm), want, limit)
	for i := 1; ; i++ {
		id, err := begin(t.Context(), r, i)
		if err != nil {
			t.Fatal(err)
		}
		var reason string
		await(t, "the end of the next task", func() bool {
			task, err := rig.NewREST(r.target).Get(t.Context(), &a2av1.GetTaskRequest{Tenant: "desk", Id: id})
			reason = a2a.RunOf(task.GetMetadata()).GetError().GetReason()
			return err == nil && task.GetStatus().GetState() > a2av1.TaskState_TASK_STATE_WORKING
		})
		if reason == "ACCOUNT_LIMIT_REACHED" {
			break
		}
		if reason != "" || i > 50 {
			t.Fatalf("task %d: %s", i, reason)
		}
	}
	if a := account(); a.GetSpent().GetCostMicros() > limit || billOf(llm) > a.GetSpent().GetCostMicros() || a.GetInFlight().GetCostMicros() != 0 {
		t.Errorf("at the limit: %v; the bill is %d", a, billOf(llm))
	}
}
