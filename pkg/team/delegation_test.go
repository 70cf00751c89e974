package team_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// delegated gives one call to a leader of "a", "b" and the disabled "off", and
// returns what the call was answered with, and who was called.
func delegated(t *testing.T, call *teamv1.ToolCall, changes ...func(*leader.CoordinatorConfig, *team.Config)) (answer string, called []string, r *recorded) {
	t.Helper()
	var d diary
	m := leads(t, calls(call), says("done"))
	changes = append(changes, member("off", func(m *team.Member) { m.Disabled = true }))
	r = watch(t.Context(), ledBy(t, m, d.crew("a", "b", "off"), changes...), "x")
	if r.err != nil || r.text() != "done" {
		t.Fatal(r.text(), r.err)
	}
	return strings.TrimPrefix(answers(m.all()[1])[0], "c1: "), d.all(), r
}

func single(c *leader.CoordinatorConfig, _ *team.Config) { c.ToolStyle = leader.Single }

func TestDelegation_Arguments(t *testing.T) {
	for _, tt := range []struct {
		name, tool, arguments string
		called, answer        string // called empty: an error that has the pieces of answer, split by "|"
	}{
		{"C-08 the member's tool", "delegate_to_a", `{"task":"go"}`, "a < go", ""},
		{"C-08 one tool for all, whatever the style", "delegate_task_to_member", `{"member_id":"a","task":"go"}`, "a < go", ""},
		{"C-08 the bare id", "a", `{"task":"go"}`, "a < go", ""},
		{"C-08 the tool's name as member_id", "delegate_task_to_member", `{"member_id":"delegate_to_b","task":"go"}`, "b < go", ""},
		{"R-003-08 with context", "delegate_to_a", `{"task":"go","context":"it rains"}`, "a < go\n\nContext:\nit rains", ""},
		{"R-003-08 context may be null", "delegate_to_a", `{"task":"go","context":null}`, "a < go", ""},
		{"R-003-08 context may be empty", "delegate_to_a", `{"task":" go ","context":"  "}`, "a < go", ""},
		{"what else is there does not matter", "delegate_to_a", `{"task":"go","why":[1]}`, "a < go", ""},
		{"R-002-6.1 encoded twice", "delegate_to_a", `"{\"task\":\"go\"}"`, "a < go", ""},
		{"R-002-6.1 encoded twice, one tool for all", "delegate_task_to_member", `"{\"member_id\":\"b\",\"task\":\"go\"}"`, "b < go", ""},
		{"R-002-6.1 junk", "delegate_to_a", `please do it`, "", `not a JSON object|{"task": "…"}`},
		{"R-002-6.1 a string that is none", "delegate_to_a", `"go"`, "", "not a JSON object"},
		{"R-002-6.1 a list", "delegate_to_a", `["go"]`, "", "not a JSON object"},
		{"R-002-6.1 a number", "delegate_to_a", `7`, "", "not a JSON object"},
		{"R-002-6.1 junk, one tool for all", "delegate_task_to_member", `{"member_id":`, "", "not a JSON object"},
		{"R-002-1.3 R-002-6.2 no arguments", "delegate_to_a", "", "", "argument task is missing|add task: a string"},
		{"R-002-6.2 no task", "delegate_to_a", `{}`, "", "argument task is missing"},
		{"R-002-6.2 task is null", "delegate_to_a", `{"task":null}`, "", "argument task is missing"},
		{"R-002-6.2 an empty task", "delegate_to_a", `{"task":" \n"}`, "", "argument task is empty|write what is to be done"},
		{"R-002-6.2 R-002-18 no member_id", "delegate_task_to_member", `{"task":"go"}`, "", "argument member_id is missing"},
		{"R-002-6.3 member_id is a number", "delegate_task_to_member", `{"member_id":7,"task":"go"}`, "", "member_id must be a string, got a number"},
		{"R-002-6.3 task is an object", "delegate_to_a", `{"task":{"text":"go"}}`, "", "task must be a string, got an object"},
		{"R-002-6.3 task is a list", "delegate_to_a", `{"task":["go"]}`, "", "task must be a string, got a list"},
		{"R-002-6.3 task is a boolean", "delegate_to_a", `{"task":true}`, "", "task must be a string, got a boolean"},
		{"R-002-6.3 context is a number", "delegate_to_a", `{"task":"go","context":-1}`, "", "context must be a string, got a number"},
		{"R-002-2.1 disabled", "delegate_to_off", `{"task":"go"}`, "", `member "off" is disabled|use another one: a, b`},
		{"R-002-2.1 disabled, one tool for all", "delegate_task_to_member", `{"member_id":"off","task":"go"}`, "", `member "off" is disabled|a, b`},
		{"R-002-2.2 R-002-12 unknown", "delegate_to_nobody", `{"task":"go"}`, "", `no member "nobody"|the members are a, b`},
		{"R-002-2.2 unknown, one tool for all", "delegate_task_to_member", `{"member_id":"nobody","task":"go"}`, "", `no member "nobody"|the members are a, b`},
		{"R-002-2.2 an id in another case", "delegate_to_A", `{"task":"go"}`, "a < go", ""},
		{"R-002-2.2 a tool in another case", "Delegate_To_A", `{"task":"go"}`, "a < go", ""},
		{"R-002-2.2 an id in quotes", "delegate_task_to_member", `{"member_id":" 'A' ","task":"go"}`, "a < go", ""},
		{"R-002-1.2 a tool that there is not", "foo", `{"task":"go"}`, "", `no tool "foo"|delegate_to_a, delegate_to_b`},
		{"R-002-1.2 a tool without a name", "", `{}`, "", `no tool ""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer, called, r := delegated(t, tool(tt.tool, tt.arguments))
			if tt.called != "" {
				if diff := cmp.Diff([]string{tt.called}, called); diff != "" {
					t.Error(diff)
				}
				return
			}
			if len(called) > 0 {
				t.Error("somebody was called: ", called)
			}
			has(t, answer, strings.Split(tt.answer, "|")...)
			r.complete(t)
		})
	}

	t.Run("R-002-2.1 R-002-2.2 nobody is enabled", func(t *testing.T) {
		off := func(m *team.Member) { m.Disabled = true }
		answer, called, _ := delegated(t, give("nobody", "go"), member("a", off), member("b", off))
		if has(t, answer, "no member is enabled: answer yourself"); len(called) > 0 {
			t.Error(called)
		}
	})

	t.Run("R-002-1.3 R-002-6.2 the leader may try again, and it counts once", func(t *testing.T) {
		var d diary
		m := leads(t, calls(tool("delegate_to_a", "{}")), calls(give("a", "go")), says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a")), "x")
		if diff := cmp.Diff([]string{"2 a: rejected INVALID_REQUEST", "4 a: succeeded"}, r.delegations()); diff != "" || r.err != nil {
			t.Error(diff, r.err)
		}
	})

	t.Run("R-002-1.2 an unknown tool beside a good one: a warning, an error under its own id, and the good one runs", func(t *testing.T) {
		var d diary
		m := leads(t, calls(tool("foo", "{}"), give("a", "go"), tool("bar", "")), says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), inParallel), "x")
		got := answers(m.all()[1])
		if len(got) != 3 || got[1] != "c2: a: succeeded\n\na(go)" || len(d.all()) != 1 {
			t.Fatal(got, d.all())
		}
		has(t, got[0], "c1: there is no tool")
		has(t, got[2], "c3: there is no tool")
		if notes := r.noted("TOOL_CALL_IGNORED"); len(notes) != 2 {
			t.Error(notes)
		}
		if !slices.ContainsFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetDecided().GetReason() == "the model calls foo, a, bar" }) {
			t.Error("the reason on record does not name them")
		}
		r.complete(t)
	})

	t.Run("1.8 a refused delegation says why", func(t *testing.T) {
		for _, tt := range []struct {
			call   *teamv1.ToolCall
			reason string
		}{
			{tool("delegate_to_a", "{}"), agent.ReasonInvalidRequest}, {tool("delegate_to_a", "junk"), agent.ReasonInvalidRequest},
			{tool("delegate_task_to_member", "junk"), agent.ReasonInvalidRequest}, {tool("delegate_task_to_member", `{"task":"x"}`), agent.ReasonInvalidRequest},
			{give("off", "x"), agent.ReasonDisabled}, {give("nobody", "x"), agent.ReasonMemberNotFound}, {tool("foo", ""), agent.ReasonInvalidRequest},
		} {
			_, _, r := delegated(t, tt.call)
			var got []string
			for _, ev := range r.events {
				if e := ev.GetEnded(); e.GetOutcome() == teamv1.Outcome_OUTCOME_REJECTED {
					got = append(got, e.GetError().GetReason())
				}
			}
			if diff := cmp.Diff([]string{tt.reason}, got); diff != "" {
				t.Errorf("%v: %s", tt.call, diff)
			}
		}
	})
}

func TestDelegation_Size(t *testing.T) {
	for _, tt := range []struct {
		name          string
		task, context int
		want          string
	}{
		{"C-31 R-002-36 a task of 64 KiB is handed over", 64 << 10, 0, ""},
		{"C-31 one byte more is not", 64<<10 + 1, 0, "65537 bytes together, the most is 65536; shorten them"},
		{"C-31 task and context count together", 64 << 10, 1, "the most is 65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arguments, err := json.Marshal(map[string]string{"task": strings.Repeat("x", tt.task), "context": strings.Repeat("y", tt.context)})
			if err != nil {
				t.Fatal(err)
			}
			answer, called, _ := delegated(t, tool("delegate_to_a", string(arguments)))
			if tt.want == "" {
				if len(called) != 1 || len(called[0]) != len("a < ")+tt.task {
					t.Error(len(called), answer)
				}
				return
			}
			if len(called) > 0 {
				t.Error("it was handed over")
			}
			has(t, answer, tt.want)
		})
	}
}

// TestR_002_18_Single is the style with one tool for all members.
func TestR_002_18_Single(t *testing.T) {
	var d diary
	m := leads(t, says("ok"))
	tm := ledBy(t, m, d.crew("a", "b", "off"), single, member("off", func(m *team.Member) { m.Disabled = true }))
	if _, err := ask(t, tm, "x"); err != nil {
		t.Fatal(err)
	}
	specs := m.all()[0].Tools
	if len(specs) != 1 || specs[0].Name != "delegate_task_to_member" {
		t.Fatal(offered(m.all()[0]))
	}
	var schema struct {
		Type       string
		Required   []string
		Properties map[string]struct {
			Type string
			Enum []string
		}
	}
	if err := json.Unmarshal(specs[0].Parameters, &schema); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"member_id", "task"}, schema.Required); diff != "" {
		t.Error(diff)
	}
	if p := schema.Properties; p["member_id"].Type != "string" || p["task"].Type != "string" || p["context"].Type != "string" || schema.Type != "object" {
		t.Error(schema)
	}
	if diff := cmp.Diff([]string{"a", "b"}, schema.Properties["member_id"].Enum); diff != "" {
		t.Error(diff)
	}
	t.Run("R-003-08 a member's own tool has task, required, and context", func(t *testing.T) {
		m := leads(t, says("ok"))
		if _, err := ask(t, ledBy(t, m, d.crew("a")), "x"); err != nil {
			t.Fatal(err)
		}
		schema.Properties, schema.Required = nil, nil
		if err := json.Unmarshal(m.all()[0].Tools[0].Parameters, &schema); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"task"}, schema.Required); diff != "" || len(schema.Properties) != 2 {
			t.Error(diff, schema.Properties)
		}
	})
	t.Run("C-08 each style takes the other's spelling", func(t *testing.T) {
		for _, call := range []*teamv1.ToolCall{give("a", "go"), tool("a", `{"task":"go"}`)} {
			if _, called, _ := delegated(t, call, single); len(called) != 1 {
				t.Error(call, called)
			}
		}
	})
}

func TestR_004_08_ToolNames(t *testing.T) {
	long := strings.Repeat("x", 60)
	for _, tt := range []struct{ name, id, want string }{
		{"fits", "web-search_2", "delegate_to_web-search_2"},
		{"R-004-08 what does not fit is replaced", "web search.é", "delegate_to_web_search_é"},
		{"R-004-08 52 characters of an id fit", strings.Repeat("x", 52), "delegate_to_" + strings.Repeat("x", 52)},
		{"R-004-08 more is cut, with a hash", strings.Repeat("x", 53), ""},
		{"R-004-08 and more", long, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := delegateName(tt.id)
			if len(got) > 64 || unfit.MatchString(got) || !strings.HasPrefix(got, "delegate_to_") {
				t.Errorf("%q of %d characters", got, len(got))
			}
			if want := strings.ReplaceAll(tt.want, "é", "_"); want != "" && got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	t.Run("R-004-08 long ids that differ at their end have tools of their own", func(t *testing.T) {
		if delegateName(long+"a") == delegateName(long+"b") {
			t.Error(delegateName(long + "a"))
		}
	})
	t.Run("R-004-08 such a member is called by its tool", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("web search", "go"), give(long, "go")), says("done"))
		if _, err := ask(t, ledBy(t, m, d.crew("web search", long)), "x"); err != nil || len(d.all()) != 2 {
			t.Error(err, d.all())
		}
	})
	t.Run("C-08 the tool on offer wins over the id of another member", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "one"), give("delegate_to_a", "two")), says("done"))
		if _, err := ask(t, ledBy(t, m, d.crew("a", "delegate_to_a")), "x"); err != nil {
			t.Fatal(err)
		}
		if got := d.all(); len(got) != 2 || got[0] != "a < one" || !strings.HasPrefix(got[1], "delegate_to_a < two") {
			t.Error(got)
		}
	})
	t.Run("C-08 a leader's own tool wins over the id of a member", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "one")), calls(tool("check_delegated_tasks", `{"task":"go"}`)), says("done"), says("done"))
		async := func(c *leader.CoordinatorConfig, _ *team.Config) { c.Async = true }
		if _, err := ask(t, ledBy(t, m, d.crew("a", "check_delegated_tasks"), async), "x"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a < one"}, d.all()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("R-004-08 a changed name is logged", func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		var d diary
		ledBy(t, leads(t), d.crew("web search", "fine"), func(_ *leader.CoordinatorConfig, c *team.Config) { c.Log = zap.New(core) })
		if got := logs.FilterMessageSnippet("tool").All(); len(got) != 1 || !strings.Contains(got[0].Message, `member "web search"`) || !strings.HasSuffix(got[0].Message, "delegate_to_web_search") {
			t.Error(logs.All())
		}
	})
	for _, tt := range []struct {
		name   string
		config leader.CoordinatorConfig
		want   string
	}{
		{"R-004-08 two members with one tool", leader.CoordinatorConfig{Members: members("a b", "a.b")}, `members "a b" and "a.b" would both be the tool delegate_to_a_b`},
		{"R-004-07 a member twice", leader.CoordinatorConfig{Members: members("a", "a")}, "give one of them another id"},
		{"a tool with a member's tool's name", leader.CoordinatorConfig{Members: members("a"), Tools: []agent.Tool{named("delegate_to_a")}}, `member "a"; rename one of them`},
		{"two tools of one name", leader.CoordinatorConfig{Tools: []agent.Tool{echoTool{}, echoTool{}}}, `two tools are named "echo"`},
		{"C-08 a tool with the name of a leader's", leader.CoordinatorConfig{Tools: []agent.Tool{named("delegate_task_to_member")}}, "rename it"},
		{"C-08 another one", leader.CoordinatorConfig{Tools: []agent.Tool{named("check_delegated_tasks")}}, "rename it"},
		{"C-08 another one", leader.CoordinatorConfig{Tools: []agent.Tool{named("transfer_to_agent")}}, "rename it"},
		{"S-64 another one", leader.CoordinatorConfig{Tools: []agent.Tool{named("read_result")}}, "rename it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := leader.NewCoordinator(tt.config)
			if err == nil || agent.AsError(err).Reason != agent.ReasonInvalidTeamConfig {
				t.Fatal(err)
			}
			has(t, err.Error(), tt.want)
		})
	}
	t.Run("C-08 an agent's tool cannot have the name by which it hands over", func(t *testing.T) {
		_, err := leader.NewAgent(leader.AgentConfig{ID: "a", Tools: []agent.Tool{named("transfer_to_agent")}})
		if err == nil {
			t.Error("it is taken")
		}
	})
}

// named is a tool of that name that answers with its arguments.
type named string

func (n named) Spec() agent.ToolSpec { return agent.ToolSpec{Name: string(n)} }
func (named) Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	return echoTool{}.Call(ctx, arguments, key)
}

// TestR_002_10_Members is what teams do not take.
func TestR_002_10_Members(t *testing.T) {
	s, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: members("a")})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		members []team.Member
		reg     team.Members
		want    string
	}{
		{"R-002-10 R-002-5.4 a member without an agent", []team.Member{{ID: "a"}}, registry{}, "members[0] names no agent"},
		{"R-002-10 R-004-07 an id twice", []team.Member{{Agent: "a"}, {ID: "a", Agent: "b"}}, registry{}, `member id "a" is used twice`},
		{"R-002-10 members and nobody to find them", members("a"), nil, "no registry"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := team.New(team.Config{ID: "t1", Scheduler: s, Members: tt.members, Registry: tt.reg})
			has(t, wantReason(t, err, agent.ReasonInvalidTeamConfig).Message, tt.want)
		})
	}
	for name, limits := range map[string]*teamv1.Limits{
		"R-002-5.2 C-10 max_delegations 0": {MaxDelegations: new(int32(0))},
		"C-10 max_delegations -1":          {MaxDelegations: new(int32(-1))},
		"C-10 max_parallel 0":              {MaxParallel: new(int32(0))},
		"C-10 max_turns 0":                 {MaxTurns: new(int32(0))},
		"C-10 a negative max_handoffs":     {MaxHandoffs: new(int32(-1))},
		"C-10 a negative loop_window":      {LoopWindow: new(int32(-1))},
		"C-10 a negative loop_min_unique":  {LoopMinUnique: new(int32(-1))},
		"C-10 a negative time of a node":   {NodeTimeout: durationpb.New(-1)},
		"C-10 member_timeout 0":            {MemberTimeout: durationpb.New(0)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := team.New(team.Config{ID: "t1", Scheduler: s, Limits: limits})
			wantReason(t, err, agent.ReasonInvalidTeamConfig)
		})
	}
	t.Run("C-10 R-004-33 0 is off for the four guards of a swarm", func(t *testing.T) {
		_, err := team.New(team.Config{ID: "t1", Scheduler: s, Limits: &teamv1.Limits{
			MaxHandoffs: new(int32(0)), LoopWindow: new(int32(0)), LoopMinUnique: new(int32(0)), NodeTimeout: durationpb.New(0),
		}})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("R-002-5.4 R-002-12 a member that is gone when it is called: an error for the leader, and nobody is called", func(t *testing.T) {
		m := leads(t, calls(give("gone", "x")), says("done"))
		r := watch(t.Context(), ledBy(t, m, registry{}, func(c *leader.CoordinatorConfig, _ *team.Config) { c.Members = members("gone") }), "x")
		has(t, answers(m.all()[1])[0], "gone: rejected (MEMBER_NOT_FOUND)", "not registered")
		if r.text() != "done" || r.starts("2") != 0 {
			t.Error(r.text(), r.err, r.starts("2"))
		}
	})
}
