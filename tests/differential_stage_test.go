package tests

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// performer is an agent whose reply is what its func says.
type performer struct {
	id      string
	perform func(ctx context.Context) (*teamv1.Reply, error)
}

func (p *performer) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: p.id, Name: p.id}, nil
}

func (p *performer) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (p *performer) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		r, err := p.perform(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		yield(agent.ReplyEvent(req, r), nil)
	}
}

// refuser rejects every task.
func refuser() agent.Agent {
	return &performer{id: "refuses", perform: func(context.Context) (*teamv1.Reply, error) {
		return &teamv1.Reply{Outcome: teamv1.Outcome_OUTCOME_REJECTED, Result: &teamv1.Reply_Message{Message: agent.NewMessage("no")}}, nil
	}}
}

// patient works until its task is canceled or the server stops.
func patient() agent.Agent {
	return &performer{id: "works", perform: func(ctx context.Context) (*teamv1.Reply, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
}

// deaf heeds no cancel until it is let go.
type deaf struct {
	*performer
	begun chan struct{} // receives with each task that it works on
	told  chan struct{} // receives with each cancel
	letGo func()
}

func newDeaf() *deaf {
	gate := make(chan struct{})
	d := &deaf{begun: make(chan struct{}, 100), told: make(chan struct{}, 100), letGo: sync.OnceFunc(func() { close(gate) })}
	d.performer = &performer{id: "deaf", perform: func(ctx context.Context) (*teamv1.Reply, error) {
		d.begun <- struct{}{}
		<-ctx.Done()
		d.told <- struct{}{}
		<-gate
		return nil, context.Cause(ctx)
	}}
	return d
}

// theCast are agents that do what tasks can do.
func theCast(t testing.TB) (*manager.Manager, *deaf) {
	d := newDeaf()
	m := rig.Manager(t, d, refuser(), patient(),
		script(t, "echoes", &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Chunks{Chunks: 3}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Echo{Echo: true}}),
		script(t, "asks", asking("Which city?")...),
		script(t, "asks-again", append(asking("Which city?"), asking("Which street?")...)...),
		&agent.Func{ID: "direct", MayReplyDirectly: true, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			return agent.NewMessage("directly: " + agent.Text(m)), nil
		}},
		&agent.Func{ID: "fails", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			return nil, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "out of ink")
		}},
		&agent.Func{ID: "reads", InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain"}, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			return m, nil
		}},
		act("shows", func(_ context.Context, text string) (string, error) { return text, nil }),
		act("hides", func(_ context.Context, text string) (string, error) { return text, nil }),
	)
	s, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "ask", Human: &workflow.Human{Question: "Go?", Roles: []string{"boss"}}}, {ID: "go", Member: "shows", After: []string{"ask"}},
	}})
	register(t, m, "workflow", s, err, team.Member{Agent: "shows"})
	return m, d
}

// sick is a store whose reads, and what begins a task, can fail in ways that the
// faulty one does not know.
type sick struct {
	*faulty.Store
	mu  sync.Mutex
	err error // guarded by mu
}

func (s *sick) is() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// falls makes the store sick until it is cured.
func (s *sick) falls(err error) (cure func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = nil
	}
}

func (s *sick) Create(ctx context.Context, n runs.New) (string, bool, error) {
	if err := s.is(); err != nil {
		return "", false, err
	}
	return s.Store.Create(ctx, n)
}

func (s *sick) Task(ctx context.Context, k runs.Key) (*a2av1.Task, int64, error) {
	if err := s.is(); err != nil {
		return nil, 0, err
	}
	return s.Store.Task(ctx, k)
}

func (s *sick) Standing(ctx context.Context, k runs.Key) (runs.Standing, error) {
	if err := s.is(); err != nil {
		return runs.Standing{}, err
	}
	return s.Store.Standing(ctx, k)
}

func (s *sick) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	if err := s.is(); err != nil {
		return nil, err
	}
	return s.Store.Events(ctx, k, after, limit)
}

func (s *sick) List(ctx context.Context, owner string, f runs.Filter) (runs.Page, error) {
	if err := s.is(); err != nil {
		return runs.Page{}, err
	}
	return s.Store.List(ctx, owner, f)
}

// house are servers that are called in every way that may be refused, and the
// tasks that are there to be called about.
type house struct {
	targets map[string]rig.Target
	clients map[string][]rig.Client // of the targets
	tasks   map[string]*a2av1.Task
	// answered is the question that the task of this name has an answer to.
	answered string
	store    *sick
	deaf     *deaf
}

// newHouse serves.
func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{targets: map[string]rig.Target{}, clients: map[string][]rig.Client{}, tasks: map[string]*a2av1.Task{}}
	h.store = &sick{Store: faulty.New(memstore.Open(t))}
	var agents *manager.Manager
	agents, h.deaf = theCast(t)
	base := server.Config{
		Agents:        agents,
		Store:         h.store,
		ExtendedCards: extendedCards,
		Settings:      &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", "ann"), rig.Key("acme", "bob")), TrustedProxies: []string{"127.0.0.0/8"}},
	}
	open := rig.Serve(t, base)
	t.Cleanup(h.deaf.letGo)
	with := func(name string, target rig.Target, change func(*rig.Target)) {
		if change != nil {
			change(&target)
		}
		h.targets[name] = target
		h.clients[name] = rig.Clients(t, target)
	}
	headers := func(name, value string) func(*rig.Target) {
		return func(t *rig.Target) { t.Headers = map[string]string{name: value} }
	}
	ann := open.As("acme", "ann")
	with("ann", ann, nil)
	with("bob", open.As("acme", "bob"), nil)
	with("no key", open, nil)
	for i, rpc := range every { // from an address each: many wrong keys from one are not looked at
		with("a wrong key for "+rpc, open.As("acme", "eve"), headers("x-forwarded-for", fmt.Sprintf("192.0.2.%d", i)))
	}
	with("another scheme", open, headers("authorization", "Basic YW5uOnB3"))
	with("version 0.5", ann, func(t *rig.Target) { t.Version = "0.5" })
	with("version 99.0", ann, func(t *rig.Target) { t.Version = "99.0" })
	with("a bad depth", ann, headers("team-path", "deep"))
	with("a bad cursor", ann, headers("last-event-id", "x"))
	with("in a hurry", ann, func(t *rig.Target) { t.Patience = 100 * time.Millisecond })
	with("in less of a hurry", ann, func(t *rig.Target) { t.Patience = 500 * time.Millisecond }) // a busy machine gets to the wait
	other := func(change func(*server.Config)) rig.Target {
		c := base
		c.Store, c.Settings = nil, proto.CloneOf(base.Settings)
		change(&c)
		return rig.Serve(t, c).As("acme", "ann")
	}
	with("no push", other(func(c *server.Config) { c.Settings.Push = &teamv1.PushSettings{Enabled: proto.Bool(false)} }), nil)
	with("no version", other(func(c *server.Config) {
		c.Settings.Protocol = &teamv1.ProtocolSettings{StrictVersion: true, V0_3: proto.Bool(false)}
	}), func(t *rig.Target) { t.Version = "-" })
	needs := other(func(c *server.Config) { c.Settings.Protocol = &teamv1.ProtocolSettings{RequireTeamRun: true} })
	with("no extension", needs, nil)
	with("another extension", needs, headers("a2a-extensions", a2a.RoutingURI))
	with("one seat", other(func(c *server.Config) { c.Settings.Streams = &teamv1.StreamSettings{PerCaller: proto.Int32(1)} }), nil)
	halted := memstore.Open(t)
	if err := halted.Halt(t.Context(), &teamv1.Halt{Kind: teamv1.HaltKind_HALT_KIND_SERVER, Reason: "wrong prices", By: "acme/ann"}, nil); err != nil {
		t.Fatal(err)
	}
	with("halted", other(func(c *server.Config) { c.Store = halted }), nil)
	h.furnish(t)
	return h
}

// extendedCards: one agent's is for everybody, another one's not for ann.
func extendedCards(id string) []a2a.ExtendedCard {
	switch id {
	case "shows":
		return []a2a.ExtendedCard{{Description: "more"}}
	case "hides":
		return []a2a.ExtendedCard{{Description: "more", For: []string{"acme/bob"}}}
	}
	return nil
}

// furnish makes the tasks.
func (h *house) furnish(t *testing.T) {
	t.Helper()
	ann := h.clients["ann"][0]
	for name, from := range map[string]string{
		"completed": "echoes", "failed": "fails", "rejected": "refuses", "asking": "asks", "approving": "team", "reading": "reads", "hooked": "asks",
	} {
		h.tasks[name] = send(t, ann, rig.Text(from, "first-"+name, "High tide"))
	}
	for name, from := range map[string]string{"working": "works", "deaf": "deaf"} {
		h.tasks[name] = send(t, ann, atOnce(rig.Text(from, "first-"+name, "High tide")))
	}
	gone := send(t, ann, rig.Text("asks", "first-canceled", "High tide"))
	var err error
	if h.tasks["canceled"], err = ann.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: gone.GetId()}); err != nil {
		t.Fatal(err)
	}
	asked := send(t, ann, rig.Text("asks-again", "first-answered", "High tide"))
	h.answered = a2a.RunOf(asked.GetMetadata()).GetQuestions()[0].GetQuestion()
	h.tasks["answered"] = send(t, ann, answerTo(asked, "second-answered"))
	h.tasks["seated"] = send(t, h.clients["one seat"][0], atOnce(rig.Text("works", "first-seated", "High tide")))
	for range runs.MaxPushTask {
		if _, err := ann.(rig.PushClient).CreatePush(t.Context(), hook(h.id("hooked"), "", "http://127.0.0.1:1/hook")); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *house) id(name string) string { return h.tasks[name].GetId() }

// about is what one call is about; empty fields are those of a call that works,
// but for the task.
type about struct {
	tenant, task, id string
	after            int64
	change           func(proto.Message) // of the request, before it is sent
}

// operation is a way to call one of the protocol's operations.
type operation struct {
	name string
	rpc  string // as the service's descriptor has it
	do   func(ctx context.Context, c rig.PushClient, a about) tried
}

// request is a message to an agent or to a task.
func (a about) request() *a2av1.SendMessageRequest {
	req := rig.Text(a.tenant, a.id, "High tide")
	req.Message.TaskId = a.task
	return req
}

func (a about) changed(req proto.Message) {
	if a.change != nil {
		a.change(req)
	}
}

// operations are all, with each way to send.
func operations() []operation {
	send := func(prepare func(*a2av1.SendMessageRequest)) func(context.Context, rig.PushClient, about) tried {
		return func(ctx context.Context, c rig.PushClient, a about) tried {
			req := a.request()
			prepare(req)
			a.changed(req)
			resp, err := c.Send(ctx, req)
			if m := resp.GetMessage(); m != nil {
				return tried{Answer: m, Fault: rig.Fault(err)}
			}
			return tried{Answer: resp.GetTask(), Fault: rig.Fault(err)}
		}
	}
	directly := func(req *a2av1.SendMessageRequest) {
		if req.GetTenant() == "echoes" {
			req.Tenant = "direct"
		}
	}
	return []operation{
		{"SendMessage", "SendMessage", send(func(*a2av1.SendMessageRequest) {})},
		{"SendMessage at once", "SendMessage", send(func(req *a2av1.SendMessageRequest) { atOnce(req) })},
		{"SendMessage replied to directly", "SendMessage", send(directly)},
		{"SendStreamingMessage", "SendStreamingMessage", func(ctx context.Context, c rig.PushClient, a about) tried {
			req := a.request()
			a.changed(req)
			events, err := rig.Collect(c.Stream(ctx, req))
			return tried{Events: events, Fault: rig.Fault(err)}
		}},
		{"GetTask", "GetTask", unaryOf(func(a about) *a2av1.GetTaskRequest { return &a2av1.GetTaskRequest{Tenant: a.tenant, Id: a.task} }, rig.PushClient.Get)},
		{"ListTasks", "ListTasks", unaryOf(func(a about) *a2av1.ListTasksRequest { return &a2av1.ListTasksRequest{Tenant: a.tenant} }, rig.PushClient.List)},
		{"CancelTask", "CancelTask", unaryOf(func(a about) *a2av1.CancelTaskRequest {
			return &a2av1.CancelTaskRequest{Tenant: a.tenant, Id: a.task}
		}, rig.PushClient.Cancel)},
		{"SubscribeToTask", "SubscribeToTask", func(ctx context.Context, c rig.PushClient, a about) tried {
			req := &a2av1.SubscribeToTaskRequest{Tenant: a.tenant, Id: a.task}
			a.changed(req)
			events, err := rig.Collect(c.Subscribe(ctx, req, a.after))
			return tried{Events: events, Fault: rig.Fault(err)}
		}},
		{"CreateTaskPushNotificationConfig", "CreateTaskPushNotificationConfig", unaryOf(func(a about) *a2av1.TaskPushNotificationConfig {
			conf := hook(a.task, "hook", "http://127.0.0.1:1/hook")
			conf.Tenant = a.tenant
			return conf
		}, rig.PushClient.CreatePush)},
		{"GetTaskPushNotificationConfig", "GetTaskPushNotificationConfig", unaryOf(func(a about) *a2av1.GetTaskPushNotificationConfigRequest {
			return &a2av1.GetTaskPushNotificationConfigRequest{Tenant: a.tenant, TaskId: a.task, Id: "hook"}
		}, rig.PushClient.GetPush)},
		{"ListTaskPushNotificationConfigs", "ListTaskPushNotificationConfigs", unaryOf(func(a about) *a2av1.ListTaskPushNotificationConfigsRequest {
			return &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: a.tenant, TaskId: a.task}
		}, rig.PushClient.ListPushes)},
		{"DeleteTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig", func(ctx context.Context, c rig.PushClient, a about) tried {
			req := &a2av1.DeleteTaskPushNotificationConfigRequest{Tenant: a.tenant, TaskId: a.task, Id: "hook"}
			a.changed(req)
			return tried{Fault: rig.Fault(c.DeletePush(ctx, req))}
		}},
		{"GetExtendedAgentCard", "GetExtendedAgentCard", unaryOf(func(a about) *a2av1.GetExtendedAgentCardRequest {
			return &a2av1.GetExtendedAgentCardRequest{Tenant: a.tenant}
		}, rig.PushClient.Card)},
	}
}

// unaryOf is an operation with one answer.
func unaryOf[Req, Resp proto.Message](make func(about) Req, do func(rig.PushClient, context.Context, Req) (Resp, error)) func(context.Context, rig.PushClient, about) tried {
	return func(ctx context.Context, c rig.PushClient, a about) tried {
		req := make(a)
		a.changed(req)
		resp, err := do(c, ctx, req)
		if err != nil {
			return tried{Fault: rig.Fault(err)}
		}
		return tried{Answer: resp}
	}
}

var errSecret = errors.New("the password is 1234")

// long is a text of so many bytes.
func long(n int) string { return strings.Repeat("x", n) }
