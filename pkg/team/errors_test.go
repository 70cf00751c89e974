package team_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

var rewrite = flag.Bool("update", false, "write the golden file anew")

// provoked is a way to an error of this package.
type provoked struct {
	how string
	err func(t *testing.T) error
}

// fails runs a team and returns its error.
func fails(c team.Config, shape func(*team.Config, *diary)) func(t *testing.T) error {
	return func(t *testing.T) error {
		t.Helper()
		d := &diary{}
		if c.ID == "" {
			c.ID = "desk"
		}
		if c.Registry == nil {
			c.Registry = d.crew("ann", "bob")
			c.Members = members("ann", "bob")
		}
		if shape != nil {
			shape(&c, d)
		}
		tm, err := team.New(c)
		if err != nil {
			return err
		}
		r := newRecord()
		r.process(t.Context(), tm, nil)
		return r.err
	}
}

func callsOf(list ...string) *teamv1.Turn {
	turn := &teamv1.Turn{}
	for i, c := range list {
		name, arguments, _ := strings.Cut(c, " ")
		turn.ToolCalls = append(turn.ToolCalls, &teamv1.ToolCall{Id: fmt.Sprint(i), Name: name, Arguments: arguments})
	}
	return turn
}

// led is a coordinator's run whose leader takes these turns, and one more that
// calls nothing.
func led(k leader.CoordinatorConfig, turns ...*teamv1.Turn) func(t *testing.T) error {
	return fails(team.Config{}, func(c *team.Config, _ *diary) {
		k.Members = c.Members
		s, err := leader.NewCoordinator(k)
		if err != nil {
			panic(err)
		}
		c.Scheduler, c.Model, c.ReportErrors, c.Limits = s, &turnsOf{turns: turns}, true, k.Limits
	})
}

// answeredWith is what a leader is told of its call.
func answeredWith(call string) func(t *testing.T) error {
	return func(t *testing.T) error {
		t.Helper()
		m := &turnsOf{turns: []*teamv1.Turn{callsOf(call), {Text: "done"}}}
		c, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: []team.Member{{ID: "ann", Agent: "ann"}, {ID: "bob", Agent: "bob"}, {ID: "off", Agent: "off", Disabled: true}}})
		if err != nil {
			return err
		}
		var d diary
		tm := newTeamWith(t, team.Config{
			ID: "desk", Scheduler: c, Model: m, ReportErrors: true, Registry: d.crew("ann", "bob", "off"),
			Members: []team.Member{{Agent: "ann"}, {Agent: "bob"}, {Agent: "off", Disabled: true}},
		})
		r := newRecord()
		r.process(t.Context(), tm, nil)
		if r.err != nil {
			return r.err
		}
		answered := m.requests[1].Messages
		return agent.Errorf(0, agent.ReasonInvalidRequest, "%s", answered[len(answered)-1].Text)
	}
}

// modelFails runs an agent with a model.
func modelFails(c leader.AgentConfig) func(t *testing.T) error {
	return func(t *testing.T) error {
		t.Helper()
		c.ID = "clerk"
		a, err := leader.NewAgent(c)
		if err != nil {
			return err
		}
		r := newRecord()
		r.process(t.Context(), a, nil)
		return r.err
	}
}

func rules(rules ...supervisor.Rule) func(c *team.Config, _ *diary) {
	return func(c *team.Config, _ *diary) {
		s, err := supervisor.New(supervisor.Config{Members: c.Members, Rules: rules})
		if err != nil {
			panic(err)
		}
		c.Scheduler = s
	}
}

func routing(turns ...*teamv1.Turn) func(c *team.Config, _ *diary) {
	return func(c *team.Config, _ *diary) {
		s, err := supervisor.New(supervisor.Config{Members: c.Members, Router: &supervisor.Router{}})
		if err != nil {
			panic(err)
		}
		c.Scheduler, c.Model = s, &turnsOf{turns: turns}
	}
}

func flowing(steps ...workflow.Step) func(c *team.Config, _ *diary) {
	return func(c *team.Config, _ *diary) {
		s, err := workflow.New(workflow.Config{Steps: steps})
		if err != nil {
			panic(err)
		}
		c.Scheduler = s
	}
}

// swarming is a swarm of ann, bob and cat whose members hand over to each other,
// forever. cat is switched off.
func swarming(limits *teamv1.Limits, hands map[string]string) func(c *team.Config, _ *diary) {
	return func(c *team.Config, _ *diary) {
		reg := registry{}
		c.Members = members("ann", "bob", "cat")
		for i := range c.Members {
			turn := callsOf(fmt.Sprintf(`transfer_to_agent {"agent_name": %q}`, hands[c.Members[i].Agent]))
			m := &turnsOf{turns: slices.Repeat([]*teamv1.Turn{turn}, 50)}
			a, err := leader.NewAgent(leader.AgentConfig{ID: c.Members[i].Agent, Model: m})
			if err != nil {
				panic(err)
			}
			reg[c.Members[i].Agent] = a
			c.Members[i].ID = c.Members[i].Agent
			c.Members[i].Disabled = c.Members[i].ID == "cat"
		}
		s, err := swarm.New(swarm.Config{Entry: "ann", Members: c.Members, Limits: limits})
		if err != nil {
			panic(err)
		}
		c.Scheduler, c.Registry, c.Limits = s, reg, limits
	}
}

func looking(place func(*agent.Guards) *[]agent.Guard, g agent.Guard) func(t *testing.T) error {
	var guards agent.Guards
	*place(&guards) = []agent.Guard{g}
	return fails(team.Config{Scheduler: inOrder("ann"), Guards: guards}, nil)
}

var places = []func(*agent.Guards) *[]agent.Guard{
	func(g *agent.Guards) *[]agent.Guard { return &g.Input }, func(g *agent.Guards) *[]agent.Guard { return &g.Output },
	func(g *agent.Guards) *[]agent.Guard { return &g.Delegation }, func(g *agent.Guards) *[]agent.Guard { return &g.Result },
}

// slow is a member that ends with its time.
func slow(c *team.Config, _ *diary) {
	c.Registry = registry{"ann": &agent.Func{ID: "ann", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}}
	c.Members = members("ann")
}

func provocations(t *testing.T) []provoked {
	t.Helper()
	step := func(do *teamv1.Step) team.Scheduler {
		return next(func(s *team.State) (team.Decision, error) {
			if n := len(s.Steps); n > 0 && s.Steps[n-1].Err != nil {
				return team.Decision{}, s.Steps[n-1].Err
			}
			return team.Decision{Steps: []*teamv1.Step{do}}, nil
		})
	}
	forever := next(func(s *team.State) (team.Decision, error) {
		return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "ann", Input: &teamv1.Input{Message: agent.UserMessage("", fmt.Sprint(len(s.Steps)))}}}}, nil
	})
	schema, err := guard.ParseSchema("s.json", []byte(`{"type": "object"}`))
	if err != nil {
		t.Fatal(err)
	}
	w := &wares{}
	all := []provoked{
		{"a scheduler that does nothing", fails(team.Config{Scheduler: next(func(*team.State) (team.Decision, error) { return team.Decision{}, nil })}, nil)},
		{"a scheduler that fails", fails(team.Config{Scheduler: next(func(*team.State) (team.Decision, error) { return team.Decision{}, errors.New("no table; add one") })}, nil)},
		{"a scheduler that crashes", fails(team.Config{Scheduler: next(func(*team.State) (team.Decision, error) { panic("no") })}, nil)},
		{"a member that there is not", fails(team.Config{Scheduler: inOrder("eve")}, nil)},
		{"a member whose agent is gone", fails(team.Config{Scheduler: inOrder("ann")}, func(c *team.Config, _ *diary) { c.Registry = registry{} })},
		{"a member that is switched off", fails(team.Config{Scheduler: inOrder("ann")}, func(c *team.Config, _ *diary) { c.Members[0].Disabled = true })},
		{"a member that says nothing", fails(team.Config{Scheduler: inOrder("ann")}, func(c *team.Config, _ *diary) { c.Registry = registry{"ann": &silentAgent{}} })},
		{"a member that takes too long", fails(team.Config{Scheduler: inOrder("ann"), Limits: &teamv1.Limits{MemberTimeout: durationpb.New(time.Second)}}, slow)},
		{"a step of a workflow that takes too long", fails(team.Config{Scheduler: step(&teamv1.Step{
			Kind: teamv1.Step_KIND_STEP, Name: "draft", Member: "ann", Timeout: durationpb.New(time.Second),
		})}, slow)},
		{"an agent that takes too long", modelFails(leader.AgentConfig{Model: hanging{}, Limits: &teamv1.Limits{Timeout: durationpb.New(time.Second)}})},
		{"a question that nobody answers", lapsed},
		{"the same message again", fails(team.Config{Scheduler: step(to("ann"))}, func(c *team.Config, _ *diary) {
			c.Registry = registry{"ann": &agent.Func{ID: "ann", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) { return m, nil }}}
			c.Members = members("ann")
		})},
		{"too many steps", fails(team.Config{Scheduler: forever, Limits: &teamv1.Limits{MaxSteps: proto.Int32(2)}}, nil)},
		{"too deep", tooDeep},
		{"a kind of step that nobody runs", fails(team.Config{Scheduler: step(&teamv1.Step{Kind: teamv1.Step_KIND_JUDGE})}, nil)},
		{"a model step without a model", fails(team.Config{Scheduler: step(&teamv1.Step{Kind: teamv1.Step_KIND_MODEL})}, nil)},
		{"work that goes on by itself, without a server", fails(team.Config{Scheduler: step(&teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: "ann", Detached: true})}, nil)},

		{"no rule is true", fails(team.Config{}, rules(supervisor.Rule{ID: "one", When: "turn == 7", Next: []string{"ann"}}))},
		{"a rule ends with nothing", fails(team.Config{}, rules(supervisor.Rule{ID: "one", When: "true", Finish: "ann"}))},
		{"nobody to choose", fails(team.Config{}, func(c *team.Config, _ *diary) {
			c.Members[0].Disabled, c.Members[1].Disabled = true, true
			rules(supervisor.Rule{ID: "one", When: "true", Next: []string{"ann"}})(c, nil)
		})},
		{"a router that chooses nobody", fails(team.Config{}, routing(&teamv1.Turn{Text: "eve"}, &teamv1.Turn{Text: "eve"}))},
		{"a router that does not answer", fails(team.Config{}, routing())},
		{"a router that ends at once", fails(team.Config{}, routing(routeCall(`{"next": "finish", "reason": "done"}`)))},
		{"a workflow that skips all", fails(team.Config{}, flowing(workflow.Step{ID: "one", Member: "ann", When: "false"}))},
		{"a repeat without an end", fails(team.Config{}, flowing(workflow.Step{ID: "one", Member: "ann", Repeat: &workflow.Repeat{Until: "false", Max: 2}}))},

		{"a leader without an answer", led(leader.CoordinatorConfig{}, &teamv1.Turn{}, &teamv1.Turn{})},
		{"a required member that is not called", fails(team.Config{
			Scheduler: next(func(*team.State) (team.Decision, error) { return team.Decision{Reply: agent.NewMessage("done")}, nil }),
		}, func(c *team.Config, _ *diary) { c.Members[0].Required = true })},
		{"a required member that is disabled", fails(team.Config{Scheduler: inOrder("ann")}, func(c *team.Config, _ *diary) { c.Members[0].Required, c.Members[0].Disabled = true, true })},
		{"a leader that delegates too often", led(leader.CoordinatorConfig{Limits: &teamv1.Limits{MaxDelegations: proto.Int32(1)}},
			callsOf(`delegate_to_ann {"task": "1"}`), callsOf(`delegate_to_ann {"task": "2"}`))},
		{"a leader that repeats itself", led(leader.CoordinatorConfig{StrictCycles: true}, callsOf(`delegate_to_ann {"task": "1"}`), callsOf(`delegate_to_ann {"task": "1"}`))},
		{"a leader whose calls are all refused", led(leader.CoordinatorConfig{}, slices.Repeat([]*teamv1.Turn{callsOf("sing {}")}, 12)...)},
		{"a leader without an end", led(leader.CoordinatorConfig{Limits: &teamv1.Limits{MaxTurns: proto.Int32(2)}}, slices.Repeat([]*teamv1.Turn{callsOf("sing {}")}, 3)...)},
		{"a call of no tool", answeredWith("sing {}")},
		{"a call of no member", answeredWith(`delegate_to_eve {"task": "1"}`)},
		{"a call of a member that is switched off", answeredWith(`delegate_to_off {"task": "1"}`)},
		{"a call without arguments", answeredWith(`delegate_to_ann {}`)},
		{"a call with other arguments", answeredWith(`delegate_to_ann [1]`)},
		{"a call with a wrong type", answeredWith(`delegate_to_ann {"task": 7}`)},
		{"a call with nothing to do", answeredWith(`delegate_to_ann {"task": " "}`)},
		{"a call with too much", answeredWith(`delegate_to_ann {"task": "` + strings.Repeat("x", 64<<10+1) + `"}`)},
		{"a call with no member_id", answeredWith(`delegate_task_to_member {"task": "1"}`)},

		{"a hand-off to oneself, twice", fails(team.Config{}, swarming(nil, map[string]string{"ann": "ann"}))},
		{"a hand-off to one that is switched off, twice", fails(team.Config{}, swarming(nil, map[string]string{"ann": "cat"}))},
		{"too many hand-offs", fails(team.Config{}, swarming(&teamv1.Limits{MaxHandoffs: proto.Int32(1)}, map[string]string{"ann": "bob", "bob": "ann"}))},
		{"hand-offs to and fro", fails(team.Config{}, swarming(&teamv1.Limits{LoopWindow: proto.Int32(2)}, map[string]string{"ann": "bob", "bob": "ann"}))},

		{"a model that says nothing", modelFails(leader.AgentConfig{Model: mute{}})},
		{"a model that does not fit its form", modelFails(leader.AgentConfig{Model: &turnsOf{turns: []*teamv1.Turn{{Text: "a"}, {Text: "b"}}}, Output: schema.Fit})},
		{"two tools of one name", modelFails(leader.AgentConfig{Model: mute{}, Tools: []agent.Tool{&clockTool{}, &clockTool{}}})},
		{"an agent with guards for members", modelFails(leader.AgentConfig{Model: mute{}, Guards: agent.Guards{Result: []agent.Guard{w.passes("x")}}})},
		{"a team without anything", fails(team.Config{ID: "No id", Registry: registry{}, Members: []team.Member{{}, {Agent: "a"}, {Agent: "a"}}, Guards: agent.Guards{Input: []agent.Guard{{}}}, Limits: &teamv1.Limits{MaxSteps: proto.Int32(0)}}, nil)},
	}
	for _, place := range places {
		all = append(all, provoked{"a guardrail", looking(place, w.blocks("polite", "say please"))},
			provoked{"a middleware that must not fail", looking(place, aborting(w.fails("scan", agent.Errorf(0, "", "the dictionary is gone"))))})
	}
	return all
}

// silentAgent is a member that yields nothing.
type silentAgent struct{ agent.Func }

func (*silentAgent) Process(context.Context, *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(func(*teamv1.Event, error) bool) {}
}

// mute is a model that yields nothing.
type mute struct{}

func (mute) Name() string { return "mute" }
func (mute) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(func(agent.ModelChunk, error) bool) {}
}

// hanging is a model that ends with its time.
type hanging struct{}

func (hanging) Name() string { return "hanging" }
func (hanging) Generate(ctx context.Context, _ *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		<-ctx.Done()
		yield(agent.ModelChunk{}, context.Cause(ctx))
	}
}

// lapsed is a run whose question nobody answers.
func lapsed(t *testing.T) error {
	tm := newTeamWith(t, team.Config{ID: "desk", Scheduler: batches([]*teamv1.Step{human("Publish?")})})
	r := newRecord()
	r.process(t.Context(), tm, nil)
	r.events = append(r.events, &teamv1.Event{
		Scope: "1", Seq: 99, Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitQuestion}},
	})
	r.process(t.Context(), tm, nil)
	return r.err
}

// tooDeep is a team far below others.
func tooDeep(t *testing.T) error {
	var d diary
	tm := newTeamWith(t, team.Config{ID: "desk", Scheduler: inOrder("ann"), Registry: d.crew("ann"), Members: members("ann")})
	for _, err := range tm.Process(t.Context(), &teamv1.ProcessRequest{AgentId: "desk", Message: agent.UserMessage("m", "x"), Depth: 9}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// subject and advice are what each text has: the member or field it is about in
// quotes or by its name, and what to do.
var subject = regexp.MustCompile(`"[^"]+"|limits\.[a-z_]+|argument [a-z_]+|task and context|the arguments`)

// TestR_002_36_ErrorTexts provokes the errors of this package and compares their
// texts with the golden file: each names the field or member and what to do.
func TestR_002_36_ErrorTexts(t *testing.T) {
	var out bytes.Buffer
	for _, p := range provocations(t) {
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.err(t) })
		if err == nil {
			t.Errorf("%s: no error", p.how)
			continue
		}
		for _, e := range joinedErrors(err) {
			known := agent.AsError(e)
			fmt.Fprintf(&out, "%s\n    %s: %s\n", p.how, known.Reason, known.Message)
			if known.Reason == agent.ReasonInternal {
				t.Errorf("%s: nothing is told: %v", p.how, e)
			}
			if !subject.MatchString(known.Message) || !strings.ContainsAny(known.Message, ";:") {
				t.Errorf("%s: the text names nothing, or no way out: %s", p.how, known.Message)
			}
		}
	}
	const golden = "testdata/errors.golden"
	if *rewrite {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); diff != "" {
		t.Error(diff)
	}
}

// joinedErrors are the errors that were joined.
func joinedErrors(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}
