package team_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/upstream"
)

// flaky is a member that fails with err while it is down.
type flaky struct {
	agent.Func
	down  atomic.Bool
	calls atomic.Int32
	err   error
}

func newFlaky(id string, err error) *flaky {
	f := &flaky{err: err}
	f.down.Store(true)
	f.Func = agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
		f.calls.Add(1)
		if f.down.Load() {
			return nil, f.err
		}
		return agent.NewMessage("up"), nil
	}}
	return f
}

// unanswering is a member that does not answer. If first is set, it records a first event.
type unanswering struct {
	first bool
}

func (*unanswering) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: "far", Name: "far"}, nil
}

func (*unanswering) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (s *unanswering) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if s.first && !yield(&teamv1.Event{Scope: req.GetScope(), Kind: &teamv1.Event_Bound{Bound: &teamv1.Bound{TaskId: "x"}}}, nil) {
			return
		}
		<-ctx.Done()
		yield(nil, ctx.Err())
	}
}

var (
	errAway  = &agent.Error{Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Retry: true, Message: "away"}
	errNo    = &agent.Error{Reason: agent.ReasonInvalidRequest, Code: agent.CodeInvalidArgument, Message: "no"}
	oneTry   = &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(1)}}
	quickTry = &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(time.Millisecond)}}
)

// guarded is a team that asks its member once, reports how it ended, and asks
// again as often as n says.
func guarded(t *testing.T, id string, reg registry, g team.Upstreams, l *teamv1.Limits, n int, log *zap.Logger) *team.Team {
	t.Helper()
	return newTeamWith(t, team.Config{ID: id, Members: members("far"), Registry: reg, Upstreams: g, Limits: l, ReportErrors: true, Log: log,
		Scheduler: next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) == n {
				return team.Decision{Reply: agent.NewMessage("done")}, nil
			}
			d := delegateTo("far")
			d.Steps[0].Input = &teamv1.Input{Message: agent.UserMessage("", fmt.Sprint(len(s.Steps)))}
			return d, nil
		})})
}

func outcomes(events []*teamv1.Event) []string {
	var all []string
	for _, ev := range events {
		if e := ev.GetEnded(); e != nil {
			all = append(all, strings.TrimPrefix(e.GetOutcome().String(), "OUTCOME_")+" "+e.GetError().GetReason())
		}
	}
	return all
}

func TestR_002_33_TeamsShareBreakers(t *testing.T) {
	t.Run("R-002-33 S-56 it opens, rejects without a call in every team, and closes after a probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{})
			far := newFlaky("far", errAway)
			reg := registry{"far": &far.Func}
			one, two := guarded(t, "one", reg, g, oneTry, 20, nil), guarded(t, "two", reg, g, oneTry, 1, nil)
			r := newRecord()
			r.process(t.Context(), one, nil)
			if far.calls.Load() != 20 || r.err != nil {
				t.Fatal(far.calls.Load(), r.err)
			}
			r = newRecord()
			r.process(t.Context(), two, nil)
			if got := outcomes(r.events); far.calls.Load() != 20 || len(got) != 1 || got[0] != "REJECTED BREAKER_OPEN" {
				t.Fatal(far.calls.Load(), got)
			}
			if events := ofStep(r.events, "1"); len(events) != 1 {
				t.Error("it was started:", events)
			} else if e := events[0].GetEnded().GetError(); e.GetDetails()["member"] != "far" || !strings.Contains(e.GetMessage(), "try again in 5s") {
				t.Error(e)
			}
			if h, err := two.HealthCheck(t.Context()); err != nil || h.GetHealthy() || h.GetMembers()[0].GetDetail() != "not called: circuit breaker open" {
				t.Error(h, err)
			}
			far.down.Store(false)
			time.Sleep(5 * time.Second)
			r = newRecord()
			r.process(t.Context(), two, nil)
			if got := outcomes(r.events); len(got) != 1 || got[0] != "SUCCEEDED " {
				t.Error(got)
			}
			if h, err := two.HealthCheck(t.Context()); err != nil || !h.GetHealthy() {
				t.Error(h, err)
			}
		})
	})
	t.Run("R-002-33 its state is observed at the start and when it changes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{Probe: time.Hour})
			far := newFlaky("far", errAway)
			reg := registry{"far": &far.Func}
			r := newRecord()
			r.process(t.Context(), guarded(t, "one", reg, g, oneTry, 22, nil), nil)
			var seen []string
			for _, ev := range r.events {
				for _, m := range ev.GetObserved().GetMembers() {
					seen = append(seen, fmt.Sprint(m.GetHealth().GetHealthy(), m.GetHealth().GetDetail(), m.GetInfo().GetId()))
				}
			}
			if fmt.Sprint(seen) != "[truefar falsenot called: circuit breaker openfar]" {
				t.Errorf("%q", seen)
			}
			r = newRecord()
			r.process(t.Context(), guarded(t, "two", reg, g, oneTry, 1, nil), nil)
			first := slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetObserved() != nil })
			if h := r.events[first].GetObserved().GetMembers()[0].GetHealth(); h.GetHealthy() || h.GetDetail() != "not called: circuit breaker open" {
				t.Error(h)
			}
		})
	})
	t.Run("R-002-33 refusals, cancels and guardrails do not open it", func(t *testing.T) {
		blocked := &agent.Error{Reason: agent.ReasonGuardrailBlocked, Code: agent.CodeFailedPrecondition, Message: "no"}
		over := &agent.Error{Reason: agent.ReasonBudgetExceeded, Code: agent.CodeInternal, Message: "no"}
		ended := &agent.Error{Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Answered: true, Message: "its task failed"}
		spent := &agent.Error{Reason: agent.ReasonAccountLimit, Code: agent.CodeResourceExhausted, Message: "tomorrow"}
		asks := &agent.Error{Reason: agent.ReasonInputRequired, Code: agent.CodeFailedPrecondition, Message: "which?"}
		for _, err := range []error{errNo, blocked, over, ended, spent, asks, agent.ErrCanceled, errors.New("bad input"), agent.Panicked(nil, "far", "x")} {
			g := upstream.New(upstream.Config{})
			far := newFlaky("far", err)
			r := newRecord()
			r.process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, g, oneTry, 30, nil), nil)
			if far.calls.Load() != 30 {
				t.Errorf("%v: %d calls", err, far.calls.Load())
			}
		}
	})
	t.Run("R-002-33 silence and 429 open it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			busy := &agent.Error{Reason: agent.ReasonUnavailable, Code: agent.CodeResourceExhausted, Message: "429"}
			for _, far := range []agent.Agent{&unanswering{}, &newFlaky("far", busy).Func} {
				g := upstream.New(upstream.Config{Window: time.Minute})
				limits := proto.CloneOf(oneTry)
				limits.MemberTimeout = durationpb.New(time.Second)
				r := newRecord()
				r.process(t.Context(), guarded(t, "one", registry{"far": far}, g, limits, 21, nil), nil)
				if got := outcomes(r.events); got[20] != "REJECTED BREAKER_OPEN" {
					t.Error(got)
				}
			}
		})
	})
	t.Run("R-002-33 callers that give little time, and work that takes long, do not open it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for far, most := range map[*unanswering]time.Duration{{}: 100 * time.Millisecond, {first: true}: 2 * time.Second} {
				g := upstream.New(upstream.Config{Window: time.Hour})
				limits := proto.CloneOf(oneTry)
				limits.MemberTimeout = durationpb.New(most)
				r := newRecord()
				r.process(t.Context(), guarded(t, "one", registry{"far": far}, g, limits, 30, nil), nil)
				if got := outcomes(r.events); len(got) != 30 || slices.Contains(got, "REJECTED BREAKER_OPEN") {
					t.Errorf("%s each: %v", most, got)
				}
			}
		})
	})
	t.Run("R-002-33 what is ended from above says nothing of the member", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{})
			far := &agent.Func{ID: "far", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			for range 30 {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, agent.ErrTimeout)
				newRecord().process(ctx, guarded(t, "one", registry{"far": far}, g, nil, 1, nil), nil)
				cancel()
			}
			if g.Open("", "far") != "" {
				t.Error(g.Open("", "far"))
			}
		})
	})
}

func TestState_ObservesMembersAgain(t *testing.T) {
	var f team.Fold
	seen := func(ids ...string) *teamv1.Observed {
		o := &teamv1.Observed{}
		for _, id := range ids {
			o.Members = append(o.Members, &teamv1.Observed_Member{Id: id})
		}
		return o
	}
	again := seen("a")
	f.Observe(seen("a", "b"))
	f.Observe(again)
	if len(f.Roster) != 2 || f.Roster[0] != again.GetMembers()[0] || f.Roster[1].GetId() != "b" {
		t.Error("R-000-30 what is known last is not known: ", f.Roster)
	}
}

// tally counts what it is asked of one call after the other.
type tally struct {
	team.NoUpstreams
	calls, retries int
}

func (u *tally) Called(string, string)                       { u.calls++ }
func (u *tally) Retry(string, string) (time.Duration, error) { u.retries++; return 0, nil }

func TestR_002_32_Repetitions(t *testing.T) {
	t.Run("R-002-32 the retries of all teams of a busy account together are bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{Calls: 1000, Busy: 1})
			far := newFlaky("far", errAway)
			r := newRecord()
			r.process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, g, quickTry, 10, nil), nil)
			if n := far.calls.Load(); n != 13 {
				t.Errorf("%d calls for ten delegations, want three repetitions in all", n)
			}
			if !slices.ContainsFunc(r.events, func(ev *teamv1.Event) bool {
				return strings.Contains(ev.GetEnded().GetError().GetMessage(), "away; it is not tried again: the retry budget of the account is used up")
			}) {
				t.Error("no step says why it was not repeated")
			}
		})
	})
	t.Run("R-002-32 an idle server makes as many attempts as the file says", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{Calls: 1000})
			far := newFlaky("far", errAway)
			r := newRecord()
			twelve := &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(12), Backoff: durationpb.New(time.Millisecond)}}
			r.process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, g, twelve, 1, nil), nil)
			if n := far.calls.Load(); n != 12 {
				t.Errorf("%d attempts, want 12", n)
			}
		})
	})
	t.Run("R-002-32 no more repetitions once the breaker is open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := upstream.New(upstream.Config{Calls: 2, Retries: 100})
			far := newFlaky("far", errAway)
			r := newRecord()
			r.process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, g, quickTry, 1, nil), nil)
			if got := outcomes(r.events); far.calls.Load() != 2 || got[0] != "FAILED UNAVAILABLE" {
				t.Error(far.calls.Load(), got)
			}
		})
	})
	t.Run("R-002-32 transport errors, 429, 5xx and timeouts of an attempt are repeated, nothing else", func(t *testing.T) {
		attemptTimeout := &agent.Error{Reason: agent.ReasonTimeout, Code: agent.CodeDeadlineExceeded, Retry: true, Message: "slow"}
		busy := &agent.Error{Reason: agent.ReasonUnavailable, Code: agent.CodeResourceExhausted, Retry: true, Fresh: true, Message: "429"}
		blocked := &agent.Error{Reason: agent.ReasonGuardrailBlocked, Code: agent.CodeFailedPrecondition, Message: "no"}
		asks := &agent.Error{Reason: agent.ReasonInputRequired, Code: agent.CodeFailedPrecondition, Message: "which?"}
		crash := agent.Panicked(nil, "far", "x")
		for err, want := range map[*agent.Error]int32{errAway: 3, attemptTimeout: 3, busy: 3, errNo: 1, blocked: 1, asks: 1, crash: 1} {
			synctest.Test(t, func(t *testing.T) {
				far := newFlaky("far", err)
				r := newRecord()
				r.process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, nil, quickTry, 1, nil), nil)
				if n := far.calls.Load(); n != want {
					t.Errorf("%v: %d attempts, want %d", err, n, want)
				}
			})
		}
	})
	t.Run("R-002-32 who asks to be left alone is, up to a minute; for longer there is no repetition", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for after, want := range map[time.Duration]int32{20 * time.Second: 2, time.Minute: 2, time.Minute + 1: 1} {
				busy := *errAway
				busy.RetryAfter, busy.Fresh = after, true
				far := newFlaky("far", &busy)
				began := time.Now()
				limits := &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(2)}, MemberTimeout: durationpb.New(2 * time.Minute)}
				newRecord().process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, nil, limits, 1, nil), nil)
				if n, d := far.calls.Load(), time.Since(began); n != want || want == 2 && (d < after || d > after+time.Second) || want == 1 && d != 0 {
					t.Errorf("Retry-After %s: %d attempts in %s", after, n, d)
				}
			}
		})
	})
	t.Run("R-002-32 a call counts once, each repetition as one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var u tally
			far := newFlaky("far", errAway)
			newRecord().process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, &u, quickTry, 1, nil), nil)
			if u.calls != 1 || u.retries != 2 {
				t.Errorf("%d calls and %d repetitions, want 1 and 2", u.calls, u.retries)
			}
		})
	})
	t.Run("R-002-8.1 when the retries are used up the error goes on, with the number of attempts on record", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			far := newFlaky("far", errAway)
			r := newRecord()
			r.process(t.Context(), guarded(t, "one", registry{"far": &far.Func}, nil, quickTry, 1, nil), nil)
			attempts := int32(0)
			for _, ev := range ofStep(r.events, "1") {
				attempts = max(attempts, ev.GetStarted().GetAttempt())
			}
			if got := outcomes(r.events); attempts != 3 || got[0] != "FAILED UNAVAILABLE" {
				t.Error(attempts, got)
			}
		})
	})
	t.Run("S-11 R-002-8.2 an attempt that hangs after a failure ends at the member's time, counted from the first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			var ended time.Time
			far := &agent.Func{ID: "far", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
				if calls++; calls == 1 {
					return nil, errAway
				}
				<-ctx.Done()
				ended = time.Now()
				return nil, ctx.Err()
			}}
			limits := proto.CloneOf(quickTry)
			limits.MemberTimeout = durationpb.New(2 * time.Second)
			began := time.Now()
			r := newRecord()
			r.process(t.Context(), guarded(t, "one", registry{"far": far}, nil, limits, 1, nil), nil)
			synctest.Wait()
			if got := outcomes(r.events); calls != 2 || got[0] != "TIMED_OUT TIMEOUT_EXCEEDED" || ended.Sub(began) != 2*time.Second {
				t.Error(calls, got, ended.Sub(began))
			}
		})
	})
}

// modelOnce fails the turns of a model's agent with errs, one a call.
type modelOnce struct {
	errs  []error
	calls int
}

func (*modelOnce) Name() string { return "m" }
func (m *modelOnce) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.calls++
		if len(m.errs) >= m.calls {
			yield(agent.ModelChunk{}, m.errs[m.calls-1])
			return
		}
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: "ok"}}, nil)
	}
}

func TestS_10_ModelOfAMember(t *testing.T) {
	t.Run("S-10 R-002-32 500, 500, text: three requests, growing gaps, one delegation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			busy := &agent.Error{Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Retry: true, Fresh: true, Message: "500"}
			m := &modelOnce{errs: []error{busy, busy}}
			reg := registry{"far": limitedAgent(t, "far", m, nil)}
			began := time.Now()
			r := newRecord()
			r.process(t.Context(), guarded(t, "one", reg, upstream.New(upstream.Config{}), nil, 1, nil), nil)
			if d := time.Since(began); m.calls != 3 || d < 3*time.Second || d > 4*time.Second {
				t.Error(m.calls, d)
			}
			delegations := 0
			for _, ev := range r.events {
				if ev.GetScope() == "1" && ev.GetStarted() != nil {
					delegations++
				}
			}
			if delegations != 1 || r.err != nil {
				t.Error(delegations, r.err)
			}
		})
	})
}

func TestR_002_34_EachFailureIsLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	reg := registry{"a": failing("a", errNo), "b": failing("b", errNo), "c": skilled("c")}
	tm := newTeamWith(t, team.Config{ID: "one", Members: members("a", "b", "c"), Registry: reg, ReportErrors: true, Log: zap.New(core),
		Scheduler: batches([]*teamv1.Step{to("a"), to("b"), to("c")})})
	r := newRecord()
	r.process(t.Context(), tm, nil)
	seen := map[any]any{}
	for _, l := range logs.FilterMessage("member did not succeed").All() {
		seen[l.ContextMap()["member"]] = l.ContextMap()["reason"]
	}
	if len(seen) != 2 || seen["a"] != agent.ReasonInvalidRequest || seen["b"] != agent.ReasonInvalidRequest {
		t.Error(seen)
	}
}
