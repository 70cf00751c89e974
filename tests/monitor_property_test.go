package tests

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/tests/rig"
)

// chancyModel costs something each time, and fails at first, or always.
type chancyModel struct {
	spent    *teamv1.Spent
	failures int64 // of its first calls
	calls    atomic.Int64
}

func (*chancyModel) Name() string { return "chancy" }
func (m *chancyModel) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		if m.calls.Add(1) <= m.failures {
			e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "not now")
			e.Retry, e.Fresh, e.Spent = true, true, proto.CloneOf(m.spent)
			yield(agent.ModelChunk{}, e)
			return
		}
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: "said"}, Spent: proto.CloneOf(m.spent)}, nil)
	}
}

// grower makes random teams of random agents.
type grower struct {
	t  *testing.T
	rt *rapid.T
	m  *manager.Manager
	n  *int // agents so far
}

func (g grower) id(kind string) string {
	*g.n++
	return fmt.Sprint(kind, *g.n)
}

func (g grower) register(id string, a agent.Agent, err error) string {
	g.t.Helper()
	if err == nil {
		err = g.m.Register(id, a)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

// leaf is an agent that works for itself.
func (g grower) leaf() string {
	switch kind := rapid.SampledFrom([]string{"pays", "pays", "flaky", "broken", "fails", "asks"}).Draw(g.rt, "leaf"); kind {
	case "asks":
		id := g.id(kind)
		return g.register(id, script(g.t, id, asking("who?")...), nil)
	case "fails":
		id := g.id(kind)
		return g.register(id, act(id, func(context.Context, string) (string, error) { return "", fmt.Errorf("no") }), nil)
	default:
		id := g.id(kind)
		cost := rapid.Int64Range(0, 1000)
		model := &chancyModel{
			spent:    &teamv1.Spent{InputTokens: cost.Draw(g.rt, "in"), OutputTokens: cost.Draw(g.rt, "out"), CostMicros: cost.Draw(g.rt, "cost"), ModelCalls: 1},
			failures: map[string]int64{"pays": 0, "flaky": 1, "broken": 1 << 40}[kind],
		}
		a, err := team.NewModelAgent(team.ModelAgentConfig{ID: id, Model: model, Limits: &teamv1.Limits{
			Retry: &teamv1.Retry{Attempts: proto.Int32(2), Backoff: durationpb.New(time.Millisecond)},
		}})
		return g.register(id, a, err)
	}
}

// tree is a team whose steps are agents and teams, one behind the other or side by
// side; or a single agent.
func (g grower) tree(depth int) string {
	if depth == 0 || rapid.IntRange(0, 2).Draw(g.rt, "depth") == 0 {
		return g.leaf()
	}
	c := team.WorkflowConfig{}
	var members []team.Member
	for i := range rapid.IntRange(1, 3).Draw(g.rt, "steps") {
		step := team.WorkflowStep{ID: fmt.Sprint("s", i), Member: g.tree(depth - 1)}
		if i > 0 && rapid.Bool().Draw(g.rt, "behind") {
			step.After = []string{fmt.Sprint("s", i-1)}
		}
		c.Steps, members = append(c.Steps, step), append(members, team.Member{Agent: step.Member})
	}
	s, err := team.NewWorkflow(c)
	if err != nil {
		g.t.Fatal(err)
	}
	id := g.id("team")
	a, err := team.New(team.Config{
		ID: id, Mode: "workflow", Scheduler: s, Members: members, Registry: g.m, ReportErrors: rapid.Bool().Draw(g.rt, "goes on"),
		Limits: &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(2), Backoff: durationpb.New(time.Millisecond)}},
	})
	return g.register(id, a, err)
}

// TestI5_R_003_28_Figures: what the monitor counts is what a helper counts that knows
// nothing but the events on record, whatever the teams and whatever became of their
// tasks; a watcher that was there all the time sees the same as one that comes.
func TestI5_R_003_28_Figures(t *testing.T) {
	onStages(t, func(t *testing.T, place rig.Place) {
		store, _ := place.Open(t)
		m, n := rig.Manager(t), 0
		target := rig.Serve(t, server.Config{Agents: m, Store: store})
		clients, monitors := rig.Clients(t, target), rig.Monitors(t, target)
		rapid.Check(t, func(rt *rapid.T) {
			name := grower{t: t, rt: rt, m: m, n: &n}.tree(3)
			w := watchTeam(t, monitors[n%2], name, "")
			defer w.stop()
			w.read(t)
			var ids []string
			for range rapid.IntRange(1, 3).Draw(rt, "runs") {
				n++
				req := rig.Text(name, fmt.Sprint("m", n), "x")
				later := rapid.IntRange(0, 3).Draw(rt, "canceled") == 0
				if later {
					atOnce(req)
				}
				resp, err := clients[n%3].Send(t.Context(), req)
				if err != nil {
					rt.Fatal(err)
				}
				if id := resp.GetTask().GetId(); id != "" {
					ids = append(ids, id)
					if later { // in the middle of its work, or too late
						_, _ = clients[n%3].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id})
					}
				}
			}
			for _, id := range ids {
				quiet(rt, clients[0], id)
			}
			f := recounted(rt, store, name)
			is := func(s *teamv1.TeamSnapshot) string {
				return cmp.Diff(f, figuresOf(s), protocmp.Transform(), cmp.AllowUnexported(figures{}))
			}
			fresh := watchTeam(t, monitors[(n+1)%2], name, "")
			defer fresh.stop()
			fresh.read(t)
			if diff := is(fresh.last); diff != "" {
				rt.Fatalf("I5: the figures of %s are not what the events say (-events +monitor):\n%s", name, diff)
			}
			w.until(t, func(s *teamv1.TeamSnapshot) bool { return is(s) == "" })
			for _, id := range ids {
				tr, err := monitors[n%2].Trace(t.Context(), id)
				if err != nil {
					rt.Fatal(err)
				}
				sum := &teamv1.Spent{}
				for _, share := range tr.GetCost().GetMembers() {
					sum = agent.AddSpent(sum, share.GetOwn())
				}
				if want := spentOn(onRecord(rt, store, id), ""); !proto.Equal(sum, want) || !proto.Equal(tr.GetStep().GetSpent(), want) {
					rt.Fatalf("I5: %s cost %v, by its events %v", id, sum, want)
				}
			}
		})
	})
}

// quiet waits until a task has ended or nothing of it can go on.
func quiet(rt *rapid.T, c rig.Client, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var task *a2av1.Task
	is := func() bool {
		var err error
		if task, err = c.Get(ctx, &a2av1.GetTaskRequest{Id: id}); err != nil {
			rt.Fatal(err)
		}
		return ended(task) || task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
	}
	if is() {
		return
	}
	for range c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
		if is() {
			return
		}
	}
	if !is() {
		rt.Fatalf("the task is %v", task)
	}
}

// figures are those that are compared.
type figures struct {
	Tasks, Runs *teamv1.TaskCounts
	Spent       *teamv1.Spent
	P50, P95    time.Duration
	Members     map[string]member5
	Questions   []string
	Active      []string
}

type member5 struct {
	Tasks *teamv1.TaskCounts
	Spent *teamv1.Spent
}

func figuresOf(s *teamv1.TeamSnapshot) figures {
	c := s.GetCounters()
	f := figures{
		Tasks: c.GetTasks(), Runs: c.GetRuns(), Spent: c.GetSpent(), P50: c.GetRunP50().AsDuration(), P95: c.GetRunP95().AsDuration(),
		Members: map[string]member5{}, Questions: []string{}, Active: []string{},
	}
	for _, m := range s.GetMembers() {
		if m.GetTasks().GetTotal() > 0 {
			f.Members[m.GetId()] = member5{m.GetTasks(), m.GetSpent()}
		}
	}
	for _, q := range s.GetQuestions() {
		f.Questions = append(f.Questions, q.GetQuestion().GetQuestion())
	}
	for _, a := range s.GetActive() {
		f.Active = append(f.Active, a.GetTaskId())
	}
	slices.Sort(f.Questions)
	slices.Sort(f.Active)
	return f
}

func onRecord(rt *rapid.T, store a2a.Store, id string) []*teamv1.Event {
	records, err := store.Events(context.Background(), a2a.Key{Owner: rig.LocalOwner, ID: id}, 0, 100_000)
	if err != nil {
		rt.Fatal(err)
	}
	all := make([]*teamv1.Event, len(records))
	for i, r := range records {
		all[i] = r.Event
	}
	return all
}

// recounted counts a team's tasks that are quiet, from their events alone.
func recounted(rt *rapid.T, store a2a.Store, name string) figures {
	page, err := store.List(context.Background(), rig.LocalOwner, a2a.Filter{Agent: name, PageSize: 100})
	if err != nil || page.NextToken != "" {
		rt.Fatal(page.NextToken, err)
	}
	f := figures{
		Tasks: &teamv1.TaskCounts{}, Runs: &teamv1.TaskCounts{}, Spent: &teamv1.Spent{}, Members: map[string]member5{}, Questions: []string{}, Active: []string{},
	}
	var took []time.Duration
	for _, task := range page.Tasks {
		all := onRecord(rt, store, task.GetId())
		ends := endsOf(all)
		end := ends[""]
		count(f.Runs, end != nil, true, end.GetEnded().GetOutcome())
		f.Spent = agent.AddSpent(f.Spent, spentOn(all, ""))
		if end != nil {
			took = append(took, end.GetTime().AsTime().Sub(all[0].GetTime().AsTime()))
		} else {
			f.Active = append(f.Active, task.GetId())
		}
		open := map[string]bool{}
		for _, ev := range all {
			if a := ev.GetAsked(); a != nil {
				open[a.GetQuestion()] = !slices.ContainsFunc(all, func(later *teamv1.Event) bool {
					return later.GetAnswered().GetQuestion() == a.GetQuestion() ||
						later.GetEnded() != nil && agent.Within(ev.GetScope(), later.GetScope())
				})
			}
			for _, s := range ev.GetDecided().GetSteps() {
				scope := agent.Scope(ev.GetScope(), s.GetId())
				if s.GetMember() == "" {
					continue
				}
				outcome, over := teamv1.Outcome_OUTCOME_CANCELED, ends[scope] != nil
				for up := scope; up != "" && !over; {
					up = agent.Parent(up)
					over = ends[up] != nil
				}
				if e := ends[scope]; e != nil {
					outcome = e.GetEnded().GetOutcome()
				}
				begun := slices.ContainsFunc(all, func(e *teamv1.Event) bool { return e.GetScope() == scope && e.GetStarted() != nil })
				count(f.Tasks, over, begun, outcome)
				if ev.GetScope() == "" {
					m := f.Members[s.GetMember()]
					if m.Tasks == nil {
						m = member5{&teamv1.TaskCounts{}, &teamv1.Spent{}}
					}
					count(m.Tasks, over, begun, outcome)
					m.Spent = agent.AddSpent(m.Spent, spentOn(all, scope))
					f.Members[s.GetMember()] = m
				}
			}
		}
		for q, is := range open {
			if is {
				f.Questions = append(f.Questions, q)
			}
		}
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		f.P50, f.P95 = took[(n*50+99)/100-1], took[(n*95+99)/100-1]
	}
	slices.Sort(f.Questions)
	slices.Sort(f.Active)
	return f
}

func endsOf(all []*teamv1.Event) map[string]*teamv1.Event {
	ends := map[string]*teamv1.Event{}
	for _, ev := range all {
		if ev.GetEnded() != nil {
			ends[ev.GetScope()] = ev
		}
	}
	return ends
}

// count counts one piece of work of a task that is quiet: what has begun and not
// ended waits.
func count(c *teamv1.TaskCounts, over, begun bool, o teamv1.Outcome) {
	c.Total++
	switch {
	case !over && begun:
		c.Active++
		c.Waiting++
	case !over:
		c.Pending++
	case o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY:
		c.Done++
	case o == teamv1.Outcome_OUTCOME_CANCELED || o == teamv1.Outcome_OUTCOME_SKIPPED:
		c.Canceled++
	default:
		c.Failed++
	}
}

// spentOn adds up what the leaves below a scope have cost: each end of a step that
// decided nothing, and attempts of those without an end.
func spentOn(all []*teamv1.Event, scope string) *teamv1.Spent {
	sum, ends := &teamv1.Spent{}, endsOf(all)
	for _, ev := range all {
		at := ev.GetScope()
		if !agent.Within(at, scope) {
			continue
		}
		decides := slices.ContainsFunc(all, func(e *teamv1.Event) bool { return e.GetScope() == at && len(e.GetDecided().GetSteps()) > 0 })
		switch {
		case ev.GetEnded() != nil && !decides:
			sum = agent.AddSpent(sum, ev.GetEnded().GetSpent())
		case ev.GetRetried() != nil && ends[at] == nil:
			sum = agent.AddSpent(sum, ev.GetRetried().GetSpent())
		}
	}
	return sum
}
