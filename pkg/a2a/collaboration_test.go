package a2a_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	serving "github.com/agentteams/team-server/tests/rig"
)

func someBrief() *teamv1.Brief {
	return &teamv1.Brief{
		TaskDescription: "Write about the sea.", ExpectedOutput: "Three paragraphs.",
		Context: &structpb.Struct{Fields: map[string]*structpb.Value{
			"tone": structpb.NewStringValue("calm"), "words": structpb.NewNumberValue(300),
		}},
	}
}

// listening is a model that keeps what it is asked.
type listening struct {
	mu   sync.Mutex
	reqs []*agent.ModelRequest // guarded by mu
	turn func(n int) *teamv1.Turn
}

func (*listening) Name() string { return "listening" }

func (m *listening) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.mu.Lock()
		m.reqs = append(m.reqs, req)
		n := len(m.reqs)
		m.mu.Unlock()
		turn := &teamv1.Turn{Text: "done"}
		if m.turn != nil {
			turn = m.turn(n)
		}
		yield(agent.ModelChunk{Turn: turn}, nil)
	}
}

func (r *rig) begin(t testing.TB, s a2a.Start) (id string) {
	t.Helper()
	if s.Message == nil {
		s.Message = agent.UserMessage("start", "Write about the sea.")
	}
	id, err := r.Start(ann(t), s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// R-001-21, R-001-22: whoever works on a collaboration is given its brief: models
// beside their system text, Go funcs with their context, peers with the message.
func TestR_001_22_BriefReachesEverybody(t *testing.T) {
	m := &listening{}
	model, err := leader.NewAgent(leader.AgentConfig{ID: "model", Model: m, Instructions: "You write."})
	if err != nil {
		t.Fatal(err)
	}
	var told *teamv1.Brief
	hears := &agent.Func{ID: "func", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		told = agent.BriefOf(ctx)
		return agent.NewMessage("heard"), nil
	}}
	far, overFar := serving.OverA2A(t, "far", fakeagent.Config{Default: fakeagent.Turn{Text: "far"}}, time.Minute)
	near, overNear := serving.OverService(t, "near", fakeagent.Config{Default: fakeagent.Turn{Text: "near"}}, time.Minute)
	r := start(t, model, hears, overFar, overNear)
	var state *team.State
	seen := plan(func(s *team.State) (team.Decision, error) {
		state = s
		return through("func", "far", "near").Next(s)
	})
	r.newTeam(t, "inner", seen, "func", "far", "near")
	r.newTeam(t, "team", together("model", "inner"), "model", "inner")
	for _, given := range []*teamv1.Brief{someBrief(), nil} {
		m.reqs, told = nil, nil
		if given == nil {
			r.send(t, ann(t), message("team", "plain"))
			if told != nil || len(m.reqs) == 0 || len(m.reqs[len(m.reqs)-1].Messages) != 1 {
				t.Errorf("there is no brief, and something is told: %v, %v", told, m.reqs)
			}
			continue
		}
		r.until(t, r.begin(t, a2a.Start{Agent: "team", Brief: given}), completed)
		if told.GetExpectedOutput() != given.GetExpectedOutput() {
			t.Errorf("the func is told %v", told)
		}
		i := slices.IndexFunc(m.reqs, func(req *agent.ModelRequest) bool { return len(req.Messages) == 2 })
		if i < 0 {
			t.Fatalf("the model is told %v", m.reqs)
		}
		req := m.reqs[i]
		for _, want := range []string{"Three paragraphs.", "tone: calm", "words: 300"} {
			if !strings.Contains(req.Messages[0].Text, want) || req.Messages[0].Role != agent.RoleUser {
				t.Errorf("the model is not told %q: %v", want, req.Messages)
			}
		}
		if req.Instructions != "You write." {
			t.Errorf("its system text is %q", req.Instructions)
		}
		sent := fmt.Sprint(far.Requests("SendStreamingMessage"))
		if !strings.Contains(sent, "Three paragraphs.") || !strings.Contains(sent, "tone: calm") {
			t.Errorf("the peer is sent %s", sent)
		}
		if sent := fmt.Sprint(near.Requests("ProcessStream")); !strings.Contains(sent, "Three paragraphs.") {
			t.Errorf("the Agent service is sent %s", sent)
		}
		if got := state.Context["tone"].GetStringValue(); got != "calm" || state.Brief == nil {
			t.Errorf("the scheduler sees %v", state.Context)
		}
	}
}

// R-001-26: a collaboration is a task, and the same message begins it once.
func TestR_001_26_Start(t *testing.T) {
	r := start(t, echo("one"))
	r.newTeam(t, "team", through("one"), "one")
	id := r.begin(t, a2a.Start{Agent: "team", Brief: someBrief()})
	if b := r.record(t, id)[0].GetAccepted().GetCollaboration(); b.GetExpectedOutput() != "Three paragraphs." {
		t.Errorf("its brief is %v", b)
	}
	r.until(t, id, completed)
	if again := r.begin(t, a2a.Start{Agent: "team", Brief: someBrief()}); again != id {
		t.Errorf("it began again: %s, %s", id, again)
	}
	other := someBrief()
	other.ExpectedOutput = "A poem."
	_, err := r.Start(ann(t), a2a.Start{Agent: "team", Brief: other, Message: agent.UserMessage("start", "Write about the sea.")})
	wantError(t, err, agent.ReasonMessageIDReused)
	_, err = r.Start(ann(t), a2a.Start{Agent: "nobody", Brief: other, Message: agent.UserMessage("other", "x")})
	wantError(t, err, agent.ReasonAgentNotFound)
	m := agent.UserMessage("third", "x")
	m.TaskId = id
	_, err = r.Start(ann(t), a2a.Start{Agent: "team", Brief: other, Message: m})
	wantFields(t, err, "message.taskId")
}

// R-001-12: the time of the brief bounds the run, and stands for a timeout of the
// team that is not set.
func TestR_001_12_DurationOfTheBrief(t *testing.T) {
	t.Run("it ends the run", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		r.newTeam(t, "team", through("gate"), "gate")
		b := someBrief()
		b.MaxDuration = durationpb.New(50 * time.Millisecond)
		id := r.begin(t, a2a.Start{Agent: "team", Brief: b})
		task := r.until(t, id, failed)
		if e := project.RunOf(task.GetMetadata()).GetError(); e.GetReason() != agent.ReasonTimeout {
			t.Errorf("the error is %v", e)
		}
	})
	for name, most := range map[string]time.Duration{"longer than the default": 10 * time.Minute, "not set": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // eight times fifty seconds
				r := start(t, taking("slow", 50*time.Second))
				r.newTeam(t, "inner", through(slices.Repeat([]string{"slow"}, 8)...), "slow")
				tm, err := team.New(team.Config{ID: "team", Scheduler: through("inner"), Members: []team.Member{{Agent: "inner"}}, Registry: r.agents})
				if err != nil {
					t.Fatal(err)
				}
				r.add(t, tm)
				b, want := someBrief(), failed
				if most > 0 {
					b.MaxDuration, want = durationpb.New(most), completed
				}
				r.until(t, r.begin(t, a2a.Start{Agent: "team", Brief: b}), want)
			})
		})
	}
	t.Run("deadlines", func(t *testing.T) {
		r := start(t, echo("one"))
		now := time.Now()
		soon, late := now.Add(time.Hour), now.Add(3*time.Hour)
		for i, c := range []struct {
			at   time.Time
			most time.Duration
			want time.Duration
		}{{time.Time{}, 0, 0}, {soon, 0, time.Hour}, {soon, 2 * time.Hour, time.Hour}, {late, 2 * time.Hour, 2 * time.Hour}, {time.Time{}, 2 * time.Hour, 2 * time.Hour}} {
			b := someBrief()
			if c.most > 0 {
				b.MaxDuration = durationpb.New(c.most)
			}
			id := r.begin(t, a2a.Start{Agent: "one", Concurrent: 9, Brief: b, Deadline: c.at, Message: agent.UserMessage(fmt.Sprint("m", i), "x")})
			got := r.record(t, id)[0].GetAccepted().GetDeadline()
			if (got != nil) != (c.want > 0) || got != nil && got.AsTime().Sub(now.Add(c.want)).Abs() > time.Minute {
				t.Errorf("%d: the deadline is %v, want in %v", i, got.AsTime(), c.want)
			}
		}
	})
}

// R-001-25: the limits of a collaboration bind its team besides its own.
func TestR_001_25_LimitsOfACollaboration(t *testing.T) {
	t.Run("max_parallel", func(t *testing.T) {
		one, two := newGate("one"), newGate("two")
		r := start(t, one, two)
		r.newTeam(t, "team", together("one", "two"), "one", "two")
		id := r.begin(t, a2a.Start{Agent: "team", Brief: someBrief(), Limits: &teamv1.Limits{MaxParallel: new(int32(1))}})
		<-one.entered
		wantState(t, r.get(t, id+"~2"), submitted)
		one.open()
		<-two.entered
		two.open()
		r.until(t, id, completed)
	})
	t.Run("max_tokens", func(t *testing.T) {
		model, err := leader.NewAgent(leader.AgentConfig{ID: "model", Model: &listening{}})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, model)
		r.newTeam(t, "team", through("model"), "model")
		id := r.begin(t, a2a.Start{Agent: "team", Brief: someBrief(), Limits: &teamv1.Limits{MaxTokens: new(int64(10))}})
		if e := project.RunOf(r.until(t, id, failed).GetMetadata()).GetError(); e.GetReason() != agent.ReasonBudgetExceeded {
			t.Errorf("the error is %v", e)
		}
	})
	t.Run("max_delegations", func(t *testing.T) {
		m := &listening{turn: func(n int) *teamv1.Turn {
			return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: fmt.Sprint(n), Name: "delegate_to_one", Arguments: fmt.Sprintf(`{"task":"task %d"}`, n)}}}
		}}
		r := start(t, echo("one"))
		lead, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: []team.Member{{Agent: "one"}}})
		if err != nil {
			t.Fatal(err)
		}
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: lead, Model: m, ReportErrors: true}, "one")
		id := r.begin(t, a2a.Start{Agent: "team", Brief: someBrief(), Limits: &teamv1.Limits{MaxDelegations: new(int32(2))}})
		r.until(t, id, failed)
		begun := 0
		for _, ev := range r.record(t, id) {
			if strings.HasSuffix(ev.GetAgent(), "/one") && ev.GetStarted() != nil {
				begun++
			}
		}
		if begun != 2 {
			t.Errorf("%d delegations began", begun)
		}
	})
}
