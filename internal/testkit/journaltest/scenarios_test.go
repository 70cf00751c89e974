package journaltest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// scenario is a run that is recorded.
type scenario struct {
	name string
	// agents registers who takes part; "root" is who gets the message.
	agents func(*cast)
	// story does what callers do, and returns the task; nil sends a message and
	// answers what is asked.
	story func(*recorder) string
	// anywhere: the run goes on from each of its events to the same task. Not for
	// one that depends on when a caller does something, or on what it fails of.
	anywhere bool
	// alike are two texts of which one stands for the other, where a run went on.
	alike [2]string
	// after looks at a run that went on behind what was recorded; nil looks at nothing.
	after func(t *testing.T, c *cast, recorded, all []*teamv1.Event)
	// wired: it needs a network.
	wired bool
}

// around has a kind of leaf work in different places.
var around = map[string]func(c *cast, leaf func(id string)){
	"alone": func(_ *cast, leaf func(string)) { leaf("root") },
	"workflow": func(c *cast, leaf func(string)) {
		leaf("leaf")
		c.add(leaves["echo"](c, "a"))
		c.workflow("root", workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "leaf", After: []string{"1"}}, workflow.Step{ID: "3", Member: "a", After: []string{"2"}, Task: "{{steps.2.text}}!"})
	},
	"supervisor": func(c *cast, leaf func(string)) {
		leaf("leaf")
		c.add(leaves["echo"](c, "a"))
		c.supervisor("root", []string{"a", "leaf"}, supervisor.Rule{When: "turn == 1", Next: []string{"leaf"}}, supervisor.Rule{When: "turn == 2", Next: []string{"a"}}, supervisor.Rule{Finish: supervisor.FinishLast})
	},
	"nested": func(c *cast, leaf func(string)) {
		leaf("leaf")
		c.workflow("inner", workflow.Step{ID: "1", Member: "leaf"})
		c.workflow("middle", workflow.Step{ID: "1", Member: "inner"})
		c.workflow("root", workflow.Step{ID: "1", Member: "middle"})
	},
	"going_on": func(c *cast, leaf func(string)) { // the team goes on after errors
		leaf("leaf")
		c.add(leaves["echo"](c, "a"), leaves["echo"](c, "b"))
		w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "leaf"}, {ID: "2", Member: "a", After: []string{"1"}}, {ID: "3", Member: "b"}}})
		c.teamOf(team.Config{ID: "root", Scheduler: w, ReportErrors: true}, err, "leaf", "a", "b")
	},
}

// scenarios returns all of them: every kind of leaf in every place, and more.
func scenarios() []scenario {
	var all []scenario
	for _, place := range slices.Sorted(maps.Keys(around)) {
		for _, kind := range slices.Sorted(maps.Keys(leaves)) {
			all = append(all, scenario{
				name: kind + "_" + place, anywhere: kind != "retry" && place != "going_on",
				agents: func(c *cast) { around[place](c, func(id string) { c.add(leaves[kind](c, id)) }) },
			})
		}
	}
	return slices.Concat(all, teams(), models(), unsafe(), guarded(), callers(), wired(), flows())
}

// teams are ways for several to work together.
func teams() []scenario {
	echo := func(ids ...string) func(*cast) {
		return func(c *cast) {
			for _, id := range ids {
				c.add(leaves["echo"](c, id))
			}
		}
	}
	with := func(members func(*cast), steps ...workflow.Step) func(*cast) {
		return func(c *cast) { members(c); c.workflow("root", steps...) }
	}
	return []scenario{
		{name: "parallel", agents: with(echo("a", "b", "c"), workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b"}, workflow.Step{ID: "3", Member: "c", After: []string{"1", "2"}})},
		{name: "skipped", anywhere: true, agents: with(echo("a", "b"), workflow.Step{ID: "1", Member: "a"},
			workflow.Step{ID: "2", Member: "b", After: []string{"1"}, When: "steps['1'].text == 'never'"}, workflow.Step{ID: "3", Member: "a", After: []string{"2"}, Task: "end"})},
		{name: "repeated", anywhere: true, agents: func(c *cast) {
			c.add(says("a", func(text string) string { return fmt.Sprintf(`{"ok": %t}`, strings.Contains(text, "Your last result")) }))
			c.workflow("root", workflow.Step{ID: "fix", Member: "a", Repeat: &workflow.Repeat{Until: "steps.fix.data.ok"}})
		}},
		{name: "people", anywhere: true, agents: with(echo("a", "b"), workflow.Step{ID: "1", Member: "a"},
			workflow.Step{ID: "ok", After: []string{"1"}, Human: &workflow.Human{Question: "Print {{steps.1.text}}?", Options: []string{"yes", "no"}}},
			workflow.Step{ID: "2", Member: "b", After: []string{"ok"}, When: "steps.ok.text == 'yes'"})},
		{name: "first_of_two", agents: func(c *cast) {
			c.add(blocks("never"), leaves["echo"](c, "a"), leaves["echo"](c, "b"))
			c.workflow("root", workflow.Step{ID: "1", Member: "never"}, workflow.Step{ID: "2", Member: "a"}, workflow.Step{ID: "3", Member: "b", After: []string{"1", "2"}, Join: workflow.JoinAny})
		}},
		{name: "two_of_three", agents: func(c *cast) {
			c.add(blocks("never"), leaves["echo"](c, "a"), leaves["echo"](c, "b"), leaves["echo"](c, "d"))
			c.workflow("root", workflow.Step{ID: "1", Member: "never"}, workflow.Step{ID: "2", Member: "a"}, workflow.Step{ID: "3", Member: "b"},
				workflow.Step{ID: "4", Member: "d", After: []string{"1", "2", "3"}, Join: workflow.JoinQuorum, Quorum: 2})
		}},
		{name: "member_timeout", agents: func(c *cast) {
			c.add(slow("slow", time.Hour))
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "slow", Timeout: time.Minute}}})
			c.team("root", w, err, "slow")
		}},
		{name: "team_timeout", agents: func(c *cast) {
			c.add(slow("slow", time.Hour))
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "slow", Timeout: 3 * time.Hour}}})
			c.teamOf(team.Config{ID: "root", Scheduler: w, Limits: &teamv1.Limits{Timeout: durationpb.New(time.Minute)}}, err, "slow")
		}},
		{name: "cycle", anywhere: true, agents: func(c *cast) {
			c.add(says("a", func(string) string { return "same" }))
			c.supervisor("root", []string{"a"}, supervisor.Rule{Next: []string{"a"}})
		}},
		{name: "step_limit", anywhere: true, agents: func(c *cast) {
			c.add(leaves["echo"](c, "a"))
			s, err := supervisor.New(supervisor.Config{Members: []team.Member{{Agent: "a"}}, Rules: []supervisor.Rule{{Next: []string{"a"}}}})
			c.teamOf(team.Config{ID: "root", Scheduler: s, Limits: &teamv1.Limits{MaxSteps: new(int32(3))}}, err, "a")
		}},
		{name: "member_missing", anywhere: true, agents: func(c *cast) {
			s, err := supervisor.New(supervisor.Config{Members: []team.Member{{Agent: "nobody"}}, Rules: []supervisor.Rule{{Next: []string{"nobody"}}}})
			c.team("root", s, err, "nobody")
		}},
		{name: "side_by_side", agents: func(c *cast) {
			echo("a", "b", "c")(c)
			c.supervisor("root", []string{"a", "b", "c"}, supervisor.Rule{When: "turn == 1", Next: []string{"c", "a"}}, supervisor.Rule{When: "turn == 2", Next: []string{"b"}, Message: "sum it up"}, supervisor.Rule{Finish: "b"})
		}},
		{name: "calls_a_peer", anywhere: true, agents: func(c *cast) {
			echo("a")(c)
			c.add(script(c, "root", &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Call{Call: "a"}}, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Text{Text: "and more"}}))
		}},
	}
}

// models are agents and routers with a model.
func models() []scenario {
	return []scenario{
		{name: "model", anywhere: true, agents: func(c *cast) { c.modeled("root", 0, false) }},
		{name: "model_and_tool", anywhere: true, agents: func(c *cast) { c.modeled("root", 2, false) }},
		{name: "model_and_failing_tool", anywhere: true, agents: func(c *cast) { c.modeled("root", 1, true) }},
		{name: "models_in_a_team", anywhere: true, agents: func(c *cast) {
			c.modeled("a", 1, false)
			c.modeled("b", 0, false)
			c.workflow("root", workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b", After: []string{"1"}})
		}},
		{name: "model_fails", agents: func(c *cast) {
			a, err := leader.NewAgent(leader.AgentConfig{ID: "root", Model: model{c, func(*agent.ModelRequest) (*teamv1.Turn, error) {
				e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the model answered 503")
				e.Retry = true
				return nil, e
			}}, Limits: &teamv1.Limits{Retry: &teamv1.Retry{Attempts: new(int32(2))}}})
			c.must(err)
			c.must(c.Register("root", a))
		}},
		{name: "router", anywhere: true, agents: func(c *cast) {
			c.add(leaves["echo"](c, "a"))
			s, err := supervisor.New(supervisor.Config{Members: []team.Member{{Agent: "a"}}, Router: &supervisor.Router{Instructions: "Choose."}})
			c.teamOf(team.Config{ID: "root", Scheduler: s, Model: model{c, route}}, err, "a")
		}},
	}
}

// route asks for a once, and then finishes.
func route(req *agent.ModelRequest) (*teamv1.Turn, error) {
	if strings.Contains(req.Messages[len(req.Messages)-1].Text, "a(") {
		return &teamv1.Turn{Text: "finish"}, nil
	}
	return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: req.Tools[0].Name, Arguments: `{"next": ["a"], "reason": "facts first"}`}}}, nil
}

// callers are runs in which somebody outside does something.
func callers() []scenario {
	held := func(c *cast) {
		c.add(blocks("held"), leaves["echo"](c, "a"))
		c.workflow("root", workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "held", After: []string{"1"}}, workflow.Step{ID: "3", Member: "a", After: []string{"2"}})
	}
	both := func(c *cast) {
		c.add(leaves["ask"](c, "left"), leaves["ask"](c, "right"), leaves["echo"](c, "a"))
		c.workflow("root", workflow.Step{ID: "l", Member: "left"}, workflow.Step{ID: "r", Member: "right"}, workflow.Step{ID: "end", Member: "a", After: []string{"l", "r"}})
	}
	return []scenario{
		{name: "direct", agents: func(c *cast) {
			c.must(c.Register("root", &agent.Func{ID: "root", MayReplyDirectly: true, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
				return agent.NewMessage("hello"), nil
			}}))
		}},
		{name: "direct_at_once", agents: func(c *cast) {
			c.must(c.Register("root", &agent.Func{ID: "root", MayReplyDirectly: true, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
				return agent.NewMessage("hello"), nil
			}}))
		}, story: func(r *recorder) string { return r.end(r.send("", "x", true)) }},
		{name: "canceled_alone", agents: func(c *cast) { c.add(blocks("root")) }, story: cancelWorking},
		{name: "canceled_in_a_team", agents: held, story: cancelWorking},
		{name: "canceled_nested", agents: func(c *cast) {
			c.add(blocks("held"), leaves["ask"](c, "ask"))
			c.workflow("inner", workflow.Step{ID: "1", Member: "held"}, workflow.Step{ID: "2", Member: "ask"})
			c.workflow("root", workflow.Step{ID: "1", Member: "inner"})
		}, story: cancelWorking},
		{name: "canceled_while_asking", agents: both, story: func(r *recorder) string {
			id := r.send("", "x", false)
			r.cancel(id)
			return r.end(id)
		}},
		{name: "child_canceled", agents: held, story: func(r *recorder) string {
			id := r.send("", "x", true)
			r.settle()
			r.cancel(id + "~2")
			return r.end(id)
		}},
		{name: "second_answered_first", agents: both, story: func(r *recorder) string {
			id := r.send("", "x", false)
			r.send(id+"~2", "right", false)
			r.restart()
			r.send(id+"~1", "left", false)
			return r.end(id)
		}},
		{name: "followed_up", agents: func(c *cast) { c.add(slow("root", time.Minute)) }, story: func(r *recorder) string {
			id := r.send("", "x", true)
			r.settle()
			r.send(id, "and this", true)
			r.send(id, "and that", true)
			return r.end(id)
		}},
		{name: "followed_up_and_restarted", agents: func(c *cast) { c.add(slow("root", time.Minute)) }, story: func(r *recorder) string {
			id := r.send("", "x", true)
			r.settle()
			r.send(id, "and this", true)
			r.restart()
			return r.end(id)
		}},
		{name: "restarted_twice", agents: func(c *cast) {
			c.add(slow("a", time.Minute), leaves["echo"](c, "b"))
			c.workflow("root", workflow.Step{ID: "1", Member: "b"}, workflow.Step{ID: "2", Member: "a", After: []string{"1"}}, workflow.Step{ID: "3", Member: "b", After: []string{"2"}})
		}, story: func(r *recorder) string {
			id := r.send("", "x", true)
			r.settle()
			r.restart()
			r.restart()
			return r.end(id)
		}},
		{name: "question_lapses", agents: func(c *cast) { c.add(leaves["ask"](c, "root")) }, story: lapse},
		{name: "question_lapses_in_a_team", agents: both, story: lapse},
		{name: "deadline", agents: func(c *cast) { c.add(slow("root", time.Hour)) }, story: func(r *recorder) string {
			req := r.request("", "x")
			req.Metadata = about("deadline", time.Now().Add(time.Minute).UTC().Format(time.RFC3339Nano))
			return r.end(r.take(req))
		}},
		{name: "agent_gone", agents: func(c *cast) {
			if c.replaying {
				return
			}
			c.add(slow("root", time.Minute))
		}, story: func(r *recorder) string {
			id := r.send("", "x", true)
			r.settle()
			r.agents = manager.New(manager.Config{})
			defer r.agents.Close()
			r.restart()
			return r.end(id)
		}},
	}
}

func cancelWorking(r *recorder) string {
	id := r.send("", "x", true)
	r.settle()
	r.cancel(id)
	return r.end(id)
}

func lapse(r *recorder) string {
	id := r.send("", "x", false)
	time.Sleep(8 * 24 * time.Hour) // in the bubble
	return r.end(id)
}

// wired are runs with members of another server.
func wired() []scenario {
	far := func(c *cast, members ...string) rig.Target {
		list := make([]agent.Agent, len(members))
		for i, kind := range members {
			list[i] = leaves[kind](c, "far-"+kind)
		}
		m := rig.Manager(c.T, list...)
		return rig.Serve(c.T, server.Config{Agents: m})
	}
	over := func(kind, how string) func(*cast) {
		return func(c *cast) {
			defer c.workflow("root", workflow.Step{ID: "1", Member: "remote"})
			if c.replaying {
				c.add(leaves["panic"](c, "remote")) // nobody calls it
				return
			}
			at := far(c, kind)
			var a agent.Agent
			var err error
			if how == "service" {
				a, err = remote.New(remote.Config{ID: "remote", Address: at.GRPC, AgentID: "far-" + kind})
			} else {
				a, err = remote.NewA2A(remote.A2AConfig{ID: "remote", Card: at.HTTP + "/far-" + kind + "/.well-known/agent-card.json", Prefer: []string{how}})
			}
			c.must(err)
			c.Cleanup(func() { _ = a.(interface{ Close() error }).Close() })
			c.must(c.Register("remote", a))
		}
	}
	var all []scenario
	for _, how := range []string{remote.BindingGRPC, remote.BindingREST, remote.BindingJSONRPC, "service"} {
		for _, kind := range []string{"echo", "stream", "ask", "fail"} {
			name := "remote_" + strings.ToLower(strings.NewReplacer("+", "_", "-", "_").Replace(how)) + "_" + kind
			all = append(all, scenario{name: name, agents: over(kind, how), wired: true})
		}
	}
	return all
}
