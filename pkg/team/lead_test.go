package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// scriptedLead is a leader's model: it takes its turns one after the other, keeps
// what it was asked, and refuses prompts that a provider would refuse.
type scriptedLead struct {
	t *testing.T

	mu       sync.Mutex
	turns    []func(*agent.ModelRequest) *teamv1.Turn
	requests []*agent.ModelRequest
}

// leads returns a leader that takes these turns: a *teamv1.Turn each, or a func
// that makes one of the request.
func leads(t *testing.T, turns ...any) *scriptedLead {
	t.Helper()
	m := &scriptedLead{t: t}
	for _, turn := range turns {
		switch turn := turn.(type) {
		case *teamv1.Turn:
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return turn })
		case func(*agent.ModelRequest) *teamv1.Turn:
			m.turns = append(m.turns, turn)
		default:
			t.Fatalf("a turn of type %T", turn)
		}
	}
	return m
}

func (*scriptedLead) Name() string { return "lead" }

func (m *scriptedLead) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		if err := wellFormed(req); err != nil {
			m.t.Errorf("request %d: %v", len(m.all())+1, err)
		}
		m.mu.Lock()
		n := len(m.requests)
		m.requests = append(m.requests, req)
		m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			yield(agent.ModelChunk{}, context.Cause(ctx))
		case n >= len(m.turns):
			yield(agent.ModelChunk{}, agent.Errorf(agent.CodeInternal, agent.ReasonUnavailable, "the model has no turn %d", n+1))
		default:
			yield(agent.ModelChunk{Turn: m.turns[n](req), Spent: &teamv1.Spent{InputTokens: 10, OutputTokens: 1}}, nil)
		}
	}
}

// all are the requests so far.
func (m *scriptedLead) all() []*agent.ModelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// checkTool is the tool by which a leader looks after what it does not wait for.
const checkTool = "check_delegated_tasks"

// unfit is what providers do not take in the name of a tool.
var unfit = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// delegateName is the name of the tool that stands for a member.
func delegateName(id string) string {
	c, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: members(id)})
	if err != nil {
		panic(err)
	}
	s := &team.State{Team: &team.Config{ID: "t1"}, Input: agent.UserMessage("m", "x")}
	return c.Prompt(s, &teamv1.Step{Kind: teamv1.Step_KIND_MODEL}).Tools[0].Name
}

// wellFormed reports what a provider would not take: names of tools that are
// not unique or too long, and calls that are not answered exactly once, in their
// order, right behind the turn that made them.
func wellFormed(req *agent.ModelRequest) error {
	names := map[string]bool{}
	for _, tool := range req.Tools {
		if names[tool.Name] || len(tool.Name) > 64 || tool.Name == "" || unfit.MatchString(tool.Name) {
			return fmt.Errorf("tool name %q", tool.Name)
		}
		names[tool.Name] = true
		var schema map[string]any
		if len(tool.Parameters) > 0 && json.Unmarshal(tool.Parameters, &schema) != nil {
			return fmt.Errorf("schema of %s: %s", tool.Name, tool.Parameters)
		}
	}
	var open []*teamv1.ToolCall
	for i, msg := range req.Messages {
		if msg.Role == agent.RoleTool {
			if len(open) == 0 || open[0].GetId() != msg.CallID || open[0].GetName() != msg.Tool {
				return fmt.Errorf("message %d answers %q of %s, open are %v", i, msg.CallID, msg.Tool, open)
			}
			open = open[1:]
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: calls %v are not answered", i, open)
		}
		open = msg.ToolCalls
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %v are not answered", open)
	}
	return nil
}

// answers are what the calls of the last turn were answered with: "id: text".
func answers(req *agent.ModelRequest) []string {
	var list []string
	for _, msg := range slices.Backward(req.Messages) {
		if msg.Role == agent.RoleAssistant {
			break
		}
		if msg.Role == agent.RoleTool {
			list = append(list, msg.CallID+": "+msg.Text)
		}
	}
	slices.Reverse(list)
	return list
}

// lastSaid is the last message of a prompt.
func lastSaid(req *agent.ModelRequest) string { return req.Messages[len(req.Messages)-1].Text }

// offered are the names of the tools of a request.
func offered(req *agent.ModelRequest) []string {
	var names []string
	for _, tool := range req.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func says(text string) *teamv1.Turn { return &teamv1.Turn{Text: text} }

// calls is a turn with calls; those without an id get c1, c2, ….
func calls(list ...*teamv1.ToolCall) *teamv1.Turn {
	for i, c := range list {
		if c.GetId() == "" {
			c.Id = fmt.Sprintf("c%d", i+1)
		}
	}
	return &teamv1.Turn{ToolCalls: list}
}

// tool is a call of a tool.
func tool(name, arguments string) *teamv1.ToolCall {
	return &teamv1.ToolCall{Name: name, Arguments: arguments}
}

// give is a call that gives a member a task.
func give(member, task string) *teamv1.ToolCall {
	arguments, _ := json.Marshal(map[string]string{"task": task})
	return tool(delegateName(member), string(arguments))
}

// ledBy is a coordinator team. Changes are made before it is built.
func ledBy(t *testing.T, m agent.Model, reg registry, changes ...func(*leader.CoordinatorConfig, *team.Config)) *team.Team {
	t.Helper()
	c := leader.CoordinatorConfig{Members: members(sortedKeys(reg)...)}
	cfg := team.Config{
		ID: "t1", Mode: "coordinator", Registry: reg, Model: m, ReportErrors: true,
		Limits: &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(1)}},
	}
	for _, change := range changes {
		change(&c, &cfg)
	}
	cfg.Members, cfg.Tools, c.Limits = c.Members, c.Tools, cfg.Limits
	s, err := leader.NewCoordinator(c)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Scheduler = s
	return newTeamWith(t, cfg)
}

func inParallel(c *leader.CoordinatorConfig, _ *team.Config) { c.AllowParallel = true }

// member changes a member of a team.
func member(id string, change func(*team.Member)) func(*leader.CoordinatorConfig, *team.Config) {
	return func(c *leader.CoordinatorConfig, _ *team.Config) {
		i := slices.IndexFunc(c.Members, func(m team.Member) bool { return team.MemberID(&m) == id })
		change(&c.Members[i])
	}
}

// recorded is what a run put on record, and how it ended.
type recorded struct {
	events []*teamv1.Event
	reply  *teamv1.Reply
	err    error
}

// watch runs an agent and keeps its events.
func watch(ctx context.Context, a agent.Agent, text string) *recorded {
	return watchRequest(ctx, a, &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m-1", text)})
}

func watchRequest(ctx context.Context, a agent.Agent, req *teamv1.ProcessRequest) *recorded {
	r := &recorded{}
	for ev, err := range a.Process(agent.With(ctx, &agent.Run{Root: crashRoot, Seed: 1}), req) {
		switch {
		case err != nil:
			r.err = err
		case ev.GetReply() != nil && ev.GetScope() == "":
			r.reply = ev.GetReply()
		default:
			ev.Seq, ev.Time = int64(len(r.events)+1), timestamppb.New(time.Now())
			r.events = append(r.events, ev)
		}
	}
	return r
}

// text is the answer's.
func (r *recorded) text() string { return agent.Text(r.reply.GetMessage()) }

// delegations are the members' steps of the run itself: "step member: outcome reason".
func (r *recorded) delegations() []string {
	var list []string
	kinds := map[string]*teamv1.Step{}
	for _, ev := range r.events {
		for _, st := range ev.GetDecided().GetSteps() {
			if ev.GetScope() == "" {
				kinds[st.GetId()] = st
			}
		}
		st := kinds[ev.GetScope()]
		if e := ev.GetEnded(); e != nil && st != nil && agent.IsDelegation(st.GetKind()) {
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", st.GetId(), st.GetMember(), expr.OutcomeWord(e.GetOutcome()), e.GetError().GetReason())))
		}
	}
	slices.Sort(list)
	return list
}

// starts are how many attempts of a scope began.
func (r *recorded) starts(scope string) int {
	n := 0
	for _, ev := range r.events {
		if ev.GetScope() == scope && ev.GetStarted() != nil {
			n++
		}
	}
	return n
}

// complete fails the test where I1 does not hold.
func (r *recorded) complete(t *testing.T) {
	t.Helper()
	for _, fault := range r.incomplete() {
		t.Error(fault)
	}
}

// incomplete are the steps for which I1 does not hold: one that has begun, or was
// refused, has exactly one end.
func (r *recorded) incomplete() (faults []string) {
	started, ended := map[string]bool{}, map[string]int{}
	for _, ev := range r.events {
		if ev.GetStarted().GetAttempt() == 1 {
			started[ev.GetScope()] = true
		}
		if ev.GetEnded() != nil {
			ended[ev.GetScope()]++
		}
	}
	for _, scope := range sortedKeys(started) {
		if ended[scope] == 0 {
			faults = append(faults, "I1: "+scope+" has begun and has no end")
		}
	}
	for _, scope := range sortedKeys(ended) {
		if ended[scope] != 1 {
			faults = append(faults, fmt.Sprintf("I1: %s has %d ends", scope, ended[scope]))
		}
	}
	return faults
}

// stuck is a member that works until it is ended.
func stuck(id string) *agent.Func {
	return &agent.Func{ID: id, Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
}

// takes is a member that answers after a time.
func (d *diary) takes(id string, wait time.Duration) *agent.Func {
	return &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		d.note(id + " begins")
		if err := agent.Sleep(ctx, wait); err != nil {
			d.note(id + " is ended")
			return nil, err
		}
		d.note(id + " ends")
		return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
	}}
}

// noted are the texts of a code's notes.
func (r *recorded) noted(code string) []string {
	var list []string
	for _, ev := range r.events {
		if ev.GetNoted().GetCode() == code {
			list = append(list, ev.GetNoted().GetText())
		}
	}
	return list
}

// has fails the test where a text lacks a piece.
func has(t *testing.T, text string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("%q lacks %q", text, piece)
		}
	}
}

// unavailable is what a model's endpoint answers that is down for a while.
func unavailable() error {
	return &agent.Error{Code: agent.CodeUnavailable, Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "the endpoint answered 500"}
}

// update is a change of a run's context.
func update(key, value string) map[string]*structpb.Value {
	return map[string]*structpb.Value{key: structpb.NewStringValue(value)}
}

func runnerOf(a agent.Agent) *drive.Runner {
	return &drive.Runner{Agent: func(string) (agent.Agent, error) { return a, nil }, Replica: "r"}
}

func claimOf(w *world) runs.Claim { return runs.Claim{Root: crashRoot, Epoch: 1, Journal: w} }
