package team_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// skilled is a member that echoes with its name and has skills.
func skilled(id string, skills ...string) *agent.Func {
	f := &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
	}}
	for _, s := range skills {
		f.Skills = append(f.Skills, &teamv1.Skill{Id: s, Name: s})
	}
	return f
}

// failing is a member that answers with err.
func failing(id string, err error) *agent.Func {
	return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { return nil, err }}
}

// next is a scheduler made of a func.
func next(f func(s *team.State) (team.Decision, error)) team.Scheduler {
	return funcScheduler{decide: f}
}

type funcScheduler struct {
	team.Base
	decide func(s *team.State) (team.Decision, error)
}

func (f funcScheduler) Next(s *team.State) (team.Decision, error) { return f.decide(s) }

// forwarder is a scheduler that has another one decide. It implements the methods of the
// contract and nothing else: most teams of the tests have their scheduler wrapped in one.
type forwarder struct{ to team.Scheduler }

func (f forwarder) Traits() team.Traits                       { return f.to.Traits() }
func (f forwarder) Next(s *team.State) (team.Decision, error) { return f.to.Next(s) }
func (f forwarder) Handles(st *team.StepState) bool           { return f.to.Handles(st) }

func (f forwarder) Prompt(s *team.State, step *teamv1.Step) *agent.ModelRequest {
	return f.to.Prompt(s, step)
}

func (f forwarder) Answer(s *team.State, st *team.StepState, l team.Look) (*teamv1.ToolResult, time.Time) {
	return f.to.Answer(s, st, l)
}

func (f forwarder) Transfers(s *team.State, st *team.StepState) []*teamv1.TransferTarget {
	return f.to.Transfers(s, st)
}

// inOrder gives the message to the members one after the other.
func inOrder(ids ...string) team.Scheduler {
	return next(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) == len(ids) {
			return team.Decision{Reply: s.Last.Message}, nil
		}
		return delegateTo(ids[len(s.Steps)]), nil
	})
}

func delegateTo(ids ...string) team.Decision {
	var d team.Decision
	for _, id := range ids {
		d.Steps = append(d.Steps, &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: id})
	}
	return d
}

func newTeam(t *testing.T, reg registry, s team.Scheduler, ids ...string) *team.Team {
	t.Helper()
	return newTeamWith(t, team.Config{ID: "t1", Name: "Team One", Description: "Does it.", Mode: "supervisor", Scheduler: s, Members: members(ids...), Registry: reg})
}

func newTeamWith(t *testing.T, c team.Config) *team.Team {
	t.Helper()
	c.Scheduler = forwarder{c.Scheduler}
	tm, err := team.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tm
}

func ask(t *testing.T, a agent.Agent, text string) (string, error) {
	t.Helper()
	m, err := agent.Reply(t.Context(), a, agent.UserMessage("m-1", text))
	return agent.Text(m), err
}

func wantReason(t *testing.T, err error, reason string) *agent.Error {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) || e.Reason != reason {
		t.Fatalf("want reason %s, got %v", reason, err)
	}
	return e
}

func TestInfo(t *testing.T) {
	reg := registry{"x": skilled("x", "search", "sum"), "y": skilled("y", "search", "write"), "z": skilled("z")}
	tm := newTeam(t, reg, inOrder("x"), "x", "y", "z")
	info, err := tm.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("R-000-05 id, name and description come from configuration", func(t *testing.T) {
		if info.GetId() != "t1" || info.GetName() != "Team One" || info.GetDescription() != "Does it." {
			t.Error(info)
		}
	})
	t.Run("R-000-06 capabilities are the members', each once, in first-seen order", func(t *testing.T) {
		if got := strings.Join(info.GetCapabilities(), " "); got != "search sum write" {
			t.Error(got)
		}
		if len(info.GetSkills()) != 3 {
			t.Error(info.GetSkills())
		}
	})
	t.Run("R-000-07 every member is asked each time", func(t *testing.T) {
		reg["z"] = skilled("z", "late")
		again, err := tm.Info(t.Context())
		if err != nil || !slices.Contains(again.GetCapabilities(), "late") {
			t.Error(again, err)
		}
	})
	t.Run("R-000-08 R-000-09 R-000-10 metadata type mode member_count", func(t *testing.T) {
		md := info.GetMetadata()
		if md["type"] != "team" || md["mode"] != "supervisor" || md["member_count"] != "3" {
			t.Error(md)
		}
	})
}

type silent struct{ *agent.Func }

func (silent) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestInfoOfMissingMembers(t *testing.T) {
	t.Run("R-000-11 a member that cannot be asked is left out within 2 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := registry{"x": skilled("x", "search"), "dead": silent{skilled("dead", "lost")}}
			begin := time.Now()
			info, err := newTeam(t, reg, inOrder("x"), "dead", "x").Info(t.Context())
			if err != nil || strings.Join(info.GetCapabilities(), " ") != "search" {
				t.Error(info, err)
			}
			if d := time.Since(begin); d != team.InfoTimeout {
				t.Errorf("took %s", d)
			}
		})
	})
	t.Run("R-000-12 no reachable member is no error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			info, err := newTeam(t, registry{"dead": silent{skilled("dead", "lost")}}, inOrder("dead"), "dead").Info(t.Context())
			if err != nil || len(info.GetCapabilities()) != 0 {
				t.Error(info, err)
			}
		})
	})
	t.Run("R-000-13 an empty registry gives basic info and no health", func(t *testing.T) {
		tm := newTeam(t, registry{}, inOrder("x"), "x")
		info, err := tm.Info(t.Context())
		if err != nil || info.GetId() != "t1" || len(info.GetCapabilities()) != 0 {
			t.Error(info, err)
		}
		if h, err := tm.HealthCheck(t.Context()); err != nil || h.GetHealthy() || h.GetUsable() {
			t.Error(h, err)
		}
	})
}

func TestRun(t *testing.T) {
	reg := registry{"a": skilled("a"), "b": skilled("b"), "c": skilled("c")}
	t.Run("R-000-14 R-000-22 R-000-24 each member gets the last response, the final message is returned", func(t *testing.T) {
		got, err := ask(t, newTeam(t, reg, inOrder("a", "b", "c"), "a", "b", "c"), "hi")
		if err != nil || got != "c(b(a(hi)))" {
			t.Errorf("%q %v", got, err)
		}
	})
	t.Run("R-000-15 R-000-16 R-000-30 R-000-41 a run begins with its input alone", func(t *testing.T) {
		var first []string
		tm := newTeam(t, reg, next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) == 0 {
				first = append(first, fmt.Sprintf("%d %s %v %d", len(s.Messages), agent.Text(s.Messages[0]), s.Last, len(s.Context)))
				d := delegateTo("a")
				d.Updates = map[string]*structpb.Value{"k": structpb.NewStringValue("v")}
				return d, nil
			}
			return team.Decision{Reply: s.Last.Message}, nil
		}), "a")
		for range 2 { // the same text again is no cycle
			if _, err := ask(t, tm, "hi"); err != nil {
				t.Fatal(err)
			}
		}
		if first[0] != "1 hi <nil> 0" || first[1] != first[0] {
			t.Error(first)
		}
	})
	t.Run("R-000-17 R-000-23 R-000-42 a custom scheduler sees configuration, roster and context updates after the step", func(t *testing.T) {
		var during, after bool
		reg := registry{"a": &agent.Func{ID: "a", Skills: []*teamv1.Skill{{Id: "s"}}, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			return agent.NewMessage("done"), nil
		}}}
		got, err := ask(t, newTeam(t, reg, next(func(s *team.State) (team.Decision, error) {
			if s.Team.ID != "t1" || len(s.Roster) != 1 || s.Roster[0].GetInfo().GetCapabilities()[0] != "s" || !s.Roster[0].GetHealth().GetHealthy() {
				t.Errorf("state %+v", s)
			}
			if len(s.Steps) == 0 {
				during = s.Context["k"] != nil
				d := delegateTo("a")
				d.Updates = map[string]*structpb.Value{"k": structpb.NewStringValue("v")}
				return d, nil
			}
			after = s.Context["k"].GetStringValue() == "v"
			return team.Decision{Reply: s.Last.Message}, nil
		}), "a"), "hi")
		if err != nil || got != "done" || during || !after {
			t.Error(got, err, during, after)
		}
	})
	t.Run("R-000-20 routing goes by id, whatever the name", func(t *testing.T) {
		f := skilled("x")
		f.Name = "Another Name"
		if got, err := ask(t, newTeam(t, registry{"x": f}, inOrder("x"), "x"), "hi"); err != nil || got != "x(hi)" {
			t.Error(got, err)
		}
	})
	t.Run("R-000-21 what is handed on is named on record, not copied", func(t *testing.T) {
		tm := newTeam(t, registry{"x": skilled("x"), "y": skilled("y")}, inOrder("x", "y"), "x", "y")
		r := newRecord()
		r.process(t.Context(), tm, nil)
		end := r.events[slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetScope() == "1" && ev.GetEnded() != nil })]
		var got []int64
		for _, ev := range r.events {
			for _, st := range ev.GetDecided().GetSteps() {
				got = append(got, st.GetInput().GetRef())
			}
		}
		if r.err != nil || len(got) != 2 || got[1] != end.GetSeq() {
			t.Error(got, "want", end.GetSeq(), r.err)
		}
	})
	t.Run("R-000-21 the member gets the last of the current messages", func(t *testing.T) {
		var got *a2av1.Message
		reg := registry{"x": &agent.Func{ID: "x", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			got = m
			return agent.NewMessage("ok"), nil
		}}}
		if _, err := ask(t, newTeam(t, reg, inOrder("x"), "x"), "hi"); err != nil || agent.Text(got) != "hi" || got.GetRole() != a2av1.Role_ROLE_USER {
			t.Error(got, err)
		}
	})
}

func TestNew_MembersByPriority(t *testing.T) {
	reg := registry{"a": skilled("a"), "b": skilled("b"), "c": skilled("c"), "d": skilled("d")}
	tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a"), Registry: reg, Members: []team.Member{{Agent: "a", Priority: 1}, {Agent: "b", Priority: 5}, {Agent: "c"}, {Agent: "d", Priority: 3}}})
	var got []string
	for _, m := range tm.Config().Members {
		got = append(got, m.ID)
	}
	if diff := cmp.Diff([]string{"b", "d", "a", "c"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRunErrors(t *testing.T) {
	reg := registry{"a": skilled("a")}
	t.Run("R-000-19 returning to the user with no response is NO_RESPONSE", func(t *testing.T) {
		_, err := ask(t, newTeam(t, reg, next(func(*team.State) (team.Decision, error) { return team.Decision{}, nil }), "a"), "hi")
		wantReason(t, err, agent.ReasonNoResponse)
	})
	t.Run("R-000-25 a scheduler's error carries its detail", func(t *testing.T) {
		_, err := ask(t, newTeam(t, reg, next(func(*team.State) (team.Decision, error) { return team.Decision{}, errors.New("the oracle is silent") }), "a"), "hi")
		if e := wantReason(t, err, agent.ReasonSchedulerError); !strings.Contains(e.Message, "the oracle is silent") {
			t.Error(e.Message)
		}
	})
	t.Run("R-000-25 a scheduler that decides on a model step and gives no request for it", func(t *testing.T) {
		model := next(func(*team.State) (team.Decision, error) {
			return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_MODEL}}, Reason: "ask"}, nil
		})
		for _, limit := range []*teamv1.Limits{nil, {MaxTokens: proto.Int64(1000)}} {
			tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: model, Registry: reg, Members: members("a"), Model: leads(t), ReportErrors: true, Limits: limit}) // no failure of a step ends the run
			_, err := ask(t, tm, "hi")
			has(t, wantReason(t, err, agent.ReasonSchedulerError).Message, `the scheduler of team "t1" decided on a model step and gave no request for it`, "its method Prompt")
			if t.Failed() {
				t.Fatal(limit)
			}
		}
	})
	t.Run("R-000-26 an unknown agent is named", func(t *testing.T) {
		_, err := ask(t, newTeam(t, reg, inOrder("nobody"), "a"), "hi")
		if e := wantReason(t, err, agent.ReasonMemberNotFound); !strings.Contains(e.Message, `"nobody"`) {
			t.Error(e.Message)
		}
		_, err = ask(t, newTeam(t, registry{}, inOrder("a"), "a"), "hi")
		if e := wantReason(t, err, agent.ReasonMemberNotFound); !strings.Contains(e.Message, `"a"`) {
			t.Error(e.Message)
		}
	})
	t.Run("R-000-27 R-000-44 a member's failure is propagated unchanged", func(t *testing.T) {
		own := &agent.Error{Reason: "QUOTA", Code: agent.CodeResourceExhausted, Message: "no more"}
		_, err := ask(t, newTeam(t, registry{"a": failing("a", own)}, inOrder("a"), "a"), "hi")
		if e := wantReason(t, err, "QUOTA"); e.Code != own.Code || e.Message != own.Message {
			t.Error(e)
		}
	})
	t.Run("A-22 a panic and internal text stay inside", func(t *testing.T) {
		_, err := ask(t, newTeam(t, registry{"a": failing("a", errors.New("secret path"))}, inOrder("a"), "a"), "hi")
		if e := wantReason(t, err, agent.ReasonInternal); strings.Contains(e.Message, "secret") {
			t.Error(e.Message)
		}
		boom := &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { panic("secret") }}
		_, err = ask(t, newTeam(t, registry{"a": boom}, inOrder("a"), "a"), "hi")
		if e := wantReason(t, err, agent.ReasonAgentPanic); strings.Contains(e.Message, "secret") {
			t.Error(e.Message)
		}
	})
}

func TestLimits(t *testing.T) {
	var calls atomic.Int64
	reg := registry{}
	for _, id := range []string{"a", "b"} {
		reg[id] = &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			return agent.NewMessage(fmt.Sprint(calls.Add(1))), nil
		}}
	}
	forever := next(func(s *team.State) (team.Decision, error) { return delegateTo([]string{"a", "b"}[len(s.Steps)%2]), nil })
	t.Run("R-000-28 S-15 C-07 the 101st step fails and says that a cycle is possible", func(t *testing.T) {
		calls.Store(0)
		_, err := ask(t, newTeam(t, reg, forever, "a", "b"), "hi")
		if e := wantReason(t, err, agent.ReasonMaxIterations); !strings.Contains(e.Message, "cycle") {
			t.Error(e.Message)
		}
		if n := calls.Load(); n != 100 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("C-07 a parallel batch is one step", func(t *testing.T) {
		tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: next(func(s *team.State) (team.Decision, error) {
			if s.Rounds == 2 {
				return team.Decision{Reply: s.Last.Message}, nil
			}
			return delegateTo("a", "b"), nil
		}), Members: members("a", "b"), Registry: reg, Limits: &teamv1.Limits{MaxSteps: proto.Int32(2)}})
		if _, err := ask(t, tm, "hi"); err != nil {
			t.Error(err)
		}
	})
	t.Run("R-000-29 S-14 C-23 R-000-44 the same member with the same text is refused before the second call", func(t *testing.T) {
		n := 0
		echo := &agent.Func{ID: "e", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			n++
			return agent.NewMessage("  same "), nil
		}}
		_, err := ask(t, newTeam(t, registry{"e": echo}, next(func(*team.State) (team.Decision, error) { return delegateTo("e"), nil }), "e"), "same")
		wantReason(t, err, agent.ReasonCycleDetected)
		if n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("C-10 zero and negative limits are refused", func(t *testing.T) {
		for _, l := range []*teamv1.Limits{
			{MaxSteps: proto.Int32(0)}, {MaxParallel: proto.Int32(-1)}, {Timeout: durationpb.New(-time.Second)},
			{Retry: &teamv1.Retry{Attempts: proto.Int32(0)}}, {MaxCost: proto.Float64(0)}, {MaxCost: proto.Float64(-1)}, {MaxTokens: proto.Int64(0)},
			{MaxTurns: proto.Int32(0)}, {MaxDelegations: proto.Int32(0)}, {MaxDepth: proto.Int32(0)}, {MemberTimeout: durationpb.New(0)},
			{Retry: &teamv1.Retry{Backoff: durationpb.New(0)}}, {MaxHandoffs: proto.Int32(-1)}, {LoopWindow: proto.Int32(-1)},
		} {
			if _, err := team.New(team.Config{ID: "t1", Scheduler: forever, Limits: l}); err == nil || !strings.Contains(err.Error(), "limits.") {
				t.Errorf("%v: %v", l, err)
			}
		}
	})
}

func TestConcurrency(t *testing.T) {
	t.Run("R-000-02 R-000-44 a hundred parallel calls of one team", func(t *testing.T) {
		reg := registry{"a": skilled("a", "s"), "b": skilled("b")}
		tm := newTeam(t, reg, inOrder("a", "b"), "a", "b")
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if _, err := tm.Info(t.Context()); err != nil {
					t.Error(err)
				}
				if h, err := tm.HealthCheck(t.Context()); err != nil || !h.GetHealthy() {
					t.Error(h, err)
				}
				want := fmt.Sprintf("b(a(%d))", i)
				if got, err := ask(t, tm, fmt.Sprint(i)); err != nil || got != want {
					t.Error(got, err)
				}
			})
		}
		wg.Wait()
	})
	t.Run("R-002-03 at most max_parallel members at a time", func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0 // guarded by mu
		gate := make(chan struct{})
		reg := registry{}
		ids := []string{"a", "b", "c", "d", "e"}
		for _, id := range ids {
			reg[id] = &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
				mu.Lock()
				now++
				if most = max(most, now); now == 3 && most == 3 {
					select {
					case <-gate:
					default:
						close(gate)
					}
				}
				mu.Unlock()
				<-gate
				mu.Lock()
				now--
				mu.Unlock()
				return agent.NewMessage(id), nil
			}}
		}
		tm := newTeam(t, reg, next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) > 0 {
				return team.Decision{Reply: s.Last.Message}, nil
			}
			return delegateTo(ids...), nil
		}), ids...)
		if _, err := ask(t, tm, "hi"); err != nil {
			t.Fatal(err)
		}
		if most != 3 {
			t.Errorf("%d members at a time", most)
		}
	})
}

func TestHealth(t *testing.T) {
	sick := skilled("sick")
	sick.Health = func(context.Context) (*teamv1.Health, error) { return agent.Unhealthy("on fire"), nil }
	reg := registry{"a": skilled("a"), "sick": sick}
	check := func(t *testing.T, a agent.Agent) *teamv1.Health {
		t.Helper()
		h, err := a.HealthCheck(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	t.Run("R-000-03 healthy without a health check of one's own", func(t *testing.T) {
		if h := check(t, reg["a"]); !h.GetHealthy() || !h.GetUsable() {
			t.Error(h)
		}
	})
	t.Run("R-000-34 R-000-44 an unregistered member is named", func(t *testing.T) {
		h := check(t, newTeam(t, reg, inOrder("a"), "a", "gone"))
		if h.GetHealthy() || !h.GetUsable() || h.GetDetail() != "member gone: not registered" {
			t.Error(h)
		}
	})
	t.Run("R-000-35 C-25 one unhealthy member makes the team unhealthy but usable", func(t *testing.T) {
		h := check(t, newTeam(t, reg, inOrder("a"), "a", "sick"))
		if h.GetHealthy() || !h.GetUsable() || h.GetMembers()[1].GetDetail() != "on fire" {
			t.Error(h)
		}
		tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a"), Registry: reg, Members: []team.Member{{Agent: "a"}, {Agent: "sick", Disabled: true}}})
		if h := check(t, tm); !h.GetHealthy() {
			t.Error("a disabled member counts", h)
		}
	})
	t.Run("R-000-33 a team that cannot describe itself is not healthy", func(t *testing.T) {
		reg := registry{}
		reg["x"] = newTeamWith(t, team.Config{ID: "x", Scheduler: inOrder("x"), Registry: reg, Members: members("x")})
		if _, err := reg["x"].Info(t.Context()); err == nil {
			t.Fatal("a team inside itself described itself")
		}
		if h, err := reg["x"].HealthCheck(t.Context()); err == nil && (h.GetHealthy() || h.GetUsable()) {
			t.Error(h)
		}
	})
	t.Run("R-000-36 health is recursive and ends in circles", func(t *testing.T) {
		reg := registry{"sick": sick}
		reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: inOrder("sick"), Registry: reg, Members: members("sick")})
		if h := check(t, newTeam(t, reg, inOrder("inner"), "inner")); h.GetHealthy() || h.GetUsable() {
			t.Error(h)
		}
		reg["x"] = newTeamWith(t, team.Config{ID: "x", Scheduler: inOrder("y"), Registry: reg, Members: members("y")})
		reg["y"] = newTeamWith(t, team.Config{ID: "y", Scheduler: inOrder("x"), Registry: reg, Members: members("x")})
		if h := check(t, reg["x"]); h.GetHealthy() || !strings.Contains(h.GetDetail(), "nested deeper") {
			t.Error(h)
		}
		if _, err := ask(t, reg["x"], "hi"); err == nil {
			t.Error("a circle answered")
		} else {
			wantReason(t, err, agent.ReasonMaxDepth)
		}
		if _, err := reg["x"].Info(t.Context()); err == nil {
			t.Error("a circle described itself")
		} else {
			wantReason(t, err, agent.ReasonMaxDepth)
		}
	})
}

func TestNested(t *testing.T) {
	t.Run("R-000-04 R-000-37 R-000-39 R-000-44 teams nest three levels deep", func(t *testing.T) {
		reg := registry{"a": skilled("a"), "b": skilled("b")}
		reg["low"] = newTeamWith(t, team.Config{ID: "low", Scheduler: inOrder("a", "b"), Registry: reg, Members: members("a", "b")})
		reg["mid"] = newTeamWith(t, team.Config{ID: "mid", Scheduler: inOrder("low"), Registry: reg, Members: members("low")})
		paths := map[string]bool{}
		top := newTeam(t, reg, inOrder("mid"), "mid")
		var reply string
		for ev, err := range top.Process(agent.With(t.Context(), &agent.Run{Root: "r"}), &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m", "hi")}) {
			if err != nil {
				t.Fatal(err)
			}
			paths[ev.GetScope()+" "+ev.GetAgent()] = true
			if r := ev.GetReply(); r != nil {
				reply = agent.Text(r.GetMessage())
			}
		}
		if reply != "b(a(hi))" || !paths["1.1.2 t1/mid/low/b"] {
			t.Error(reply, paths)
		}
	})
	t.Run("R-000-38 one agent serves two teams", func(t *testing.T) {
		reg := registry{"a": skilled("a")}
		one := newTeamWith(t, team.Config{ID: "one", Scheduler: inOrder("a"), Registry: reg, Members: members("a")})
		two := newTeamWith(t, team.Config{ID: "two", Scheduler: inOrder("a"), Registry: reg, Members: members("a")})
		for _, tm := range []*team.Team{one, two} {
			if got, err := ask(t, tm, "hi"); err != nil || got != "a(hi)" {
				t.Error(got, err)
			}
		}
	})
}

func TestRetries(t *testing.T) {
	busy := &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "busy"}
	t.Run("S-10 a failing leaf is repeated with growing pauses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
				if at = append(at, time.Now()); len(at) < 3 {
					return nil, busy
				}
				return agent.NewMessage("ok"), nil
			}}}
			if got, err := ask(t, newTeam(t, reg, inOrder("a"), "a"), "hi"); err != nil || got != "ok" || len(at) != 3 {
				t.Fatal(got, err, at)
			}
			one, two := at[1].Sub(at[0]), at[2].Sub(at[1])
			if one < time.Second || two < 2*time.Second || two > 5*time.Second {
				t.Error(one, two)
			}
		})
	})
	t.Run("S-10 the pause is waited for after a crash, too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
				if n++; n == 1 {
					return nil, busy
				}
				return agent.NewMessage("ok"), nil
			}}}
			tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a"), Registry: reg, Members: members("a"), Limits: &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(10 * time.Second)}}})
			r := newRecord()
			r.process(t.Context(), tm, func(ev *teamv1.Event) bool { return ev.GetRetried() == nil })
			begin := time.Now()
			if r.process(t.Context(), tm, nil); r.err != nil || n != 2 || time.Since(begin) < 10*time.Second {
				t.Error(r.err, n, time.Since(begin))
			}
		})
	})
	t.Run("S-11 R-002-8.2 the member's time bounds all attempts together", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := registry{"a": failing("a", busy)}
			begin := time.Now()
			tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a"), Registry: reg, Members: []team.Member{{Agent: "a", Timeout: 2 * time.Second, Retry: &teamv1.Retry{Attempts: proto.Int32(9)}}}})
			_, err := ask(t, tm, "hi")
			wantReason(t, err, agent.ReasonTimeout)
			if d := time.Since(begin); d != 2*time.Second {
				t.Error(d)
			}
		})
	})
	t.Run("R-002-05 the team's own time ends the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hang := &agent.Func{ID: "a", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			begin := time.Now()
			tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a"), Registry: registry{"a": hang}, Members: []team.Member{{Agent: "a", Timeout: time.Hour}}})
			_, err := ask(t, tm, "hi")
			if e := wantReason(t, err, agent.ReasonTimeout); !strings.Contains(e.Message, "limits.timeout") {
				t.Error(e.Message)
			}
			if d := time.Since(begin); d != 300*time.Second {
				t.Error(d)
			}
		})
	})
}

// sortedKeys are the keys of a map in their order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
