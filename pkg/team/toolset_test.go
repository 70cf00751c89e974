package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// toolSet is a tool set whose list can change.
type toolSet struct {
	name  string
	tools []agent.Tool
	err   error
}

func (s *toolSet) Name() string                                { return s.name }
func (s *toolSet) Tools(context.Context) ([]agent.Tool, error) { return s.tools, s.err }

// offering is a tool that answers with its name.
type offering struct{ spec agent.ToolSpec }

func (n offering) Spec() agent.ToolSpec { return n.spec }
func (n offering) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	return &teamv1.ToolResult{Text: "from " + n.spec.Name}, nil
}

func offer(name string) agent.Tool {
	return offering{agent.ToolSpec{Name: name, Description: "Does " + name + ".", Parameters: json.RawMessage(`{"type":"object"}`), Effect: agent.EffectSafe}}
}

// caller is an agent whose model calls the tools named in the message, one a turn,
// and keeps the tools it was offered.
func caller(t *testing.T, offered *[][]agent.ToolSpec, sets ...agent.ToolSet) *leader.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: "m", ToolSets: sets, Model: modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
		*offered = append(*offered, req.Tools)
		last := req.Messages[len(req.Messages)-1]
		if last.Role == agent.RoleTool {
			return &teamv1.Turn{Text: last.Text}
		}
		return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "fetch"}}}
	})})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func notes(events []*teamv1.Event, code string) (n int) {
	for _, ev := range events {
		if ev.GetNoted().GetCode() == code {
			n++
		}
	}
	return n
}

// TestToolSet_IsOnRecordOnce: a run keeps to the list it began with, and finds it on
// record after a restart.
func TestToolSet_IsOnRecordOnce(t *testing.T) {
	web := &toolSet{name: "web", tools: []agent.Tool{offer("fetch"), offer("search")}}
	var offered [][]agent.ToolSpec
	a, r := caller(t, &offered, web), newRecord()
	r.process(t.Context(), a, func(ev *teamv1.Event) bool { return ev.GetEnded().GetTool() == nil })
	web.tools = []agent.Tool{offer("other")}
	r.process(t.Context(), a, nil)
	if r.reply == nil || agent.Text(r.reply.GetMessage()) != "from fetch" || notes(r.events, "TOOLS") != 1 {
		t.Fatal(r.reply, r.err, r.events)
	}
	for _, specs := range offered {
		if len(specs) != 2 || specs[0].Name != "fetch" || specs[1].Description != "Does search." ||
			string(specs[0].Parameters) != `{"type":"object"}` || specs[0].Effect != agent.EffectSafe {
			t.Errorf("offered %+v", specs)
		}
	}
	r = newRecord()
	r.process(t.Context(), a, nil)
	if got := agent.Text(r.reply.GetMessage()); !strings.Contains(got, `there is no tool "fetch"`) || !strings.Contains(got, "other") {
		t.Errorf("a run after the change: %q %v", got, r.err)
	}
}

// TestToolSet_ToolIsGone: a tool that was offered and is gone is an error to the model.
func TestToolSet_ToolIsGone(t *testing.T) {
	web := &toolSet{name: "web", tools: []agent.Tool{offer("fetch")}}
	var offered [][]agent.ToolSpec
	a, r := caller(t, &offered, web), newRecord()
	r.process(t.Context(), a, func(ev *teamv1.Event) bool { return ev.GetScope() != "2" })
	r.events = r.events[:len(r.events)-1] // the call has not begun
	web.tools = nil
	r.process(t.Context(), a, nil)
	if got := agent.Text(r.reply.GetMessage()); !strings.Contains(got, `there is no tool "fetch"`) {
		t.Errorf("reply %q %v", got, r.err)
	}
}

func TestToolSet_Faults(t *testing.T) {
	var offered [][]agent.ToolSpec
	for name, c := range map[string]struct {
		sets []agent.ToolSet
		says string
	}{
		"two sets have one name":                            {[]agent.ToolSet{&toolSet{name: "web", tools: []agent.Tool{offer("fetch")}}, &toolSet{name: "files", tools: []agent.Tool{offer("fetch")}}}, `tools "web" and "files" both have "fetch"`},
		"a set has one twice":                               {[]agent.ToolSet{&toolSet{name: "web", tools: []agent.Tool{offer("a"), offer("a")}}}, `"web"`},
		"C-08 a set has the tool by which agents hand over": {[]agent.ToolSet{&toolSet{name: "web", tools: []agent.Tool{offer("transfer_to_agent")}}}, `tool "web" has "transfer_to_agent", which is the name of a tool that agents have in their team; set allow so that it is not offered`},
		"S-64 a set has the tool by which agents read on":   {[]agent.ToolSet{&toolSet{name: "web", tools: []agent.Tool{offer("read_result")}}}, `tool "web" has "read_result"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ask(t, caller(t, &offered, c.sets...), "x")
			if err == nil || !strings.Contains(agent.AsError(err).Message, c.says) || strings.Contains(agent.AsError(err).Message, "secret") {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
	if len(offered) != 0 {
		t.Error("the model was asked")
	}
}

// TestToolSet_Missing: a run goes on without the tools of a set that does not answer. Its prompts, its reply and the
// answers to calls of these tools say so, as far as callers may know why, also after a restart.
func TestToolSet_Missing(t *testing.T) {
	for why, err := range map[string]error{
		``:                      errors.New("secret address"),
		`: web does not answer`: agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "web does not answer; check it").Because(errors.New("secret address")),
	} {
		missing := `the tools of "web" are missing` + why
		var prompts []string
		web := &toolSet{name: "web", err: err}
		a, merr := leader.NewAgent(leader.AgentConfig{ID: "m", Instructions: "Be brief.", ToolSets: []agent.ToolSet{web, &toolSet{name: "files", tools: []agent.Tool{offer("read")}}},
			Model: modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
				prompts = append(prompts, req.Instructions)
				if last := req.Messages[len(req.Messages)-1]; last.Role == agent.RoleTool {
					return &teamv1.Turn{Text: last.Text}
				}
				return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "fetch"}}}
			})})
		if merr != nil {
			t.Fatal(merr)
		}
		r := newRecord()
		r.process(t.Context(), a, func(ev *teamv1.Event) bool { return ev.GetScope() != "2" })
		r.process(t.Context(), a, nil)
		if got := agent.Text(r.reply.GetMessage()); r.err != nil || !strings.Contains(got, `there is no tool "fetch"; the tools are read; `+missing) {
			t.Errorf("reply %q %v", got, r.err)
		}
		if w := r.reply.GetWarnings(); len(w) != 1 || w[0] != missing {
			t.Errorf("warnings %q", w)
		}
		for _, p := range prompts {
			if p != "Be brief.\n\nAt the moment "+missing+". If the task needs them, say that." {
				t.Errorf("system text %q", p)
			}
		}
		if strings.Contains(fmt.Sprint(r.events), "secret") {
			t.Error("the cause is on record")
		}
	}
}

// TestC_08_ToolSetOfALeader: a tool of a set cannot have the name of one that stands
// for a member, or that leaders have; an agent without members can.
func TestC_08_ToolSetOfALeader(t *testing.T) {
	for _, name := range []string{"delegate_to_a", "delegate_task_to_member", "check_delegated_tasks"} {
		t.Run("C-08 "+name, func(t *testing.T) {
			var d diary
			m := leads(t, says("done"))
			set := &toolSet{name: "web", tools: []agent.Tool{offer(name)}}
			led := ledBy(t, m, d.crew("a"), func(_ *leader.CoordinatorConfig, c *team.Config) { c.ToolSets = []agent.ToolSet{set} })
			_, err := ask(t, led, "x")
			if err == nil || len(m.all()) != 0 {
				t.Fatal(err, m.all())
			}
			has(t, err.Error(), `tool "web" has "`+name+`"`, "set allow so that it is not offered")
			var offered [][]agent.ToolSpec
			if _, err := ask(t, caller(t, &offered, set), "x"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestR_003_34_SkillsOfItsOwn: the instructions of skills reach the prompt and
// nobody else.
func TestR_003_34_SkillsOfItsOwn(t *testing.T) {
	skills := []*teamv1.Skill{{Id: "count", Name: "Count", Description: "Counts.", Instructions: "Use your fingers."}, {Id: "plain"}}
	var prompts []string
	m := modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
		prompts = append(prompts, req.Instructions)
		return &teamv1.Turn{Text: "ok"}
	})
	a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Instructions: "Be brief.", Skills: skills, Model: m})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, a, "hi"); err != nil {
		t.Fatal(err)
	}
	c, err := leader.NewCoordinator(leader.CoordinatorConfig{Skills: skills, Members: members("m")})
	if err != nil {
		t.Fatal(err)
	}
	lead := newTeamWith(t, team.Config{ID: "t1", Scheduler: c, Members: members("m"), Registry: registry{"m": a}, Model: m, Skills: skills[:1]})
	if _, err := ask(t, lead, "hi"); err != nil {
		t.Fatal(err)
	}
	if prompts[0] != "Be brief.\n\nSkill Count:\nUse your fingers." || !strings.HasPrefix(prompts[1], "Skill Count:\nUse your fingers.\n\nYou lead") {
		t.Errorf("prompts %q", prompts)
	}
	for _, of := range []agent.Agent{a, lead} {
		info, err := of.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := proto.Marshal(info); len(info.GetSkills()) != 2 || strings.Contains(string(b), "fingers") {
			t.Errorf("R-000-06: info = %v", info)
		}
	}
	if skills[0].GetInstructions() == "" {
		t.Error("the configuration was changed")
	}
}
