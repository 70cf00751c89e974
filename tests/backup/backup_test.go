// Package backup makes backups of stores under load, and serves them.
package backup

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	_ "modernc.org/sqlite"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// file has an agent that answers at once, one that works for a while, and one that waits for an answer.
const file = `
version: v1
agents:
  echo: {scripted: {steps: [{echo: true}]}}
  slow: {scripted: {steps: [{delay_ms: 1500}, {echo: true}]}}
  asking: {scripted: {steps: [{ask: "Which one?"}, {text: "It is {{input}}"}]}}
server: {default_agent: echo}
`

// serveOn serves the file on a store.
func serveOn(t *testing.T, url string) *serve.Running {
	t.Helper()
	def, err := config.Loader{}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: serve.Off, Store: url, Lease: rig.Lease, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// client returns a client of an agent.
func client(t *testing.T, r *serve.Running, id string) *a2aclient.Client {
	t.Helper()
	host, port, err := net.SplitHostPort(r.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a2aclient.Open(t.Context(), "http://"+net.JoinHostPort(host, port)+"/"+id+"/.well-known/agent-card.json", a2aclient.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// acks are the tasks that were acknowledged, with their texts.
type acks struct {
	mu      sync.Mutex
	changed chan struct{}
	by      map[string]map[string]string // by agent and id of the task
}

func newAcks() *acks {
	return &acks{changed: make(chan struct{}, 1), by: map[string]map[string]string{}}
}

func (a *acks) add(id, task, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[id] == nil {
		a.by[id] = map[string]string{}
	}
	a.by[id][task] = text
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// copied returns the tasks so far.
func (a *acks) copied() (all map[string]map[string]string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all = map[string]map[string]string{}
	for id, tasks := range a.by {
		all[id] = map[string]string{}
		for task, text := range tasks {
			all[id][task] = text
			n++
		}
	}
	return all, n
}

// await waits until there are so many.
func (a *acks) await(t *testing.T, most int) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		if _, n := a.copied(); n >= most {
			return
		}
		select {
		case <-a.changed:
		case <-limit.C:
			t.Fatalf("not %d tasks within a minute", most)
		}
	}
}

// load sends messages over and over until ctx ends.
func load(ctx context.Context, t *testing.T, clients map[string]*a2aclient.Client, done *acks) *sync.WaitGroup {
	var wg sync.WaitGroup
	for worker := range 8 {
		id := []string{"echo", "echo", "echo", "slow", "echo", "echo", "asking", "echo"}[worker]
		wg.Go(func() {
			for n := 0; ctx.Err() == nil && n < 2000; n++ {
				text := fmt.Sprintf("%d-%d", worker, n)
				resp, err := clients[id].SendMessage(ctx, &a2av1.SendMessageRequest{
					Message: agent.UserMessage("m-"+text, text), Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: id != "echo"},
				})
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("%s: %v", text, err)
					return
				}
				done.add(id, resp.GetTask().GetId(), text)
			}
		})
	}
	return &wg
}

// TestP1_BackupUnderLoad makes a backup of a SQLite store while clients send tasks, and serves it: each task that was
// acknowledged before the backup began is there with its result, and those that had not ended continue.
func TestP1_BackupUnderLoad(t *testing.T) {
	file, backup := filepath.Join(t.TempDir(), "team.db"), filepath.Join(t.TempDir(), "team.backup")
	r := serveOn(t, "sqlite:"+file)
	clients := map[string]*a2aclient.Client{}
	for _, id := range []string{"echo", "slow", "asking"} {
		clients[id] = client(t, r, id)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := newAcks()
	sending := load(ctx, t, clients, done)
	done.await(t, 150)
	before, n := done.copied()
	start := time.Now()
	err := db.Backup(t.Context(), file, backup)
	took := time.Since(start)
	_, after := done.copied()
	if err != nil {
		t.Fatal(err)
	}
	done.await(t, after+20) // the load goes on
	stop()
	sending.Wait()
	t.Logf("%d tasks acknowledged before, %d at the end of the backup, in %s", n, after, took.Round(time.Millisecond))
	whole(t, backup, n)
	check(t, serveOn(t, "sqlite:"+backup), before)
}

// whole checks that a backup has at least so many tasks, some of which have not ended, and that none is half there.
func whole(t *testing.T, backup string, least int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+backup+"?mode=ro&immutable=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var tasks, open int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*), sum(ended IS NULL) FROM run`).Scan(&tasks, &open); err != nil || tasks < least || open == 0 {
		t.Errorf("%d tasks, %d not ended, %v; want at least %d", tasks, open, err, least)
	}
	for what, query := range map[string]string{
		"runs without a task":                       `SELECT count(*) FROM run WHERE id NOT IN (SELECT id FROM task)`,
		"tasks without a run":                       `SELECT count(*) FROM task WHERE id NOT IN (SELECT id FROM run)`,
		"runs that lack events":                     `SELECT count(*) FROM run WHERE seq <> (SELECT count(*) FROM event WHERE event.id = run.id)`,
		"events without a run":                      `SELECT count(*) FROM event WHERE id NOT IN (SELECT id FROM run)`,
		"runs that have ended, and their tasks not": `SELECT count(*) FROM run JOIN task ON task.id = run.id WHERE ended IS NOT NULL AND state NOT IN (3, 4, 5, 7)`,
	} {
		var n int
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil || n > 0 {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
}

// check looks at the tasks on a server with a restored store.
func check(t *testing.T, r *serve.Running, want map[string]map[string]string) {
	t.Helper()
	for id, tasks := range want {
		c := client(t, r, id)
		for task, text := range tasks {
			if id == "asking" {
				// An answer that comes before the question is a message to a task that works, and answers nothing.
				got, err := reach(t.Context(), c, task, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
				if state := got.GetStatus().GetState(); err != nil || state != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
					t.Errorf("%s does not ask: %v, %v", task, state, err)
				}
				m := agent.UserMessage("answer-"+task, "red")
				m.TaskId = task
				if _, err := c.SendMessage(t.Context(), &a2av1.SendMessageRequest{Message: m}); err != nil {
					t.Errorf("answering %s: %v", task, err)
				}
				text = "It is "
			}
			got, err := reach(t.Context(), c, task, a2av1.TaskState_TASK_STATE_COMPLETED)
			if err != nil {
				t.Errorf("%s %s: %v", id, task, err)
				continue
			}
			answer := ""
			for _, a := range got.GetArtifacts() {
				answer += a.GetParts()[0].GetText()
			}
			if got.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || len(answer) < len(text) || answer[:len(text)] != text {
				t.Errorf("%s %s: %v, answer %q, want %q", id, task, got.GetStatus().GetState(), answer, text)
			}
		}
	}
}

// reach waits until a task is in a state or has ended, for a minute at most.
func reach(ctx context.Context, c *a2aclient.Client, task string, state a2av1.TaskState) (*a2av1.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	got, err := c.GetTask(ctx, &a2av1.GetTaskRequest{Id: task})
	if err != nil || got.GetStatus().GetState() == state {
		return got, err
	}
	for _, err := range c.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: task}, 0) {
		if err != nil {
			break // it has ended meanwhile, which GetTask tells
		}
		if got, err = c.GetTask(ctx, &a2av1.GetTaskRequest{Id: task}); err != nil || got.GetStatus().GetState() == state {
			return got, err
		}
	}
	return c.GetTask(ctx, &a2av1.GetTaskRequest{Id: task})
}
