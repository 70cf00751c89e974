package simulation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// cut says how a replica is cut off from the store.
type cut int

const (
	whole       cut = iota
	refused         // every request fails at once
	silent          // no request arrives
	answersLost     // requests arrive, answers do not
)

func (c cut) String() string {
	return [...]string{"whole", "refused", "silent", "without answers"}[c]
}

// node is one replica: the task handler, the engine and the driver of runs of a real server.
type node struct {
	*a2a.Handler
	name   string
	view   *view
	agents *manager.Manager
	ctx    context.Context
	end    context.CancelFunc
	served chan struct{}  // closed when the engine has returned
	work   sync.WaitGroup // of journals

	// The simulation changes these while nothing moves, with gate.mu held.
	crashed, frozen bool
	cut             cut
	begins          *beginning // nil if no step of a team begins; guarded by gate.mu
}

// The agents that tasks are sent to.
const (
	one  = "one"  // a single agent
	flow = "flow" // a team of which two members work at the same time
	asks = "asks" // a team that asks the caller
)

// schedulers are those of the teams. They are pure functions, which all simulations share.
var schedulers = sync.OnceValue(func() map[string]team.Scheduler {
	all := map[string]team.Scheduler{}
	for id, steps := range map[string][]workflow.Step{
		flow: {{ID: "first", Member: "a"}, {ID: "left", Member: "b", After: []string{"first"}}, {ID: "right", Member: "c", After: []string{"first"}}, {ID: "last", Member: "a", After: []string{"left", "right"}}},
		asks: {{ID: "first", Member: "a"}, {ID: "ask", After: []string{"first"}, Human: &workflow.Human{Question: "go on?"}}, {ID: "last", Member: "b", After: []string{"ask"}}},
	} {
		w, err := workflow.New(workflow.Config{Steps: steps})
		if err != nil {
			panic(err)
		}
		all[id] = w
	}
	return all
})

// start starts a replica.
func (w *world) start(name string) *node {
	n := &node{name: name, agents: manager.New(manager.Config{}), served: make(chan struct{})}
	n.view = &view{Store: w.db.Store, db: w.db, node: n}
	for _, id := range []string{"a", "b", "c", one} {
		w.must(n.agents.Register(id, &worker{id: id, world: w, node: n}))
	}
	for id, limits := range map[string]*teamv1.Limits{
		asks: nil,
		flow: {Timeout: durationpb.New(24 * time.Hour), MemberTimeout: durationpb.New(24 * time.Hour)}, // steps that time out together have no order
	} {
		t, err := team.New(team.Config{ID: id, Limits: limits, Mode: "workflow", Scheduler: schedulers()[id], Registry: n.agents, Upstreams: turns{w.gate, n}, Members: []team.Member{{Agent: "a"}, {Agent: "b"}, {Agent: "c"}}})
		w.must(err)
		w.must(n.agents.Register(id, t))
	}
	e := engine.New(engine.Config{Leases: n.view, Replica: name}) // there are enough slots: which of two runs frees one first does not pass the gate
	n.Handler = a2a.NewHandler(a2a.Config{Agents: n.agents, Store: n.view, Wake: e.Wake})
	runner := &drive.Runner{Agent: n.agents.Get, Replica: name}
	n.ctx, n.end = context.WithCancel(context.Background())
	go func() {
		defer close(n.served)
		_ = e.Serve(n.ctx, func(ctx context.Context, c runs.Claim) (runs.Park, error) {
			park, err := runner.Drive(context.WithValue(ctx, claimKey{}, c), c)
			// The engine counts drives that stop: those that stop together need an order.
			turns{w.gate, n}.take(fmt.Sprint("ends its drive of ", c.Root, " epoch ", c.Epoch))
			return park, err
		})
		n.work.Wait()
		n.agents.Close()
	}()
	return n
}

// claimKey is the key of the claim in the context of what is done under it.
type claimKey struct{}

// worker is an agent whose work waits at the gate.
type worker struct {
	id    string
	world *world
	node  *node
}

// Info implements agent.Agent.
func (a *worker) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: a.id, Name: a.id}, nil
}

// HealthCheck implements agent.Agent.
func (a *worker) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

// Process implements agent.Agent.
func (a *worker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if req.GetScope() == "" { // the team has done that for its members
			if err := agent.Commit(ctx); err != nil {
				yield(nil, err)
				return
			}
		}
		turns{a.world.gate, a.node}.begun(func(b *beginning) bool { return b.agent == a.id })
		c, _ := ctx.Value(claimKey{}).(runs.Claim)
		step := fmt.Sprint(c.Root, " step ", req.GetScope(), " epoch ", c.Epoch)
		said, err := a.world.gate.pass(ctx, &op{key: a.node.name + " " + a.id + " works on " + step, node: a.node, work: true})
		switch {
		case err != nil && said == fail && ctx.Err() == nil:
			a.world.called(c, req.GetScope(), true)
			yield(nil, &agent.Error{Code: agent.CodeUnavailable, Reason: agent.ReasonUnavailable, Message: "out of paper", Retry: true})
		case err != nil:
			turns{a.world.gate, a.node}.take(a.id + " stops its work on " + step)
			yield(nil, errors.Join(context.Cause(ctx), err))
		default:
			a.world.called(c, req.GetScope(), false)
			m := agent.NewMessage(a.id + "(" + agent.Text(req.GetMessage()) + ")")
			yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}}), nil)
		}
	}
}

// Reap implements agent.Reaper: calls that were canceled with their process end one after the other.
func (a *worker) Reap(_ context.Context, req *teamv1.ProcessRequest) error {
	turns{a.world.gate, a.node}.take(a.id + " ends step " + req.GetScope())
	return agent.ErrCanceled
}

// turns has the steps of a team begin and stop one after the other: what members do at the same time has
// no order otherwise. It is a team.Upstreams that admits all calls.
type turns struct {
	gate *gate
	node *node
}

// take waits for the turn of a step.
func (t turns) take(what string) {
	_, _ = t.gate.pass(context.Background(), &op{key: t.node.name + " " + what, node: t.node, work: true})
}

// Allow lets one step at a time begin: until its member works, or it has ended.
func (t turns) Allow(_, id string) (func(agent.Judgement), error) {
	_, _ = t.gate.pass(context.Background(), &op{key: t.node.name + " calls " + id, node: t.node, work: true, begins: true})
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	own := &beginning{id}
	t.node.begins = own
	return func(agent.Judgement) { t.begun(func(b *beginning) bool { return b == own }) }, nil
}

// beginning is a step that begins: it is recorded, but its member does not work yet.
type beginning struct{ agent string }

// begun lets the next step begin, if the one that begins is meant.
func (t turns) begun(meant func(*beginning) bool) {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	if t.node.begins != nil && meant(t.node.begins) {
		t.node.begins = nil
	}
}

func (turns) Open(string, string) string                  { return "" }
func (turns) Called(string, string)                       {}
func (turns) Retry(string, string) (time.Duration, error) { return 0, nil }

// called checks a call of a member: a step whose end an owner knows is not called again by it, and an
// owner calls each step once, or once more for each failure.
func (w *world) called(c runs.Claim, scope string, failed bool) {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	key := fmt.Sprint(c.Root, " ", scope, " ", c.Epoch)
	w.calls[key]++
	if w.calls[key] > 1 {
		w.gate.wrong("%s: epoch %d calls step %q again", c.Root, c.Epoch, scope)
	}
	if failed {
		w.calls[key]--
	}
	for _, ev := range w.db.logs[c.Root] {
		if ev.GetEnded() != nil && ev.GetScope() == scope && ev.epoch <= c.Epoch {
			w.gate.wrong("%s: epoch %d calls step %q, whose end is event %d", c.Root, c.Epoch, scope, ev.GetSeq())
		}
	}
}

// caller returns a context of a client.
func caller(ctx context.Context, owner string) context.Context {
	return identity.WithCaller(ctx, identity.Caller{Account: "acme", Principal: owner})
}

// message returns a request with a message.
func message(tenant, task, id, text string, at bool) *a2av1.SendMessageRequest {
	req := &a2av1.SendMessageRequest{Tenant: tenant, Message: agent.UserMessage(id, text), Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: at}}
	req.Message.TaskId = task
	if task == "" {
		req.Message.ContextId = "c"
	}
	return req
}
