// Package scenes plays the acceptance scenarios of running teams: the real server
// from a file, over the wire, its models played by a fake, on each kind of store.
package scenes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// sceneTime is how long a scene waits for what must come.
const sceneTime = 30 * time.Second

// scene is a server that was started from a file, with models that a fake plays.
type scene struct {
	t    testing.TB
	llm  *fakellm.Server
	at   rig.Place
	logs *observer.ObservedLogs
	env  map[string]string
	file string
	sent int // runs begun
	*life
}

// life is a process of the server.
type life struct {
	rig.Target
	store   *faulty.Store
	live    *manage.Registry
	stop    func() // in good order
	close   func() // of the store
	clients []rig.Client
	grpc    *rig.GRPC
	agents  teamv1.AgentServiceClient
}

// eachScene plays a scene on a server with each kind of store. The file has a
// model for each of models, which are not among its own.
func eachScene(t *testing.T, models, file string, play func(*testing.T, *scene)) {
	t.Helper()
	for _, at := range []func(testing.TB) rig.Place{rig.Memory, rig.SQLite} {
		place := at(t)
		t.Run(place.Name, func(t *testing.T) { play(t, newScene(t, place, models, file, nil)) })
	}
}

// newScene starts a server from a file; env has further variables of it.
func newScene(t testing.TB, at rig.Place, models, file string, env map[string]string) *scene {
	t.Helper()
	llm := fakellm.New(t)
	core, logs := observer.New(zap.DebugLevel)
	s := &scene{t: t, llm: llm, at: at, logs: logs, env: map[string]string{"LLM": llm.URL}}
	for k, v := range env {
		s.env[k] = v
	}
	var b strings.Builder
	b.WriteString("version: v1\nmodels:\n")
	for _, name := range strings.Fields(models) {
		fmt.Fprintf(&b, "  %s: {provider: openai, name: %s-model, base_url: \"${LLM}\", api_key: %s-%s}\n", name, name, rig.Secret, name)
	}
	s.file = b.String() + file
	s.open(rig.Logger(t, core))
	return s
}

// define reads the scene's file.
func (s *scene) define(file string) *config.Config {
	s.t.Helper()
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := s.env[name]; return v, ok }}.Parse("team.yaml", []byte(file))
	if err != nil {
		s.t.Fatal(err)
	}
	return def
}

// open begins a life of the server.
func (s *scene) open(log *zap.Logger) {
	s.t.Helper()
	inner, done := s.at.Open(s.t)
	l := &life{store: faulty.New(inner), close: done}
	var err error
	l.live, err = manage.New(manage.Config{Store: l.store, Definitions: l.store, Boards: l.store, File: s.define(s.file), Open: true, Log: log})
	if err == nil {
		err = l.live.Refresh(s.t.Context(), nil)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	var stop func()
	l.Target, stop = rig.Start(s.t, server.Config{Agents: l.live, Store: l.store, Log: log, Settings: &teamv1.ServerSettings{DefaultAgent: l.live.Served().DefaultAgent()}}, s.llm)
	l.stop = sync.OnceFunc(func() {
		stop()
		if err := l.live.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(l.stop)
	l.clients = rig.Clients(s.t, l.Target)
	if l.grpc, err = rig.NewGRPC(l.Target); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.grpc.Close() })
	l.agents = teamv1.NewAgentServiceClient(l.grpc.Conn)
	s.life = l
}

// kill ends the server hard: its store is gone before it knows. Where nothing
// outlives the process it stops in good order.
func (s *scene) kill() {
	if s.at.Durable {
		s.store.Break(faulty.Always(faulty.Fail))
	}
	s.stop()
	s.close()
}

// restart kills the server and starts another one on what is kept.
func (s *scene) restart() {
	s.t.Helper()
	s.kill()
	s.open(rig.Logger(s.t))
}

// get gets a task over some binding.
func (s *scene) get(id string) *a2av1.Task {
	s.t.Helper()
	task, err := s.clients[len(id)%len(s.clients)].Get(s.t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return task
}

// until follows a task until it is as it should be.
func (s *scene) until(id string, is func(*a2av1.Task) bool) *a2av1.Task {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), sceneTime)
	defer cancel()
	target := s.Target
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	for _, err := range rig.NewREST(target).Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
		if err != nil || is(s.get(id)) {
			break
		}
	}
	task := s.get(id)
	if !is(task) {
		s.t.Fatalf("the task is not as it should be: %v", task)
	}
	return task
}

// ended reports whether a task has ended.
func ended(task *a2av1.Task) bool {
	return slices.Contains([]a2av1.TaskState{
		a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED,
	}, task.GetStatus().GetState())
}

func wantText(t *testing.T, task *a2av1.Task, text string) {
	t.Helper()
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || textOf(task) != text {
		t.Fatalf("want the answer %q: %v", text, task)
	}
}

// ran is a run and what its caller has seen of it.
type ran struct {
	s      *scene
	req    *teamv1.ProcessRequest
	id     string // of the task
	events []*teamv1.Event
	err    error
	done   chan struct{} // closed when its stream has ended
}

// begin starts a run and returns when its task is known.
func (s *scene) begin(tenant, text string) *ran {
	s.t.Helper()
	s.sent++
	r := &ran{s: s, req: &teamv1.ProcessRequest{AgentId: tenant, Message: agent.UserMessage(fmt.Sprint("m", s.sent), text)}}
	r.follow()
	return r
}

// follow reads the run's events from the beginning.
func (r *ran) follow() {
	r.s.t.Helper()
	if r.done != nil { // the stream of a server that is gone
		<-r.done
		r.err = nil
	}
	ctx, cancel := context.WithTimeout(r.s.t.Context(), sceneTime)
	stream, err := r.s.agents.ProcessStream(r.s.grpc.Context(ctx), &teamv1.ProcessStreamRequest{Request: r.req})
	if err != nil {
		cancel()
		r.s.t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		cancel()
		r.s.t.Fatal(err)
	}
	done := make(chan struct{})
	events := []*teamv1.Event{resp.GetEvent()}
	r.id, r.done = resp.GetTaskId(), done
	go func() {
		defer cancel()
		defer close(done)
		for {
			resp, err := stream.Recv()
			if err != nil {
				if r.events = events; !errors.Is(err, io.EOF) {
					r.err = err
				}
				return
			}
			events = append(events, resp.GetEvent())
		}
	}()
	r.s.t.Cleanup(func() { <-done })
}

// wait returns when the run's stream has ended: the run has, or waits for people.
func (r *ran) wait() *ran {
	r.s.t.Helper()
	<-r.done
	if r.err != nil {
		r.s.t.Fatal(r.err)
	}
	return r
}

// again reads the whole run once more.
func (r *ran) again() *ran {
	r.s.t.Helper()
	r.follow()
	return r.wait()
}

// play runs a team to its end, and checks what must hold of every run.
func (s *scene) play(tenant, text string) *ran {
	s.t.Helper()
	r := s.begin(tenant, text).wait()
	r.verify()
	return r
}

// task is the run's, or the child's of a scope.
func (r *ran) task(scope string) *a2av1.Task {
	r.s.t.Helper()
	if scope != "" {
		return r.s.get(r.id + "~" + scope)
	}
	return r.s.get(r.id)
}

// detailed is the run's task as clients see it who activate the extension.
func (r *ran) detailed() *teamv1.TeamRun {
	r.s.t.Helper()
	target := r.s.Target
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	task, err := rig.NewREST(target).Get(r.s.t.Context(), &a2av1.GetTaskRequest{Id: r.id})
	if err != nil {
		r.s.t.Fatal(err)
	}
	return a2a.RunOf(task.GetMetadata())
}

// answer is the text of the first artifact.
func textOf(task *a2av1.Task) string {
	if len(task.GetArtifacts()) == 0 {
		return ""
	}
	return agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()})
}

// completed fails the test unless the run has ended well, with a text.
func (r *ran) completed(want string) *ran {
	r.s.t.Helper()
	task := r.task("")
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || textOf(task) != want {
		r.s.t.Fatalf("want %q: %v", want, task)
	}
	return r
}

// failed fails the test unless the run has failed for a reason.
func (r *ran) failed(reason string) *ran {
	r.s.t.Helper()
	task := r.task("")
	if e := a2a.RunOf(task.GetMetadata()).GetError(); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED || e.GetReason() != reason {
		r.s.t.Fatalf("want FAILED %s: %v", reason, task)
	}
	return r
}

// lost are the delegations that the task lists as failed: "path: outcome reason".
func (r *ran) lost() []string {
	r.s.t.Helper()
	var list []string
	for _, d := range a2a.RunOf(r.task("").GetMetadata()).GetFailedDelegations() {
		list = append(list, fmt.Sprintf("%s: %s %s", d.GetPath(), strings.ToLower(strings.TrimPrefix(d.GetOutcome().String(), "OUTCOME_")), d.GetError().GetReason()))
	}
	slices.Sort(list)
	return list
}

// verify checks the invariants I1 to I6.
func (r *ran) verify() {
	r.s.t.Helper()
	rig.Invariants{Target: r.s.Target, Store: r.s.store, Models: []rig.Models{r.s.llm}}.Check(r.s.t, r.id, r.events...)
}

// quiet returns when nothing of the models is under way any more (I3).
func (s *scene) quiet() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), sceneTime)
	defer cancel()
	if err := s.llm.Quiet(ctx); err != nil {
		s.t.Error("I3: a request to a model is still open: ", err)
	}
}

// Calls as leaders make them.

// gives is a call that gives a member a task.
func gives(member, task string) fakellm.Call {
	return fakellm.Call{ID: "call-" + member + "-" + task, Name: "delegate_to_" + member, Arguments: fmt.Sprintf(`{"task":%q}`, task)}
}

// handsTo is a turn that hands over.
func handsTo(member string) fakellm.Turn {
	return fakellm.Turn{Calls: []fakellm.Call{{ID: "to-" + member, Name: "transfer_to_agent", Arguments: fmt.Sprintf(`{"agent_name":%q}`, member)}}}
}

func acts(calls ...fakellm.Call) fakellm.Turn { return fakellm.Turn{Calls: calls} }

func speaks(text string) fakellm.Turn { return fakellm.Turn{Text: text} }

// results are what the calls of the last turn were answered with: id and text.
func results(r fakellm.Request) []string {
	var list []string
	for _, m := range slices.Backward(r.Messages) {
		if m.Role != "tool" {
			break
		}
		list = append(list, m.ToolCallID+": "+m.Text)
	}
	slices.Reverse(list)
	return list
}

// asked are the requests that a model got.
func (s *scene) asked(model string) []fakellm.Request { return s.llm.Requests(model + "-model") }

// script adds turns to those of a model.
func (s *scene) script(model string, turns ...fakellm.Turn) { s.llm.Script(model+"-model", turns...) }

// arrived waits until a gate holds so many requests.
func (s *scene) arrived(g *fakellm.Gate, n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), sceneTime)
	defer cancel()
	if err := g.Wait(ctx, n); err != nil {
		s.t.Fatal(err)
	}
}

// holds fails the test where a text lacks a piece.
func holds(t *testing.T, text string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("%q lacks %q", text, piece)
		}
	}
}
