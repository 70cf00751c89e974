package a2a_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/team"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	submitted     = a2av1.TaskState_TASK_STATE_SUBMITTED
	working       = a2av1.TaskState_TASK_STATE_WORKING
	completed     = a2av1.TaskState_TASK_STATE_COMPLETED
	failed        = a2av1.TaskState_TASK_STATE_FAILED
	canceled      = a2av1.TaskState_TASK_STATE_CANCELED
	inputRequired = a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
)

// rig is a handler over the real store, engine, driver and manager.
type rig struct {
	*a2a.Handler
	store  *sqlstore.Store
	agents *manager.Manager
	wake   func() // of the engine
}

// start serves agents until the test ends.
func start(t testing.TB, agents ...agent.Agent) *rig {
	t.Helper()
	return startWith(t, a2a.Config{}, agents...)
}

func startWith(t testing.TB, c a2a.Config, agents ...agent.Agent) *rig {
	t.Helper()
	r := &rig{store: memstore.Open(t), agents: manager.New(manager.Config{})}
	t.Cleanup(r.agents.Close)
	r.add(t, agents...)
	e := engine.New(engine.Config{Leases: r.store})
	c.Agents, c.Store, c.Wake = r.agents, r.store, e.Wake
	c.Overview, c.Approvals, c.Conversations, c.Pushes = r.store, r.store, r.store, r.store
	r.Handler = a2a.NewHandler(c)
	r.wake = e.Wake
	runner := &drive.Runner{Agent: r.agents.Get, Conversations: r.store, Tasks: r.Handler}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, runner.Drive) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func (r *rig) add(t testing.TB, agents ...agent.Agent) {
	t.Helper()
	for _, a := range agents {
		info, err := a.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.agents.Register(info.GetId(), a); err != nil {
			t.Fatal(err)
		}
	}
}

// ann is a call by the owner of most tasks here.
func ann(t testing.TB) context.Context {
	return identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann"})
}

func bob(t testing.TB) context.Context {
	return identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "bob"})
}

// message is a request with a fresh message for an agent.
func message(tenant, text string) *a2av1.SendMessageRequest {
	return &a2av1.SendMessageRequest{Tenant: tenant, Message: agent.UserMessage(uuid.NewString(), text)}
}

// reply is a request with a fresh message for a task.
func reply(task, text string) *a2av1.SendMessageRequest {
	req := message("", text)
	req.Message.TaskId = task
	return req
}

// atOnce makes a request return without waiting.
func atOnce(req *a2av1.SendMessageRequest) *a2av1.SendMessageRequest {
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	return req
}

// about names a question, or a delegation, in a request.
func about(req *a2av1.SendMessageRequest, field, id string) *a2av1.SendMessageRequest {
	s, err := structpb.NewStruct(map[string]any{project.TeamRunURI: map[string]any{field: id}})
	if err != nil {
		panic(err)
	}
	req.Metadata = s
	return req
}

// send sends and wants a task.
func (r *rig) send(t testing.TB, ctx context.Context, req *a2av1.SendMessageRequest) *a2av1.Task {
	t.Helper()
	resp, err := r.SendMessage(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetTask() == nil {
		t.Fatalf("got %v, want a task", resp)
	}
	return resp.GetTask()
}

func (r *rig) get(t testing.TB, id string) *a2av1.Task {
	t.Helper()
	task, err := r.GetTask(ann(t), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// until follows a task to a state and returns it.
func (r *rig) until(t testing.TB, id string, state a2av1.TaskState) *a2av1.Task {
	t.Helper()
	updates, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, 0)
	if errors.Is(err, a2aerror.UnsupportedOperation("")) { // it has ended
		return wantState(t, r.get(t, id), state)
	}
	if err != nil {
		t.Fatal(err)
	}
	for u, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
		if u.Response.GetTask().GetStatus().GetState() == state || u.Response.GetStatusUpdate().GetStatus().GetState() == state {
			break
		}
	}
	return wantState(t, r.get(t, id), state)
}

func wantState(t testing.TB, task *a2av1.Task, state a2av1.TaskState) *a2av1.Task {
	t.Helper()
	if task.GetStatus().GetState() != state {
		t.Fatalf("task is %s, want %s: %v", task.GetStatus().GetState(), state, task)
	}
	return task
}

// answer is the text of the first artifact: all others are members'.
func answer(t testing.TB, task *a2av1.Task) string {
	t.Helper()
	own := 0
	for _, a := range task.GetArtifacts() {
		if project.RunOf(a.GetMetadata()).GetDelegationId() == "" {
			own++
		}
	}
	if own != 1 {
		t.Fatalf("task has %d artifacts, want 1: %v", len(task.GetArtifacts()), task)
	}
	return artifactText(task.GetArtifacts()[0])
}

func artifactText(a *a2av1.Artifact) string {
	return agent.Text(&a2av1.Message{Parts: project.JoinTexts(a.GetParts())})
}

func texts(history []*a2av1.Message) []string {
	var out []string
	for _, m := range history {
		out = append(out, agent.Text(m))
	}
	return out
}

// wantError wants an error with a reason.
func wantError(t testing.TB, err error, reason string) {
	t.Helper()
	if got := reasonOf(err); got != reason {
		t.Fatalf("got the error %v, want %s", err, reason)
	}
}

func reasonOf(err error) string {
	var pe *a2aerror.Error
	if errors.As(err, &pe) {
		return pe.Reason
	}
	var ae *agent.Error
	if errors.As(err, &ae) {
		return ae.Reason
	}
	return ""
}

// wantFields wants an error with exactly these faults.
func wantFields(t testing.TB, err error, fields ...string) {
	t.Helper()
	var e *a2aerror.Error
	if !errors.As(err, &e) || e.Reason != agent.ReasonInvalidRequest {
		t.Fatalf("got the error %v, want INVALID_REQUEST", err)
	}
	var got []string
	for _, v := range e.Violations {
		got = append(got, v.Field)
	}
	if diff := cmp.Diff(fields, got); diff != "" {
		t.Fatalf("faults (-want +got):\n%s%v", diff, err)
	}
}

// reporter is a test, or one draw of a property test.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func equal(t reporter, want, got proto.Message) {
	t.Helper()
	if proto.Equal(want, got) {
		return
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// view folds what a reader is told, as the protocol says.
type view struct {
	task    *a2av1.Task
	message *a2av1.Message
	seq     int64
}

func (v *view) take(t reporter, u feed.Update) {
	t.Helper()
	if u.Seq != 0 {
		if u.Seq < v.seq {
			t.Errorf("sequence goes back from %d to %d", v.seq, u.Seq)
		}
		v.seq = u.Seq
	}
	switch k := u.Response.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		v.task = proto.CloneOf(k.Task)
	case *a2av1.StreamResponse_Message:
		v.message = k.Message
	case *a2av1.StreamResponse_StatusUpdate:
		if v.task == nil {
			t.Fatal("an update came before the task")
		}
		v.task.Status = proto.CloneOf(k.StatusUpdate.GetStatus())
		for key, value := range k.StatusUpdate.GetMetadata().GetFields() {
			v.task.Metadata.Fields[key] = proto.CloneOf(value)
		}
	case *a2av1.StreamResponse_ArtifactUpdate:
		v.artifact(t, k.ArtifactUpdate)
	}
}

func (v *view) artifact(t reporter, u *a2av1.TaskArtifactUpdateEvent) {
	t.Helper()
	if v.task == nil {
		t.Fatal("an artifact came before the task")
	}
	i := slices.IndexFunc(v.task.GetArtifacts(), func(a *a2av1.Artifact) bool { return a.GetArtifactId() == u.GetArtifact().GetArtifactId() })
	switch {
	case i < 0 && u.GetAppend():
		t.Errorf("appends to artifact %s, which was never told", u.GetArtifact().GetArtifactId())
	case i < 0:
		v.task.Artifacts = append(v.task.Artifacts, proto.CloneOf(u.GetArtifact()))
	case u.GetAppend():
		a := v.task.GetArtifacts()[i]
		a.Parts = append(a.Parts, proto.CloneOf(u.GetArtifact()).GetParts()...)
	default:
		v.task.Artifacts[i] = proto.CloneOf(u.GetArtifact())
	}
}

// follow reads a stream to its end.
func follow(t testing.TB, updates iter.Seq2[feed.Update, error]) *view {
	t.Helper()
	v := &view{}
	for u, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
		v.take(t, u)
	}
	return v
}

// sameTask compares what a reader has put together with what GetTask says.
// History is no part of updates, and a snapshot's cursor may be behind the last event.
func sameTask(t reporter, got, want *a2av1.Task) {
	t.Helper()
	got, want = proto.CloneOf(got), proto.CloneOf(want)
	for _, task := range []*a2av1.Task{got, want} {
		task.History = nil
		for _, a := range task.GetArtifacts() {
			a.Parts = project.JoinTexts(a.GetParts())
		}
		delete(task.GetMetadata().GetFields()[project.TeamRunURI].GetStructValue().GetFields(), "seq")
	}
	equal(t, want, got)
}

// The agents of the tests.

func echo(id string) *agent.Func {
	return &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage("echo: " + agent.Text(m)), nil
	}}
}

// direct answers without a task.
func direct(id string) *agent.Func {
	f := echo(id)
	f.MayReplyDirectly = true
	return f
}

func failing(id string, err error) *agent.Func {
	return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { return nil, err }}
}

func panicking(id string) *agent.Func {
	return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { panic("secret of the agent") }}
}

// gate holds every call until it is opened.
type gate struct {
	*agent.Func
	entered chan string
	open    func()
}

func newGate(id string) *gate {
	opened := make(chan struct{})
	g := &gate{entered: make(chan string, 100), open: sync.OnceFunc(func() { close(opened) })}
	g.Func = &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		g.entered <- agent.Text(m)
		select {
		case <-opened:
			return agent.NewMessage("through: " + agent.Text(m)), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
	return g
}

// stubborn ignores its context until it is let go; begun is closed when it is called.
func stubborn(id string) (a agent.Agent, begun <-chan struct{}, letGo func()) {
	called, release := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(called) })
	return talker{id: id, talk: func(context.Context, func(*teamv1.Event) bool) {
		begin()
		<-release
	}}, called, sync.OnceFunc(func() { close(release) })
}

func script(t testing.TB, id string, steps ...*teamv1.ScriptedStep) agent.Agent {
	t.Helper()
	a, err := scripted.New(scripted.Config{ID: id, Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ask(text string) *teamv1.ScriptedStep {
	return &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Ask{Ask: text}}
}

func say(text string) *teamv1.ScriptedStep {
	return &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Text{Text: text}}
}

func chunks(n int32) *teamv1.ScriptedStep {
	return &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Chunks{Chunks: n}}
}

// talker yields what its func says, and then replies "done".
type talker struct {
	id   string
	talk func(ctx context.Context, emit func(*teamv1.Event) bool)
}

func (a talker) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: a.id, Name: a.id}, nil
}

func (a talker) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (a talker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		more := true
		a.talk(ctx, func(ev *teamv1.Event) bool {
			ev.Scope, ev.Agent = req.GetScope(), agent.Path(req)
			more = more && yield(ev, nil)
			return more
		})
		if more {
			yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("done")}}), nil)
		}
	}
}

// plan is a scheduler made of a func.
func plan(f func(*team.State) (team.Decision, error)) team.Scheduler { return planned{decide: f} }

type planned struct {
	team.Base
	decide func(*team.State) (team.Decision, error)
}

func (p planned) Next(s *team.State) (team.Decision, error) { return p.decide(s) }

// together gives the input to all members at the same time and joins what they say.
func together(members ...string) team.Scheduler {
	return plan(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) > 0 {
			if len(s.Open()) > 0 || s.Last == nil {
				return team.Decision{}, nil
			}
			return team.Decision{Reply: s.Last.Message, Reason: "all have answered"}, nil
		}
		d := team.Decision{Reason: "everybody"}
		for _, m := range members {
			d.Steps = append(d.Steps, &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: m})
		}
		return d, nil
	})
}

// newTeam registers a team of registered agents.
func (r *rig) newTeam(t testing.TB, id string, s team.Scheduler, members ...string) {
	t.Helper()
	r.newTeamOf(t, team.Config{ID: id, Scheduler: s}, members...)
}

func (r *rig) newTeamOf(t testing.TB, c team.Config, members ...string) {
	t.Helper()
	c.Registry = r.agents
	for _, m := range members {
		c.Members = append(c.Members, team.Member{Agent: m, Timeout: time.Minute})
	}
	tm, err := team.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.add(t, tm)
}

func teamConfig(id string, s team.Scheduler, l *teamv1.Limits) team.Config {
	return team.Config{ID: id, Scheduler: s, Limits: l}
}
