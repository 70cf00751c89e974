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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	// haltRounds is how many halts TestHalt makes, and haltRoundsAll how many if tests run all of
	// their cases.
	haltRounds, haltRoundsAll = 6, 200
	// haltPace is how often each replica is sent a message.
	haltPace = 150 * time.Millisecond
)

// haltFile returns the configuration file of TestHalt. The company has the desk and the shop as
// members, and the office works with an agent on another server.
func haltFile(llm, card string) string {
	steps := func(of string, n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("{id: s%d, agent: %s}", i, of))
		}
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf(`version: v1
models:
  m: {provider: openai, name: model-m, base_url: %q, api_key: k}
  n: {provider: openai, name: model-n, base_url: %q, api_key: k}
agents:
  writer: {description: Writes., model: m}
  clerk: {description: Files., model: n}
  far: {description: Works elsewhere., a2a: {card: %q}}
teams:
  desk: {members: [{agent: writer}], workflow: {steps: [%s]}}
  shop: {members: [{agent: clerk}], workflow: {steps: [%s]}}
  office: {members: [{agent: far}], workflow: {steps: [%s]}}
  company:
    members: [{agent: desk}, {agent: shop}]
    workflow: {steps: [{parallel: [{id: d, agent: desk}, {id: s, agent: shop}]}]}
`, llm, llm, card, steps("writer", 12), steps("clerk", 12), steps("far", 6))
}

// arrival is a request that a provider has received.
type arrival struct {
	at          time.Time
	model, text string
}

// halting is three replicas under a steady load, with providers that note when they are called.
type halting struct {
	*testing.T
	command
	random *rand.Rand
	far    *fakeagent.Agent

	mu       sync.Mutex
	arrivals []arrival
	replicas []*replica // nil while killed
	answers  []int      // of each replica, to messages

	sent atomic.Int64
}

func newHalting(t *testing.T, random *rand.Rand) *halting {
	t.Helper()
	h := &halting{T: t, random: random, far: fakeagent.New(t, fakeagent.Config{}), replicas: make([]*replica, 3), answers: make([]int, 3)}
	llm := fakellm.New(t)
	for _, model := range []string{"model-m", "model-n"} {
		llm.Answer(model, func(r *fakellm.Request) fakellm.Turn {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.arrivals = append(h.arrivals, arrival{time.Now(), model, r.Last()})
			return fakellm.Turn{Text: r.Last(), Chunks: 2, Delay: 10 * time.Millisecond}
		})
	}
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte(haltFile(llm.URL, h.far.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	h.command = command{config: file, store: pgtest.URL(t), dir: t.ArtifactDir()}
	for i := range h.replicas {
		h.up(i)
	}
	t.Cleanup(func() {
		for i := range h.replicas {
			h.kill(i)
		}
	})
	return h
}

// up starts a replica.
func (h *halting) up(i int) {
	h.Helper()
	c := h.command
	c.args = []string{"--lease=" + lease.String(), fmt.Sprintf("--replica=r%d", i)}
	r, err := c.start()
	if err != nil {
		h.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replicas[i] = r
}

// kill kills a replica that is up.
func (h *halting) kill(i int) {
	h.mu.Lock()
	r := h.replicas[i]
	h.replicas[i] = nil
	h.mu.Unlock()
	if r != nil {
		r.end(syscall.SIGKILL)
	}
}

// replica returns a replica; nil while it is killed.
func (h *halting) replica(i int) *replica {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.replicas[i]
}

// load sends messages to all replicas until ctx ends.
func (h *halting) load(ctx context.Context) (wait func()) {
	var wg sync.WaitGroup
	for i := range h.replicas {
		wg.Go(func() {
			tick := time.NewTicker(haltPace)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				team := []string{"desk", "company", "shop", "office"}[n%4]
				if _, err := h.send(ctx, i, team, fmt.Sprintf("load-%d", h.sent.Add(1))); err == nil || reasonOf(err) == agent.ReasonHalted {
					h.mu.Lock()
					h.answers[i]++
					h.mu.Unlock()
				}
			}
		})
	}
	return wg.Wait
}

var errDown = errors.New("the replica is down")

// send sends a message to a team, and returns the id of its task.
func (h *halting) send(ctx context.Context, i int, team, id string) (string, error) {
	r := h.replica(i)
	if r == nil {
		return "", errDown
	}
	req := rig.Text(team, id, team+" "+id)
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := rig.NewREST(r.target).Send(ctx, req)
	return resp.GetTask().GetId(), err
}

func reasonOf(err error) string {
	var e *rig.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// idle waits until each replica that is up has answered some more messages.
func (h *halting) idle() {
	h.Helper()
	h.mu.Lock()
	from := append([]int(nil), h.answers...)
	h.mu.Unlock()
	await(h, "more messages are answered", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, r := range h.replicas {
			if r != nil && h.answers[i] < from[i]+3 {
				return false
			}
		}
		return true
	})
}

// target is a subject to halt, and which requests of providers are calls that it covers.
type target struct {
	kind   teamv1.HaltKind
	name   string
	model  string // of the requests; empty means any
	prefix string // of their texts
	llm    bool   // it covers requests of models
	far    bool   // it covers those of the agent on another server
	sends  string // a team that it refuses messages to; empty means none
}

var targets = []target{
	{kind: teamv1.HaltKind_HALT_KIND_SERVER, llm: true, far: true, sends: "desk"},
	{kind: teamv1.HaltKind_HALT_KIND_ACCOUNT, name: "local", llm: true, far: true, sends: "office"},
	{kind: teamv1.HaltKind_HALT_KIND_TEAM, name: "desk", llm: true, model: "model-m", sends: "desk"},
	{kind: teamv1.HaltKind_HALT_KIND_TEAM, name: "company", llm: true, prefix: "company", sends: "company"},
	{kind: teamv1.HaltKind_HALT_KIND_TEAM, name: "office", far: true, sends: "office"},
	{kind: teamv1.HaltKind_HALT_KIND_AGENT, name: "writer", llm: true, model: "model-m"},
	{kind: teamv1.HaltKind_HALT_KIND_AGENT, name: "far", far: true},
	{kind: teamv1.HaltKind_HALT_KIND_MODEL, name: "n", llm: true, model: "model-n"},
	{kind: teamv1.HaltKind_HALT_KIND_MODEL, name: "model-m", llm: true, model: "model-m"},
}

// since returns the covered requests of models after a time.
func (h *halting) since(of target, at time.Time) (list []arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.arrivals {
		if of.llm && a.at.After(at) && (of.model == "" || a.model == of.model) && strings.HasPrefix(a.text, of.prefix) {
			list = append(list, a)
		}
	}
	return list
}

// messages counts the messages that the agent on another server has received.
func (h *halting) messages() int {
	return len(h.far.Requests("SendMessage")) + len(h.far.Requests("SendStreamingMessage"))
}

// ask calls the halt service of a replica.
func ask[Resp any](h *halting, i int, call func(context.Context, teamv1.HaltServiceClient) (Resp, error)) (resp Resp, err error) {
	r := h.replica(i)
	if r == nil {
		return resp, errDown
	}
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	services := rig.Services(h, r.target)
	return call(ctx, teamv1.NewHaltServiceClient(services[h.random.IntN(len(services))]))
}

// TestHalt halts subjects of three replicas under load, some of which are killed before, while or after
// that. No provider is called after the answer, until the subject is resumed: neither by a replica
// that was there, nor by one that starts meanwhile.
func TestHalt(t *testing.T) {
	n := seed(t)
	h := newHalting(t, rand.New(rand.NewPCG(n, n)))
	rounds := haltRounds
	if sample.All() {
		rounds = haltRoundsAll
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := h.load(ctx)
	defer wait()
	defer cancel()
	from := h.random.IntN(len(targets))
	for round := range rounds {
		h.round(round, targets[(from+round)%len(targets)])
		if t.Failed() {
			return
		}
	}
}

// round halts a subject, looks that no call begins, and resumes it.
func (h *halting) round(round int, of target) {
	h.Helper()
	h.idle() // there is work
	pause, asked, victim := h.random.IntN(2) == 0, h.random.IntN(3), h.random.IntN(3)
	when := []string{"nobody", "before", "while", "after"}[h.random.IntN(4)]
	if when == "before" && victim == asked {
		victim = (victim + 1) % 3
	}
	var killing sync.WaitGroup
	switch delay := time.Duration(h.random.IntN(30)) * time.Millisecond; when {
	case "before":
		h.kill(victim)
	case "while":
		killing.Go(func() {
			<-time.After(delay)
			h.kill(victim)
		})
	}
	req := &teamv1.HaltRequest{Kind: of.kind, Name: of.name, Reason: fmt.Sprintf("round %d", round), Pause: pause}
	halt := func(i int) (*teamv1.HaltResponse, error) {
		return ask(h, i, func(ctx context.Context, c teamv1.HaltServiceClient) (*teamv1.HaltResponse, error) {
			return c.Halt(ctx, req)
		})
	}
	began := time.Now()
	resp, err := halt(asked)
	if err != nil && when == "while" && victim == asked { // it was killed before it had answered
		resp, err = halt((asked + 1) % 3)
	}
	answer, messages := time.Now(), h.messages()
	if err != nil {
		h.Fatalf("round %d, halt of %s %q, pause %v, killed %s: %v", round, of.kind, of.name, pause, when, err)
	}
	killing.Wait()
	if when == "after" {
		h.kill(victim)
	}
	h.idle()
	for i := range h.replicas {
		if h.replica(i) == nil {
			h.up(i) // what it continues is halted as well
		}
	}
	h.idle()
	id := fmt.Sprintf("again-%d", round)
	if of.sends != "" {
		for i := range h.replicas {
			if _, err := h.send(h.Context(), i, of.sends, id); reasonOf(err) != agent.ReasonHalted {
				h.Errorf("round %d: a message to %s: %v, want HALTED", round, of.sends, err)
			}
		}
	}
	late, lateMessages := h.since(of, answer), 0
	if of.far {
		lateMessages = h.messages() - messages
	}
	states := map[teamv1.HaltedState]int{}
	for _, task := range resp.GetTasks() {
		states[task.GetState()]++
	}
	h.Logf("round %3d  %-18s %-8s pause %-5v  killed %-6s  answer after %5dms  stopped %3d  calls after it: %d",
		round, of.kind, of.name, pause, when, answer.Sub(began).Milliseconds(), resp.GetTotal(), len(late)+lateMessages)
	if len(late)+lateMessages > 0 {
		for _, a := range late[:min(len(late), 5)] {
			h.Errorf("%s was called %v after the answer: %s", a.model, a.at.Sub(answer), a.text)
		}
		h.Errorf("calls of the agent on another server after the answer: %d", lateMessages)
	}
	if len(resp.GetStragglers()) > 0 || states[teamv1.HaltedState_HALTED_STATE_STOPPING] > 0 {
		h.Errorf("stragglers %v, states %v", resp.GetStragglers(), states)
	}
	h.resume(of, id)
	if pause {
		h.finish(resp)
	}
}

// resume resumes a subject, and waits until calls that its halt covered begin again.
func (h *halting) resume(of target, id string) {
	h.Helper()
	resumed := time.Now()
	messages := h.messages()
	_, err := ask(h, h.random.IntN(3), func(ctx context.Context, c teamv1.HaltServiceClient) (*teamv1.ResumeResponse, error) {
		return c.Resume(ctx, &teamv1.ResumeRequest{Kind: of.kind, Name: of.name})
	})
	if err != nil {
		h.Fatal(err)
	}
	if of.sends != "" { // the same message is taken now, and only once
		var first string
		await(h, "the message is taken", func() bool {
			first, err = h.send(h.Context(), 0, of.sends, id)
			return err == nil
		})
		if second, err := h.send(h.Context(), 0, of.sends, id); err != nil || second != first {
			h.Errorf("the message again: task %q, %v, want %q", second, err, first)
		}
	}
	await(h, "calls begin again", func() bool {
		return of.llm && len(h.since(of, resumed)) > 0 || of.far && h.messages() > messages
	})
}

// finish waits for the end of tasks that a halt had paused.
func (h *halting) finish(resp *teamv1.HaltResponse) {
	h.Helper()
	for _, t := range resp.GetTasks() {
		if t.GetState() != teamv1.HaltedState_HALTED_STATE_PAUSED {
			continue
		}
		root, _ := agent.SplitTask(t.GetTaskId())
		var task *a2av1.Task
		await(h, "the end of the paused task "+root, func() (over bool) {
			var err error
			if task, err = rig.NewREST(h.replica(0).target).Get(h.Context(), &a2av1.GetTaskRequest{Tenant: t.GetAgent(), Id: root}); err != nil {
				h.Fatal(err)
			}
			return taskstate.Final(task.GetStatus().GetState())
		})
		if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			h.Errorf("the paused task %s ended as %s: %v", root, task.GetStatus().GetState(), a2a.RunOf(task.GetMetadata()).GetError())
		}
	}
}
