package drive_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	working       = a2av1.TaskState_TASK_STATE_WORKING
	completed     = a2av1.TaskState_TASK_STATE_COMPLETED
	failed        = a2av1.TaskState_TASK_STATE_FAILED
	canceled      = a2av1.TaskState_TASK_STATE_CANCELED
	inputRequired = a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
)

var errDied = errors.New("died")

// agents are those of a test.
type agents struct{ *manager.Manager }

func newAgents(t *testing.T, list ...agent.Agent) agents {
	t.Helper()
	all := agents{manager.New(manager.Config{})}
	t.Cleanup(all.Close)
	all.add(t, list...)
	return all
}

func (all agents) add(t *testing.T, list ...agent.Agent) {
	t.Helper()
	for _, a := range list {
		info, err := a.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := all.Register(info.GetId(), a); err != nil {
			t.Fatal(err)
		}
	}
}

// runner drives runs of the agents.
func (all agents) runner() *drive.Runner { return &drive.Runner{Agent: all.Get} }

// newTeam adds a team whose members work one after the other.
func (all agents) newTeam(t *testing.T, id string, members ...string) {
	t.Helper()
	steps := make([]workflow.Step, len(members))
	for i, m := range members {
		steps[i] = workflow.Step{ID: m, Member: m}
		if i > 0 {
			steps[i].After = members[i-1 : i]
		}
	}
	all.newWorkflow(t, team.Config{ID: id}, steps)
}

// newPair adds a team whose members work at the same time, as many as may.
func (all agents) newPair(t *testing.T, c team.Config, members ...string) {
	t.Helper()
	steps := make([]workflow.Step, len(members))
	for i, m := range members {
		steps[i] = workflow.Step{ID: m, Member: m}
	}
	all.newWorkflow(t, c, steps)
}

func (all agents) newWorkflow(t *testing.T, c team.Config, steps []workflow.Step) {
	t.Helper()
	var err error
	if c.Scheduler, err = workflow.New(workflow.Config{Steps: steps}); err != nil {
		t.Fatal(err)
	}
	c.Registry = all.Manager
	for _, s := range steps {
		c.Members = append(c.Members, team.Member{Agent: s.Member, Timeout: time.Minute})
	}
	tm, err := team.New(c)
	if err != nil {
		t.Fatal(err)
	}
	all.add(t, tm)
}

// echo answers with what it is given.
func echo(id string) agent.Agent {
	return &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage("echo: " + agent.Text(m)), nil
	}}
}

// gate holds every call until it is opened.
type gate struct {
	agent.Agent
	entered chan struct{}
	open    func()
}

func newGate(id string) *gate {
	opened := make(chan struct{})
	g := &gate{entered: make(chan struct{}, 100), open: sync.OnceFunc(func() { close(opened) })}
	g.Agent = &agent.Func{ID: id, Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		g.entered <- struct{}{}
		select {
		case <-opened:
			return agent.NewMessage("through"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
	return g
}

func wantState(t *testing.T, task *a2av1.Task, state a2av1.TaskState) *a2av1.Task {
	t.Helper()
	if task.GetStatus().GetState() != state {
		t.Fatalf("task is %s, want %s: %v", task.GetStatus().GetState(), state, task)
	}
	return task
}

// dying is a journal whose process dies at an event that is so.
type dying struct {
	runs.Journal
	at   func(*teamv1.Event) bool
	dead atomic.Bool
}

func (j *dying) Append(ctx context.Context, events ...*teamv1.Event) error {
	if slices.ContainsFunc(events, j.at) {
		j.dead.Store(true)
	}
	if j.dead.Load() {
		return errDied
	}
	return j.Journal.Append(ctx, events...)
}

func (j *dying) Commit(ctx context.Context) error {
	if j.dead.Load() {
		return errDied
	}
	return j.Journal.Commit(ctx)
}

// single is a run that the test itself drives.
type single struct {
	*sqlstore.Store
	key  runs.Key
	held runs.Claim
}

func newSingle(t *testing.T, agentID string) *single {
	t.Helper()
	s := &single{Store: memstore.Open(t), key: runs.Key{Owner: "acme/ann", ID: uuid.NewString()}}
	acc := &teamv1.Accepted{TaskId: s.key.ID, Agent: agentID, Owner: s.key.Owner, Message: agent.UserMessage("m", "hi")}
	if _, _, err := s.Create(t.Context(), runs.New{Owner: s.key.Owner, Accepted: acc, MessageID: "m"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// take claims the run for the next process.
func (s *single) take(t *testing.T) runs.Claim {
	t.Helper()
	claims, _, err := s.Claim(t.Context(), "r", engine.NewRoom(1, nil))
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	s.held = claims[0]
	return s.held
}

// die gives the run up, as the end of a lease does.
func (s *single) die(t *testing.T) {
	t.Helper()
	if _, err := s.Release(t.Context(), s.held, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func (s *single) task(t *testing.T) *a2av1.Task {
	t.Helper()
	task, _, err := s.Task(t.Context(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (s *single) cancel(t *testing.T) {
	t.Helper()
	in := &teamv1.Inbound{Key: "cancel/", Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}}
	if _, _, err := s.Put(t.Context(), s.key, in, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// until waits until so many events are of a kind.
func (s *single) until(t *testing.T, n int, is func(*teamv1.Event) bool) {
	t.Helper()
	wake, stop := s.Watch(s.key.ID)
	defer stop()
	for {
		records, err := s.Events(t.Context(), s.key, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, rec := range records {
			if is(rec.Event) {
				seen++
			}
		}
		if seen >= n {
			return
		}
		<-wake
	}
}

// command leaves a command in the inbox.
func (s *single) command(t *testing.T, key string, c *teamv1.Commanded) {
	t.Helper()
	in := &teamv1.Inbound{Key: key, Kind: &teamv1.Inbound_Commanded{Commanded: c}}
	if _, _, err := s.Put(t.Context(), s.key, in, nil, nil); err != nil {
		t.Fatal(err)
	}
}

func (s *single) events(t *testing.T) []*teamv1.Event {
	t.Helper()
	records, err := s.Events(t.Context(), s.key, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	events := make([]*teamv1.Event, len(records))
	for i, rec := range records {
		events[i] = rec.Event
	}
	return events
}

func isCommand(c teamv1.Commanded_Command) func(*teamv1.Event) bool {
	return func(ev *teamv1.Event) bool { return ev.GetCommanded().GetCommand() == c }
}

// untilOr waits until an event is on record, or the drive has ended.
func (s *single) untilOr(t *testing.T, done chan runs.Park, park *runs.Park, is func(*teamv1.Event) bool) {
	t.Helper()
	wake, stop := s.Watch(s.key.ID)
	defer stop()
	for !slices.ContainsFunc(s.events(t), is) {
		select {
		case <-wake:
		case *park = <-done:
			done <- *park
			return
		}
	}
}
