package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// outlasting are members that answer after a while, and note when they were let go.
type outlasting struct {
	mu    sync.Mutex
	ended map[string]time.Duration // since when; guarded by mu
	began time.Time
}

func (l *outlasting) member(id string, d time.Duration) *agent.Func {
	return &agent.Func{ID: id, Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		err := agent.Sleep(ctx, d)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended[id] = time.Since(l.began)
		if err != nil {
			return nil, err
		}
		return agent.NewMessage(id), nil
	}}
}

func TestR_002_31_TimeRunsOut(t *testing.T) {
	crew := func(l *outlasting) registry {
		return registry{"first": l.member("first", time.Second), "quick": l.member("quick", time.Second), "slow": l.member("slow", time.Hour), "slower": l.member("slower", time.Hour)}
	}
	t.Run("R-002-31 R-002-3.4 R-002-8.3 the team's time ends what is under way; what has ended stays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &outlasting{ended: map[string]time.Duration{}, began: time.Now()}
			tm := newTeamWith(t, team.Config{ID: "root", Members: members("first", "quick", "slow", "slower"), Registry: crew(l), ReportErrors: true,
				Limits:    &teamv1.Limits{Timeout: durationpb.New(10 * time.Second), MemberTimeout: durationpb.New(time.Minute)},
				Scheduler: batches([]*teamv1.Step{to("first")}, []*teamv1.Step{to("quick"), to("slow"), to("slower")}, []*teamv1.Step{to("first")})})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			synctest.Wait()
			wantReason(t, r.err, agent.ReasonTimeout)
			if e := endOf(t, r.events, "2"); e.GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED || agent.Text(e.GetReply()) != "quick" {
				t.Error("the result is lost:", e)
			}
			for _, scope := range []string{"3", "4"} {
				if e := endOf(t, r.events, scope); e.GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT {
					t.Error(e)
				}
			}
			if l.ended["slow"] != 10*time.Second || l.ended["slower"] != 10*time.Second {
				t.Error("they were not let go in time:", l.ended)
			}
			if got := unended(r.events); got != nil {
				t.Error("I1:", got)
			}
			if events := ofStep(r.events, "5"); len(events) != 0 {
				t.Error("R-002-8.3 a delegation began after the end:", events)
			}
		})
	})
	t.Run("R-002-06 R-002-31 a member has sixty seconds, and the others' results stay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &outlasting{ended: map[string]time.Duration{}, began: time.Now()}
			n := 0
			tm := newTeamWith(t, team.Config{ID: "root", Members: members("quick", "slow"), Registry: crew(l), ReportErrors: true,
				Scheduler: next(func(s *team.State) (team.Decision, error) {
					if n++; len(s.Steps) == 0 {
						return delegateTo("quick", "slow"), nil
					}
					return team.Decision{Reply: s.LastOf("quick").Message}, nil
				})})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			synctest.Wait()
			if e := endOf(t, r.events, "2"); e.GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT || l.ended["slow"] != time.Minute || !strings.Contains(e.GetError().GetMessage(), "(member_timeout: 1m0s, the default)") {
				t.Error(e, l.ended)
			}
			if r.err != nil || agent.Text(r.reply.GetMessage()) != "quick" {
				t.Error("the team did not go on:", r.err)
			}
		})
	})
	t.Run("R-002-17 at the limit it is in time, a moment later it is not", func(t *testing.T) {
		for late, want := range map[time.Duration]bool{-time.Millisecond: false, time.Millisecond: true} {
			synctest.Test(t, func(t *testing.T) {
				l := &outlasting{ended: map[string]time.Duration{}, began: time.Now()}
				reg := registry{"a": l.member("a", 5*time.Second+late)}
				tm := newTeamWith(t, team.Config{ID: "root", Members: members("a"), Registry: reg, Scheduler: inOrder("a"), Limits: &teamv1.Limits{Timeout: durationpb.New(5 * time.Second)}})
				_, err := ask(t, tm, "hi")
				if got := agent.AsError(err); (got != nil) != want || want && got.Reason != agent.ReasonTimeout {
					t.Errorf("%s: %v", late, err)
				}
			})
		}
	})
	t.Run("R-002-5.1 the smaller of the team's and the member's time holds", func(t *testing.T) {
		e := team.MemberTimeoutOf(&teamv1.Limits{Timeout: durationpb.New(60 * time.Second), MemberTimeout: durationpb.New(120 * time.Second)})
		if e != 60*time.Second {
			t.Error(e)
		}
	})
}

// A batch that begins is in time or is not: its members have the same time left,
// whatever it takes to start them (R-002-11.1).
func TestR_002_11_1_OneLookAtTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTeamWith(t, team.Config{ID: "root", Members: members("a", "b", "c"), Registry: registry{"a": skilled("a"), "b": skilled("b"), "c": skilled("c")},
			Limits: &teamv1.Limits{MaxParallel: proto.Int32(3)}, Scheduler: batches([]*teamv1.Step{to("a"), to("b"), to("c")})})
		r := newRecord()
		r.process(t.Context(), tm, func(*teamv1.Event) bool {
			time.Sleep(time.Second) // a slow journal
			return true
		})
		var deadlines []time.Time
		for _, ev := range r.events {
			if s := ev.GetStarted(); s != nil {
				deadlines = append(deadlines, s.GetDeadline().AsTime())
			}
		}
		if len(deadlines) != 3 || !deadlines[0].Equal(deadlines[1]) || !deadlines[1].Equal(deadlines[2]) {
			t.Error(deadlines)
		}
	})
}

func TestC_07_DepthBindsTheSubtree(t *testing.T) {
	reg := registry{"a": skilled("a")}
	reg["low"] = newTeamWith(t, team.Config{ID: "low", Scheduler: inOrder("a"), Registry: reg, Members: members("a"), Limits: &teamv1.Limits{MaxDepth: proto.Int32(9)}})
	reg["mid"] = newTeamWith(t, team.Config{ID: "mid", Scheduler: inOrder("low"), Registry: reg, Members: members("low")})
	for most, fits := range map[int32]bool{2: false, 3: true} {
		top := newTeamWith(t, team.Config{ID: "top", Scheduler: inOrder("mid"), Registry: reg, Members: members("mid"), Limits: &teamv1.Limits{MaxDepth: proto.Int32(most)}})
		got, err := ask(t, top, "hi")
		if fits && (err != nil || got != "a(hi)") {
			t.Error("C-07", most, got, err)
		}
		if !fits {
			wantReason(t, err, agent.ReasonMaxDepth)
		}
	}
}

func TestC_07_DeepTeamsAreDescribed(t *testing.T) {
	reg := registry{"t0": skilled("t0")}
	var top *team.Team
	for i := range agent.MaxDepth + 2 {
		id, member := fmt.Sprintf("t%d", i+1), fmt.Sprintf("t%d", i)
		top = newTeamWith(t, team.Config{ID: id, Scheduler: inOrder(member), Registry: reg, Members: members(member), Limits: &teamv1.Limits{MaxDepth: proto.Int32(9)}})
		reg[id] = top
	}
	if _, err := top.Info(t.Context()); err != nil {
		t.Error("C-07", err)
	}
	if h, err := top.HealthCheck(t.Context()); err != nil || !h.GetHealthy() {
		t.Error("C-07", h, err)
	}
	r := newRecord()
	r.process(t.Context(), top, func(ev *teamv1.Event) bool {
		if ev.GetNoted().GetCode() == "MEMBER_UNAVAILABLE" {
			t.Error("C-07", ev)
		}
		return true
	})
}

// steady is a tool that works for five seconds, and for a second each until it says that it goes on.
type steady struct{ says bool }

func (steady) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "work", Description: "Works.", Effect: agent.EffectSafe}
}

func (s steady) Call(ctx context.Context, _ json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	for range 5 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if s.says {
			agent.Progress(ctx)
		}
	}
	at, _ := ctx.Deadline()
	return &teamv1.ToolResult{Text: time.Until(at).String()}, nil
}

// TestProgressExtendsSteps: the progress of a tool extends the time of each step that it works for, but not that of the
// run.
func TestProgressExtendsSteps(t *testing.T) {
	for name, c := range map[string]struct {
		says   bool
		run    time.Duration
		reason string
	}{
		"it goes on":           {true, time.Minute, ""},
		"it says nothing":      {false, time.Minute, agent.ReasonTimeout},
		"the run has its time": {true, 4 * time.Second, agent.ReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := leader.NewAgent(leader.AgentConfig{ID: "m", Tools: []agent.Tool{steady{c.says}}, Model: modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
					if last := req.Messages[len(req.Messages)-1]; last.Role == agent.RoleTool {
						return &teamv1.Turn{Text: last.Text}
					}
					return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "work"}}}
				})})
				if err != nil {
					t.Fatal(err)
				}
				tm := newTeamWith(t, team.Config{ID: "root", Members: members("m"), Registry: registry{"m": m}, Scheduler: inOrder("m"),
					Limits: &teamv1.Limits{Timeout: durationpb.New(c.run), MemberTimeout: durationpb.New(3 * time.Second)}})
				text, err := ask(t, tm, "hi")
				synctest.Wait()
				if c.reason != "" {
					wantReason(t, err, c.reason)
				} else if err != nil || text != "3s" { // the whole time, from the last progress
					t.Error(text, err)
				}
			})
		})
	}
}
