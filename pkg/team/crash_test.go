package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// The test of the core contract: a run of nested, parallel, remote, asking,
// failing and panicking members, crashed at every event.

const crashRoot = "7f2c1a44-9c50-4f0e-8d57-0d6a1f7f3f10"

// world is what lies outside of the process: the journal that survives it, the
// inbox, and the effects that were had.
type world struct {
	t     *testing.T
	build func(*testing.T, *world) *team.Team // the team under test
	mu    sync.Mutex

	clock     func() time.Time
	events    []*teamv1.Event
	committed int
	loaded    int // events on record when the process began
	inbox     []*teamv1.Inbound
	wake      chan struct{}

	budget  int  // events until the process dies; negative is for ever
	dead    bool // it has died: nothing is recorded any more
	panics  bool // it dies by a panic of the journal
	effects map[string]int
	remote  map[string]string // the peer's tasks by key
	stopped map[string]bool   // of those, what was canceled
	sends   int               // messages the peer was sent
	most    int               // that it may be sent, where these are more than 2
	outcome string            // what people say of calls whose outcome is not known
	again   int               // how often they said so to call again
	faults  []string
	pauseAt int          // events on record when pauses is called, with mu held
	pauses  func(*world) // nil: the run is never paused
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, build: crashTeam, clock: time.Now, wake: make(chan struct{}, 1), budget: -1, effects: map[string]int{}, remote: map[string]string{}, stopped: map[string]bool{}, outcome: team.OutcomeDone}
	accepted := &teamv1.Accepted{
		TaskId: crashRoot, Agent: "root", Owner: "local/local", Seed: 42,
		Message: agent.UserMessage("m-1", "tides"),
	}
	w.events = []*teamv1.Event{{Seq: 1, Time: timestamppb.New(time.Unix(1000, 0)), Agent: "root", Kind: &teamv1.Event_Accepted{Accepted: accepted}}}
	w.committed = 1
	return w
}

// errDead: the process is gone.
var errDead = errors.New("the process is dead")

// crashPanic is what a journal that panics panics with.
type crashPanic struct{}

func (w *world) Load(context.Context) ([]*teamv1.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loaded = len(w.events)
	out := make([]*teamv1.Event, len(w.events))
	for i, ev := range w.events {
		out[i] = proto.CloneOf(ev) // nothing in memory survives
	}
	return out, nil
}

func (w *world) Append(_ context.Context, events ...*teamv1.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range events {
		if w.dead {
			return errDead
		}
		if w.pauses != nil && len(w.events) == w.pauseAt {
			w.pauses(w)
		}
		if w.budget == 0 {
			w.dead = true
			if w.panics {
				panic(crashPanic{})
			}
			return errDead
		}
		w.budget--
		ev.Seq = int64(len(w.events) + 1)
		ev.Time = timestamppb.New(w.clock())
		w.events = append(w.events, ev)
	}
	return nil
}

func (w *world) State(read func(*journal.Summary)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &journal.Summary{}
	for _, ev := range w.events {
		s.Apply(ev)
	}
	read(s)
}

func (w *world) Commit(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return errDead
	}
	w.committed = len(w.events)
	return ctx.Err()
}

func (w *world) Inbound(context.Context) ([]*teamv1.Inbound, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := map[int64]bool{}
	for _, ev := range w.events {
		taken[ev.GetAnswered().GetInbound()] = true
		taken[ev.GetReceived().GetInbound()] = true
		taken[ev.GetCommanded().GetInbound()] = true
	}
	var rows []*teamv1.Inbound
	for _, in := range w.inbox {
		if !taken[in.GetN()] {
			rows = append(rows, proto.CloneOf(in))
		}
	}
	return rows, nil
}

func (w *world) Wake() <-chan struct{} { return w.wake }

// crash throws away what was in memory; with lose also what was not durable.
func (w *world) crash(lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lose {
		w.events = w.events[:w.committed]
	}
	w.committed = len(w.events)
	w.dead, w.budget = false, -1
	select { // a new process reads the inbox anyway
	case <-w.wake:
	default:
	}
}

// answer answers every open question that has no answer on its way.
func (w *world) answer() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	answered := map[string]bool{}
	for _, in := range w.inbox {
		answered[in.GetKey()] = true
	}
	n := 0
	for _, ev := range w.events[:w.committed] {
		q := ev.GetAsked()
		if q == nil || answered[q.GetQuestion()] {
			continue
		}
		n++
		text := "yes to " + agent.Text(q.GetMessage())
		if q.GetKind() == teamv1.Asked_KIND_OUTCOME {
			text = w.outcome
			if text == team.OutcomeAgain {
				w.again++
			}
		}
		switch {
		case q.GetBudget() != nil:
			text = "9000 tokens"
		case q.GetApproval() != nil:
			text = w.decides(q.GetApproval())
		}
		w.inbox = append(w.inbox, &teamv1.Inbound{
			N: int64(len(w.inbox) + 1), Scope: ev.GetScope(), Key: q.GetQuestion(),
			Kind: &teamv1.Inbound_Answered{Answered: answerWith(w.t, q, text)},
		})
	}
	if n > 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	return n
}

// answerWith returns the answer to a question, as it is recorded.
func answerWith(t *testing.T, q *teamv1.Asked, text string) *teamv1.Answered {
	t.Helper()
	a := &teamv1.Answered{Question: q.GetQuestion(), Message: agent.UserMessage("answer-"+q.GetQuestion(), text)}
	var err error
	switch {
	case q.GetBudget() != nil:
		a.Grant, err = forms.ReadGrant(q.GetBudget(), a.GetMessage())
	case q.GetApproval() != nil:
		a.Approval, err = forms.ReadApproval(q.GetApproval(), a.GetMessage())
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// decides is the decision about a call: the first of a tool is edited, one that says no is rejected.
func (w *world) decides(r *teamv1.ApprovalRequest) string {
	switch {
	case strings.Contains(r.GetArguments(), "not this"):
		return "reject: not this"
	case strings.Contains(r.GetArguments(), "edit this") && r.GetPlan() != nil:
		return "edit: " + strings.ReplaceAll(r.GetArguments(), "edit this", "edited")
	case strings.Contains(r.GetArguments(), "edit this"):
		return `edit: {"edited": true}`
	case strings.Contains(r.GetArguments(), "all of these"):
		return "approve all"
	}
	return "approve"
}

// effect is had outside: its start must be on record and durable, its end must not.
func (w *world) effect(name, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hadEffect(name, key)
}

// effectWithin is effect for a tool: nobody waits for a call whose context has ended, so
// it may get here when the end of its step is on record, or when a new process has begun.
func (w *world) effectWithin(ctx context.Context, name, key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.hadEffect(name, key)
	return nil
}

// hadEffect counts an effect, with mu held.
func (w *world) hadEffect(name, key string) {
	w.effects[name]++
	scope, started, at := "", false, int64(0)
	for _, ev := range w.events[:w.committed] {
		if ev.GetStarted().GetKey() == key {
			scope, started, at = ev.GetScope(), true, ev.GetSeq()
		}
	}
	if pause := w.pausedAt(); pause > 0 && (at > pause || int64(w.loaded) >= pause) {
		w.faults = append(w.faults, fmt.Sprintf("%s: begins while the run is paused", name))
	}
	if !started && !w.dead {
		w.faults = append(w.faults, fmt.Sprintf("%s: effect before its start was durable", name))
	}
	for _, ev := range w.events {
		if ev.GetScope() == "" && ev.GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_CANCEL {
			w.faults = append(w.faults, fmt.Sprintf("%s: begins after the cancel", name))
		}
		if started && ev.GetScope() == scope && ev.GetEnded() != nil {
			w.faults = append(w.faults, fmt.Sprintf("%s: step %s has ended on record and runs again", name, scope))
		}
		if started && ev.GetSeq() <= int64(w.loaded) && drops(ev, scope) {
			w.faults = append(w.faults, fmt.Sprintf("%s: step %s was dropped and runs again", name, scope))
		}
	}
}

// drops reports whether an event is a decision that drops a step, or one above it.
func drops(ev *teamv1.Event, scope string) bool {
	return slices.ContainsFunc(ev.GetDecided().GetCancel(), func(id string) bool {
		return agent.Within(scope, agent.Scope(ev.GetScope(), id))
	})
}

// worker is a member with one effect.
type worker struct {
	w    *world
	name string
	do   func(req *teamv1.ProcessRequest) (string, error)
}

func (k *worker) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: k.name, Name: k.name}, nil
}
func (k *worker) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }
func (k *worker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		k.w.effect(k.name, req.GetKey())
		text := k.name + "(" + agent.Text(req.GetMessage()) + ")"
		if k.do != nil {
			var err error
			if text, err = k.do(req); err != nil {
				yield(nil, err)
				return
			}
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage(text)}}), nil)
	}
}

// asker is a leaf that asks, and answers with what it was told.
type asker struct{ worker }

func (k *asker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		for _, ev := range req.GetRecorded() {
			if a := ev.GetAnswered(); a != nil {
				yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("told: " + agent.Text(a.GetMessage()))}}), nil)
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		for _, ev := range req.GetRecorded() {
			if ev.GetAsked() != nil {
				return // still open
			}
		}
		k.w.effect(k.name, req.GetKey())
		yield(&teamv1.Event{Scope: req.GetScope(), Agent: agent.Path(req), Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{
			Question: "q-" + req.GetKey(), Kind: teamv1.Asked_KIND_INPUT, Message: agent.NewMessage(k.name + "?"),
			Expires: timestamppb.New(time.Now().Add(time.Hour)),
		}}}, nil)
	}
}

// peer is a remote agent: it knows its callers' keys, and is reattached to by
// the task id on record.
type peer struct{ worker }

func (k *peer) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		task := ""
		for _, ev := range req.GetRecorded() {
			if b := ev.GetBound(); b != nil {
				task = b.GetTaskId()
			}
		}
		if ctx.Err() != nil {
			k.stop(task, context.Cause(ctx))
			yield(nil, context.Cause(ctx))
			return
		}
		if task == "" {
			k.w.effect(k.name, req.GetKey())
			task = k.send(req)
			bound := &teamv1.Event{Scope: req.GetScope(), Agent: agent.Path(req), Kind: &teamv1.Event_Bound{Bound: &teamv1.Bound{Peer: "peer", TaskId: task}}}
			if !yield(bound, nil) {
				return
			}
			if err := agent.Commit(ctx); err != nil {
				k.stop(task, err)
				yield(nil, err)
				return
			}
		}
		k.w.mu.Lock()
		text := k.w.remote[task]
		k.w.mu.Unlock()
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage(text)}}), nil)
	}
}

// stop ends a task at the peer when the call was canceled.
func (k *peer) stop(task string, cause error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if task != "" && errors.Is(cause, agent.ErrCanceled) {
		k.w.stopped[task] = true
	}
}

// send begins a task at the peer, once for a key.
func (k *peer) send(req *teamv1.ProcessRequest) string {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	task := "remote-" + req.GetKey()
	if _, known := k.w.remote[task]; !known {
		k.w.sends++
		k.w.remote[task] = "peer(" + agent.Text(req.GetMessage()) + ")"
	}
	return task
}

// fakeModel calls a tool, then an unsafe one, then answers with the result of the
// first, streaming its text.
type fakeModel struct{ w *world }

func (m *fakeModel) Name() string { return "fake" }
func (m *fakeModel) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.w.effect("model", req.Key)
		last := req.Messages[len(req.Messages)-1]
		turn := &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c1", Name: "clock", Arguments: strconv.Quote(last.Text)}}}
		switch n := len(req.Messages); {
		case last.Role == agent.RoleTool && len(req.Tools) == 2 && n == 3:
			turn = &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c2", Name: "pay", Arguments: "{}"}}}
		case last.Role == agent.RoleTool:
			turn = &teamv1.Turn{Text: "model(" + req.Messages[2].Text + ")"}
			if !yield(agent.ModelChunk{Text: turn.GetText()[:3]}, nil) || !yield(agent.ModelChunk{Text: turn.GetText()[3:]}, nil) {
				return
			}
		}
		yield(agent.ModelChunk{Turn: turn, Spent: &teamv1.Spent{InputTokens: 3, OutputTokens: 2}}, nil)
	}
}

type clockTool struct{ w *world }

func (c *clockTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "clock"} }
func (c *clockTool) Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	if err := c.w.effectWithin(ctx, "tool", key); err != nil {
		return nil, err
	}
	return &teamv1.ToolResult{Text: string(arguments)}, nil
}

// payTool must not be called twice for the same thing.
type payTool struct{ w *world }

func (*payTool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "pay", Effect: agent.EffectUnsafe}
}
func (c *payTool) Call(ctx context.Context, _ json.RawMessage, key string) (*teamv1.ToolResult, error) {
	if err := c.w.effectWithin(ctx, "pay", key); err != nil {
		return nil, err
	}
	return &teamv1.ToolResult{Text: "paid"}, nil
}

// payments is a set with the one tool.
type payments struct{ w *world }

func (payments) Name() string { return "payments" }
func (s payments) Tools(context.Context) ([]agent.Tool, error) {
	return []agent.Tool{&payTool{s.w}}, nil
}

// script is a scheduler with fixed batches; "?" asks people.
type script struct {
	team.Base
	batches [][]string
}

func (s *script) Next(st *team.State) (team.Decision, error) {
	n := 0
	for _, b := range s.batches {
		if len(st.Steps) == n {
			d := team.Decision{Reason: fmt.Sprintf("batch %v", b), Updates: map[string]*structpb.Value{"n": structpb.NewNumberValue(float64(n))}}
			for _, m := range b {
				step := &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: m}
				if m == "?" {
					step = &teamv1.Step{Kind: teamv1.Step_KIND_HUMAN, Ask: &teamv1.Ask{Question: "really?", Options: []string{"yes"}}}
				}
				d.Steps = append(d.Steps, step)
			}
			return d, nil
		}
		n += len(b)
	}
	if st.Last.Message == nil {
		return team.Decision{Reply: agent.NewMessage("nothing"), Reason: "done"}, nil
	}
	return team.Decision{Reply: st.Last.Message, Reason: "done"}, nil
}

// registry is Members over a map.
type registry map[string]agent.Agent

func (r registry) Agent(id string) (agent.Agent, error) {
	if a, ok := r[id]; ok {
		return a, nil
	}
	return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", id)
}
func (r registry) Health(string) *teamv1.Health { return agent.Healthy() }

func members(ids ...string) []team.Member {
	var ms []team.Member
	for _, id := range ids {
		ms = append(ms, team.Member{Agent: id})
	}
	return ms
}

// crashTeam is the team under test: one process' view of the world.
func crashTeam(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := registry{}
	plain := func(name string) { reg[name] = &worker{w: w, name: name} }
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		plain(n)
	}
	reg["asker"] = &asker{worker{w: w, name: "asker"}}
	reg["asker2"] = &asker{worker{w: w, name: "asker2"}}
	reg["peer"] = &peer{worker{w: w, name: "peer"}}
	reg["panicker"] = &worker{w: w, name: "panicker", do: func(*teamv1.ProcessRequest) (string, error) { panic("no") }}
	failed := map[string]bool{}
	var mu sync.Mutex
	reg["flaky"] = &worker{w: w, name: "flaky", do: func(req *teamv1.ProcessRequest) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		first := (&agent.Run{Root: crashRoot}).ID(req.GetScope(), "key", 1) == req.GetKey()
		failed[req.GetKey()] = true
		if first {
			return "", &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "busy"}
		}
		return "flaky(" + agent.Text(req.GetMessage()) + ")", nil
	}}
	modeled, err := leader.NewAgent(leader.AgentConfig{ID: "modeled", Model: &fakeModel{w}, Tools: []agent.Tool{&clockTool{w}}, ToolSets: []agent.ToolSet{payments{w}}})
	if err != nil {
		t.Fatal(err)
	}
	reg["modeled"] = modeled
	limits := &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(time.Microsecond)}, MaxParallel: proto.Int32(6)}
	inner, err := team.New(team.Config{
		ID: "inner", Mode: "script", Registry: reg, Members: members("c", "d", "e", "asker2"), Limits: limits,
		Scheduler: &script{batches: [][]string{{"c"}, {"?"}, {"d", "e", "asker2"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	reg["inner"] = inner
	top, err := team.New(team.Config{
		ID: "root", Mode: "script", Registry: reg, ReportErrors: true, Limits: limits,
		Members:   members("a", "b", "inner", "peer", "asker", "panicker", "flaky", "modeled"),
		Scheduler: &script{batches: [][]string{{"a"}, {"b", "inner", "peer", "asker", "panicker", "flaky"}, {"modeled"}, {"?"}, {"peer"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// live runs one process until it ends, parks with nobody to answer, or dies.
// done reports that the run has ended.
func (w *world) live(answers bool) (done bool) {
	top := w.build(w.t, w)
	r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }, Replica: "r"}
	for {
		park, err := r.Drive(w.t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: w})
		switch {
		case err != nil:
			if w.mu.Lock(); !w.dead {
				w.t.Fatalf("drive: %v", err)
			}
			w.mu.Unlock()
			return false
		case park.Done:
			return true
		}
		if !answers || w.answer() == 0 {
			if rows, _ := w.Inbound(w.t.Context()); len(rows) == 0 {
				w.t.Fatal("parked, and there is nothing to answer")
			}
		}
	}
}

// verify checks what must hold of a finished run and returns its answer.
func (w *world) verify(baseline string) string {
	w.t.Helper()
	for _, f := range w.faults {
		w.t.Error(f)
	}
	ends := map[string]int{}
	starts := map[string]int{}
	for i, ev := range w.events {
		if ev.GetSeq() != int64(i+1) {
			w.t.Fatalf("event %d has sequence %d", i, ev.GetSeq())
		}
		if ev.GetEnded() != nil {
			ends[ev.GetScope()]++
		}
		if ev.GetStarted() != nil && ev.GetScope() != "" {
			starts[ev.GetScope()]++
		}
	}
	for scope := range starts {
		if ends[scope] != 1 {
			w.t.Errorf("I1: step %s has %d ends", scope, ends[scope])
		}
	}
	w.replayDecisions()
	last := w.events[len(w.events)-1].GetEnded()
	m := last.GetReply()
	if ref := last.GetReplyRef(); ref > 0 {
		m = journal.MessageOf(crashRoot, w.events[ref-1])
	}
	text := fmt.Sprintf("%s: %s", last.GetOutcome(), agent.Text(m))
	if baseline != "" && text != baseline {
		w.t.Errorf("the result differs:\n%s\n%s", text, baseline)
	}
	if paid := w.effects["pay"]; paid > 1+w.again {
		w.t.Errorf("the unsafe tool ran %d times, and people had it called again %d times", paid, w.again)
	}
	if w.sends > max(2, w.most) {
		w.t.Errorf("the peer was sent %d messages", w.sends)
	}
	return text
}

// replayDecisions recomputes every decision of the root from what was on record
// before it.
func (w *world) replayDecisions() {
	w.t.Helper()
	top := w.build(w.t, newWorld(w.t))
	req := &teamv1.ProcessRequest{AgentId: "root", Message: w.events[0].GetAccepted().GetMessage()}
	p := team.NewReplay(w.t.Context(), top, req, crashRoot)
	n := 0
	for _, ev := range w.events[1:] {
		if ev.GetScope() == "" && ev.GetDecided() != nil {
			d, err := p.Decide()
			if err != nil {
				w.t.Fatal(err)
			}
			if diff := cmp.Diff(ev.GetDecided(), d, protocmp.Transform()); diff != "" {
				w.t.Errorf("decision %d is not what Next says now:\n%s", n, diff)
			}
			n++
		}
		if ev.GetScope() != "" || ev.GetDecided() != nil || ev.GetObserved() != nil {
			p.Apply(ev)
		}
	}
	if n == 0 {
		w.t.Error("no decision on record")
	}
}

// outcomesAsked counts the questions about calls whose outcome is not known.
func (w *world) outcomesAsked() int {
	n := 0
	for _, ev := range w.events {
		if ev.GetAsked().GetKind() == teamv1.Asked_KIND_OUTCOME {
			n++
		}
	}
	return n
}

func baselineRun(t *testing.T) (events int, text string) {
	return baselineOf(t, crashTeam, "SUCCEEDED: peer(")
}

// baselineOf runs a team without a crash.
func baselineOf(t *testing.T, build func(*testing.T, *world) *team.Team, want string) (events int, text string) {
	t.Helper()
	w := newWorld(t)
	w.build = build
	if !w.live(true) {
		t.Fatal("did not end")
	}
	text = w.verify("")
	if !strings.Contains(text, want) || !strings.Contains(text, "tides") {
		t.Fatalf("unexpected answer %q", text)
	}
	if paid := w.effects["pay"]; paid > 1 {
		t.Fatalf("the unsafe tool ran %d times", paid)
	}
	return len(w.events), text
}

// TestCrash_AtEveryEvent kills the process at every event of the run, with what
// was not durable kept and lost, and many times in a row.
func TestCrash_AtEveryEvent(t *testing.T) { crashEverywhere(t, crashTeam, "SUCCEEDED: peer(") }

// crashEverywhere does it with a team whose answer begins as it is wanted.
func crashEverywhere(t *testing.T, build func(*testing.T, *world) *team.Team, want string) {
	t.Helper()
	defer goleak.VerifyNone(t)
	n, baseline := baselineOf(t, build, want)
	unsafe := strings.HasPrefix(want, "SUCCEEDED: peer(") // the team with the tool that must not run twice
	outcomes := []string{team.OutcomeDone}
	if unsafe {
		outcomes = append(outcomes, team.OutcomeAgain, team.OutcomeFail)
	}
	begin := func() *world {
		w := newWorld(t)
		w.build = build
		return w
	}
	crashes, asked := 0, 0
	for _, lose := range []bool{false, true} {
		for at := 0; at < n+4; at += sample.Stride() {
			w := begin()
			w.budget, w.outcome = at, outcomes[at%len(outcomes)]
			for !w.live(true) {
				crashes++
				w.crash(lose)
			}
			w.verify(baseline)
			asked += w.outcomesAsked()
		}
	}
	if unsafe && asked < max(3/sample.Stride(), 1) {
		t.Errorf("people were asked %d times what became of a call", asked)
	}
	for seed := range uint64(150 / sample.Stride()) {
		random := rand.New(rand.NewPCG(seed, 7))
		w := begin()
		w.budget, w.outcome = 5+random.IntN(25), outcomes[random.IntN(len(outcomes))]
		for !w.live(true) {
			crashes++
			w.crash(random.IntN(2) == 0)
			w.budget = 5 + random.IntN(25)
		}
		w.verify(baseline)
	}
	t.Logf("%d crashes in runs of about %d events, each with the same result", crashes, n)
	if crashes < 2*n/sample.Stride() {
		t.Errorf("only %d crashes", crashes)
	}
}

// TestCrash_PanickingConsumer panics in the journal at every event: the panic
// comes out as it is, no member is blamed, and nothing is left behind.
func TestCrash_PanickingConsumer(t *testing.T) {
	defer goleak.VerifyNone(t)
	n, baseline := baselineRun(t)
	for at := range n {
		w := newWorld(t)
		w.budget, w.panics = at, true
		if !survives(w) {
			w.panics = false
			w.crash(true)
			w.live(true)
		}
		w.verify(baseline)
	}
}

// survives runs a process whose journal may panic; false when it did.
func survives(w *world) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(crashPanic); !is {
				w.t.Fatalf("another panic came out: %v", r)
			}
		}
	}()
	return w.live(true)
}

// TestCrash_Break breaks off at every event: the sequence ends and leaves nothing.
func TestCrash_Break(t *testing.T) {
	defer goleak.VerifyNone(t)
	for at := 1; ; at++ {
		w := newWorld(t)
		top := crashTeam(t, w)
		seen, after := 0, false
		for ev, err := range top.Process(t.Context(), &teamv1.ProcessRequest{AgentId: "root", Message: agent.UserMessage("m", "tides")}) {
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Append(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			_ = w.Commit(t.Context())
			if seen++; seen == at {
				after = true
				break
			}
		}
		goleak.VerifyNone(t)
		if !after {
			return
		}
	}
}

// TestCrash_Cancel cancels at every event: the run ends canceled, and every step
// that started has its end on record.
func TestCrash_Cancel(t *testing.T) {
	defer goleak.VerifyNone(t)
	n, _ := baselineRun(t)
	for at := 1; at < n; at++ {
		w := newWorld(t)
		top := crashTeam(t, w)
		ctx, cancel := context.WithCancelCause(t.Context())
		open := map[string]bool{}
		var last error
		events := 0
		for ev, err := range top.Process(ctx, &teamv1.ProcessRequest{AgentId: "root", Message: agent.UserMessage("m", "tides")}) {
			if err != nil {
				last = err
				continue
			}
			if events++; events == at {
				cancel(agent.ErrCanceled)
			}
			_ = w.Append(t.Context(), ev)
			_ = w.Commit(t.Context())
			if ev.GetStarted() != nil {
				open[ev.GetScope()] = true
			}
			if ev.GetEnded() != nil {
				delete(open, ev.GetScope())
			}
		}
		cancel(nil)
		if events < at {
			return
		}
		if !errors.Is(last, agent.ErrCanceled) && last != nil {
			t.Errorf("cancel at %d: ended with %v", at, last)
		}
		if last != nil && len(open) > 0 {
			t.Errorf("cancel at %d: steps %v have no end", at, open)
		}
	}
}
