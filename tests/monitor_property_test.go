package tests

import (
	"context"
	"fmt"
	"iter"
	"maps"
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
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
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
	n  *int      // agents so far
	of *[]string // ids of those that it made
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
	*g.of = append(*g.of, id)
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
		a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: model, Limits: &teamv1.Limits{
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
	c := workflow.Config{}
	var members []team.Member
	for i := range rapid.IntRange(1, 3).Draw(g.rt, "steps") {
		m := team.Member{Agent: g.tree(depth - 1)}
		m.ID = m.Agent
		if rapid.Bool().Draw(g.rt, "called otherwise") {
			m.ID = fmt.Sprint("m", i)
		}
		step := workflow.Step{ID: fmt.Sprint("s", i), Member: m.ID}
		if i > 0 && rapid.Bool().Draw(g.rt, "behind") {
			step.After = []string{fmt.Sprint("s", i-1)}
		}
		c.Steps, members = append(c.Steps, step), append(members, m)
		if rapid.IntRange(0, 3).Draw(g.rt, "again") == 0 {
			c.Steps = append(c.Steps, workflow.Step{ID: fmt.Sprint("again", i), Member: m.ID})
		}
	}
	s, err := workflow.New(c)
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
// tasks: of the team that they were sent to, and of any that works in it as a member, at
// whatever depth and under whatever name. A watcher that was there all the time sees the
// same as one that comes.
func TestI5_R_003_28_Figures(t *testing.T) {
	sample.Checks(t, 100)
	onStages(t, func(t *testing.T, place rig.Place) {
		store, _ := place.Open(t)
		m, n := rig.Manager(t), 0
		target := rig.Serve(t, server.Config{Agents: m, Store: store})
		clients, monitors := rig.Clients(t, target), rig.Monitors(t, target)
		services := rig.Services(t, target)
		of := map[teamv1.CostGroup]map[string]*teamv1.Spent{ // what all tasks have spent by their traces
			teamv1.CostGroup_COST_GROUP_MEMBER: {}, teamv1.CostGroup_COST_GROUP_TEAM: {}, teamv1.CostGroup_COST_GROUP_MODEL: {},
		}
		rapid.Check(t, func(rt *rapid.T) {
			var made []string
			name := grower{t: t, rt: rt, m: m, n: &n, of: &made}.tree(3)
			watched := []string{name, rapid.SampledFrom(made).Draw(rt, "member")}
			var here []*teamWatch
			for i, watch := range watched {
				w := watchTeam(t, monitors[(n+i)%2], watch, "")
				defer w.stop()
				w.read(t)
				here = append(here, w)
			}
			var ids []string
			for range rapid.IntRange(1, 3).Draw(rt, "runs") {
				n++
				req := rig.Text(rapid.SampledFrom([]string{name, name, watched[1]}).Draw(rt, "to"), fmt.Sprint("m", n), "x")
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
			for i, watch := range watched {
				f := recounted(rt, store, name, watch)
				fresh := watchTeam(t, monitors[(n+1)%2], watch, "")
				defer fresh.stop()
				fresh.read(t)
				if got := figuresOf(fresh.last); !got.equal(f) {
					for _, id := range ids {
						for _, ev := range onRecord(rt, store, id) {
							fmt.Println(id[:8], ev.GetSeq(), ev.GetScope(), ev.GetAgent(), fmt.Sprintf("%.150s", fmt.Sprint(ev)))
						}
					}
					rt.Fatalf("I5: the figures of %s are not what the events say (-events +monitor):\n%s", watch, cmp.Diff(f, got, protocmp.Transform()))
				}
				here[i].until(t, func(s *teamv1.TeamSnapshot) bool { return figuresOf(s).equal(f) })
			}
			for _, id := range ids {
				tr, err := monitors[n%2].Trace(t.Context(), id)
				if err != nil {
					rt.Fatal(err)
				}
				sum := &teamv1.Spent{}
				for _, share := range tr.GetCost().GetMembers() {
					sum = agent.AddSpent(sum, share.GetOwn())
				}
				for by, list := range map[teamv1.CostGroup][]*teamv1.Rollup_Share{
					teamv1.CostGroup_COST_GROUP_MEMBER: tr.GetCost().GetMembers(),
					teamv1.CostGroup_COST_GROUP_TEAM:   tr.GetCost().GetTeams(),
					teamv1.CostGroup_COST_GROUP_MODEL:  tr.GetCost().GetModels(),
				} {
					for _, share := range list {
						of[by][share.GetPath()] = agent.AddSpent(&teamv1.Spent{}, agent.AddSpent(of[by][share.GetPath()], share.GetOwn()))
					}
				}
				if want := spentOn(onRecord(rt, store, id), ""); !proto.Equal(sum, want) || !proto.Equal(tr.GetStep().GetSpent(), want) {
					rt.Fatalf("I5: %s cost %v, by its events %v", id, sum, want)
				}
			}
			for by, sums := range of {
				if diff := cmp.Diff(sums, costsBy(rt, services[n%2], by, sums), protocmp.Transform()); diff != "" {
					rt.Fatalf("I5: the costs of all tasks by %v (-traces +ListCosts):\n%s", by, diff)
				}
			}
		})
	})
}

// costsBy returns what was spent by each group, and nothing for those in also that have no cost.
func costsBy(rt *rapid.T, s rig.Service, by teamv1.CostGroup, also map[string]*teamv1.Spent) map[string]*teamv1.Spent {
	resp, err := teamv1.NewMonitorServiceClient(s).ListCosts(context.Background(), &teamv1.ListCostsRequest{GroupBy: by})
	if err != nil {
		rt.Fatal(err)
	}
	got, total := map[string]*teamv1.Spent{}, &teamv1.Spent{}
	for key := range also {
		got[key] = &teamv1.Spent{}
	}
	for _, share := range resp.GetShares() {
		got[share.GetKey()] = share.GetSpent()
		total = agent.AddSpent(total, share.GetSpent())
	}
	if !proto.Equal(total, resp.GetTotal().GetSpent()) {
		rt.Fatalf("the shares of %v are together %v", resp, total)
	}
	return got
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

// equal reports whether two figures are the same. It is asked for each snapshot of a
// watched team, for which cmp.Equal takes most of the time of the test.
func (f figures) equal(g figures) bool {
	return proto.Equal(f.Tasks, g.Tasks) && proto.Equal(f.Runs, g.Runs) && proto.Equal(f.Spent, g.Spent) &&
		f.P50 == g.P50 && f.P95 == g.P95 &&
		maps.EqualFunc(f.Members, g.Members, func(a, b member5) bool {
			return proto.Equal(a.Tasks, b.Tasks) && proto.Equal(a.Spent, b.Spent)
		}) &&
		slices.Equal(f.Questions, g.Questions) && slices.Equal(f.Active, g.Active)
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

func onRecord(rt *rapid.T, store runs.Store, id string) []*teamv1.Event {
	records, err := store.Events(context.Background(), runs.Key{Owner: rig.LocalOwner, ID: id}, 0, 100_000)
	if err != nil {
		rt.Fatal(err)
	}
	all := make([]*teamv1.Event, len(records))
	for i, r := range records {
		all[i] = r.Event
	}
	return all
}

// partsOf are the scopes in which an agent works for a root: all of it where the task
// was sent to the agent, else what it was given as a member and began.
func partsOf(all []*teamv1.Event, name string) (parts []string) {
	if all[0].GetAccepted().GetAgent() == name {
		return []string{""}
	}
	type place struct{ scope, member string }
	called, begun := map[place]string{}, map[string]bool{}
	for _, ev := range all {
		for _, m := range ev.GetObserved().GetMembers() {
			called[place{ev.GetScope(), m.GetId()}] = m.GetInfo().GetId()
		}
		begun[ev.GetScope()] = begun[ev.GetScope()] || ev.GetStarted() != nil
	}
	for _, ev := range all {
		for _, s := range ev.GetDecided().GetSteps() {
			if scope := agent.Scope(ev.GetScope(), s.GetId()); called[place{ev.GetScope(), s.GetMember()}] == name && begun[scope] {
				parts = append(parts, scope)
			}
		}
	}
	return parts
}

// recounted counts what a team does in tasks that are quiet, sent to it or to the one
// that it is a member of, from their events alone.
func recounted(rt *rapid.T, store runs.Store, root, name string) figures {
	f := figures{
		Tasks: &teamv1.TaskCounts{}, Runs: &teamv1.TaskCounts{}, Spent: &teamv1.Spent{}, Members: map[string]member5{}, Questions: []string{}, Active: []string{},
	}
	var took []time.Duration
	for _, to := range slices.Compact([]string{root, name}) {
		page, err := store.List(context.Background(), rig.LocalOwner, runs.Filter{Agent: to, PageSize: 100})
		if err != nil || page.NextToken != "" {
			rt.Fatal(page.NextToken, err)
		}
		for _, task := range page.Tasks {
			all := onRecord(rt, store, task.GetId())
			for _, part := range partsOf(all, name) {
				took = append(took, f.count(all, task.GetId(), part)...)
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

// count counts one part of a root, and returns how long it took if it has ended.
func (f *figures) count(all []*teamv1.Event, root, part string) (took []time.Duration) {
	ends := endsOf(all)
	state := func(scope string) (over bool, outcome teamv1.Outcome, at time.Time) {
		if e := ends[scope]; e != nil {
			return true, e.GetEnded().GetOutcome(), e.GetTime().AsTime()
		}
		for up := scope; up != ""; {
			up = agent.Parent(up)
			if e := ends[up]; e != nil {
				return true, teamv1.Outcome_OUTCOME_CANCELED, e.GetTime().AsTime()
			}
		}
		return false, 0, time.Time{}
	}
	began := all[0].GetTime().AsTime()
	for _, ev := range all {
		for _, s := range ev.GetDecided().GetSteps() {
			if agent.Scope(ev.GetScope(), s.GetId()) == part {
				began = ev.GetTime().AsTime()
			}
		}
	}
	over, outcome, at := state(part)
	count(f.Runs, over, true, outcome)
	f.Spent = agent.AddSpent(f.Spent, spentOn(all, part))
	if over {
		took = append(took, at.Sub(began))
	} else {
		f.Active = append(f.Active, agent.ChildTask(root, part))
	}
	for _, ev := range all {
		if !agent.Within(ev.GetScope(), part) {
			continue
		}
		if a := ev.GetAsked(); a != nil && !slices.ContainsFunc(all, func(later *teamv1.Event) bool {
			return later.GetAnswered().GetQuestion() == a.GetQuestion() || later.GetEnded() != nil && agent.Within(ev.GetScope(), later.GetScope())
		}) {
			f.Questions = append(f.Questions, a.GetQuestion())
		}
		for _, s := range ev.GetDecided().GetSteps() {
			scope := agent.Scope(ev.GetScope(), s.GetId())
			if s.GetMember() == "" {
				continue
			}
			over, outcome, _ := state(scope)
			begun := slices.ContainsFunc(all, func(e *teamv1.Event) bool { return e.GetScope() == scope && e.GetStarted() != nil })
			count(f.Tasks, over, begun, outcome)
			if ev.GetScope() == part {
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
	return took
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
