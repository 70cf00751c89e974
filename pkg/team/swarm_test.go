package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/swarm"
)

// handsTo is a turn that hands over.
func handsTo(id, message string) *teamv1.Turn { return calls(handOver(id, message)) }

func handOver(id, message string) *teamv1.ToolCall {
	arguments := map[string]string{"agent_name": id}
	if message != "" {
		arguments["message"] = message
	}
	data, _ := json.Marshal(arguments)
	return tool(team.TransferTool, string(data))
}

// always is a model that hands over to the next of its names for ever, and
// answers when it is refused. stubborn hands over then, too.
type always struct {
	next     string
	stubborn bool
}

func (a always) model() agent.Model {
	return modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
		if strings.Contains(lastSaid(req), "was refused") && !a.stubborn {
			return says("then I answer: " + lastSaid(req))
		}
		return handsTo(a.next, "")
	})
}

// rotating are members that hand over to each other, the last one to the first.
func rotating(t *testing.T, stubborn bool, ids ...string) registry {
	reg := registry{}
	for i, id := range ids {
		reg[id] = minded(t, id, always{ids[(i+1)%len(ids)], stubborn}.model())
	}
	return reg
}

// swarmOf is a swarm that begins with the first of its members by id.
func swarmOf(t *testing.T, reg registry, changes ...func(*swarm.Config, *team.Config)) *team.Team {
	t.Helper()
	ids := sortedKeys(reg)
	c := swarm.Config{Members: members(ids...), Entry: ids[0]}
	cfg := team.Config{ID: "t1", Mode: "swarm", Registry: reg, Limits: &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(1)}}}
	for _, change := range changes {
		change(&c, &cfg)
	}
	cfg.Members, c.Limits = c.Members, cfg.Limits
	s, err := swarm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Scheduler = s
	return newTeamWith(t, cfg)
}

// handoffs counts the transfers on record.
func (r *recorded) handoffs() int {
	n := 0
	for _, ev := range r.events {
		for _, st := range ev.GetDecided().GetSteps() {
			if ev.GetScope() == "" && st.GetKind() == teamv1.Step_KIND_TRANSFER {
				n++
			}
		}
	}
	return n
}

// toolEnds are what became of the calls of tools that an agent's scope made, in the
// order of the calls: "scope tool: outcome text".
func (r *recorded) toolEnds(scope string) []string {
	var list []string
	names := map[string]string{}
	for _, ev := range r.events {
		for _, st := range ev.GetDecided().GetSteps() {
			if ev.GetScope() == scope && st.GetKind() == teamv1.Step_KIND_TOOL {
				names[agent.Scope(scope, st.GetId())] = st.GetName()
			}
		}
		if e := ev.GetEnded(); e != nil && names[ev.GetScope()] != "" {
			list = append(list, fmt.Sprintf("%s %s: %s %s", ev.GetScope(), names[ev.GetScope()], expr.OutcomeWord(e.GetOutcome()), e.GetTool().GetText()+e.GetError().GetMessage()))
		}
	}
	slices.Sort(list)
	return list
}

func withLimits(l *teamv1.Limits) func(*swarm.Config, *team.Config) {
	return func(_ *swarm.Config, c *team.Config) { proto.Merge(c.Limits, l) }
}

func TestSwarm_HandsOver(t *testing.T) {
	t.Run("S-30 R-004-21 R-004-23 R-004-24 C-03 A hands to B, B to C, and C's words are the answer, with no call after them", func(t *testing.T) {
		a, b, c := leads(t, handsTo("b", "")), leads(t, handsTo("c", "for you")), leads(t, says("C says"))
		reg := registry{"a": minded(t, "a", a), "b": minded(t, "b", b), "c": minded(t, "c", c)}
		r := watch(t.Context(), swarmOf(t, reg), "hello")
		if r.err != nil || r.text() != "C says" || len(a.all())+len(b.all())+len(c.all()) != 3 {
			t.Fatal(r.text(), r.err)
		}
		last := r.events[len(r.events)-1]
		if i := slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetScope() == "3" && ev.GetEnded() != nil }); i < 0 || r.events[i].GetAgent() != "t1/c" {
			t.Error("the author is not C: ", last)
		}
		t.Run("R-004-22 each one's tool lists the others, not itself", func(t *testing.T) {
			for id, m := range map[string]*scriptedLead{"a": a, "b": b, "c": c} {
				var schema struct {
					Properties map[string]struct{ Enum []string }
				}
				req := m.all()[0]
				if len(req.Tools) != 1 || json.Unmarshal(req.Tools[0].Parameters, &schema) != nil {
					t.Fatal(offered(req))
				}
				others := slices.DeleteFunc([]string{"a", "b", "c"}, func(o string) bool { return o == id })
				if diff := cmp.Diff(others, schema.Properties["agent_name"].Enum); diff != "" {
					t.Error(id, diff)
				}
			}
		})
		t.Run("the target is given the user's message, or what was said to it; and what went before", func(t *testing.T) {
			if diff := cmp.Diff([]string{"user: a hands over to b", "user: hello"}, heard(b.all()[0])); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"user: hello", "user: a hands over to b", "user: b hands over to c", "user: for you"}, heard(c.all()[0])); diff != "" {
				t.Error(diff)
			}
		})
		r.complete(t)
	})

	t.Run("C-14 R-004-25 a swarm's members see the conversation", func(t *testing.T) {
		a := leads(t, says("ok"))
		req := &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m", "and now"), History: earlierTalk()}
		watchRequest(t.Context(), swarmOf(t, registry{"a": minded(t, "a", a)}), req)
		if diff := cmp.Diff([]string{"user: good day", "assistant: and to you", "user: and now"}, heard(a.all()[0])); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("R-004-22 handoff names who can be reached; a disabled one cannot", func(t *testing.T) {
		a := leads(t, says("ok"))
		reg := rotating(t, false, "b", "c", "d")
		reg["a"] = minded(t, "a", a)
		r := watch(t.Context(), swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) {
			c.Members[0].Handoff = []string{"b", "c"}
			c.Members[1].Disabled = true
		}), "x")
		if r.err != nil {
			t.Fatal(r.err)
		}
		has(t, string(a.all()[0].Tools[0].Parameters), `["c"]`)
	})

	t.Run("R-004-22 a swarm of one has no tool", func(t *testing.T) {
		a := leads(t, says("alone"))
		if answer, err := ask(t, swarmOf(t, registry{"a": minded(t, "a", a)}), "x"); err != nil || answer != "alone" || len(a.all()[0].Tools) != 0 {
			t.Error(answer, err)
		}
	})

	t.Run("among other calls: all of them run, the first hand-over counts, and a further one is told why not", func(t *testing.T) {
		for _, together := range []bool{false, true} {
			a := leads(t, calls(tool("echo", `{"before":1}`), handOver("b", ""), tool("echo", `{"after":1}`), handOver("c", ""), tool("nothing", `{}`)))
			b := leads(t, says("B says"))
			reg := registry{"a": minded(t, "a", a, echoTool{}), "b": minded(t, "b", b), "c": minded(t, "c", leads(t))}
			if together {
				reg["a"] = ledBy(t, a, registry{"x": skilled("x")}, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
					c.Tools, cfg.ID = []agent.Tool{echoTool{}}, "a"
				})
			}
			r := watch(t.Context(), swarmOf(t, reg), "x")
			if r.err != nil || r.text() != "B says" || r.handoffs() != 1 {
				t.Fatal(r.text(), r.err, r.handoffs())
			}
			want := []string{
				`1.2 echo: succeeded {"before":1}`,
				`1.3 transfer_to_agent: skipped the run is handed over to "b" when the other calls of this turn have ended`,
				`1.4 echo: succeeded {"after":1}`,
				`1.5 transfer_to_agent: rejected this turn hands over to "b" already; hand over to one agent at a time`,
			}
			got := r.toolEnds("1")
			if len(got) != 5 || !strings.HasPrefix(got[4], `1.6 nothing: rejected there is no tool "nothing"; `) {
				t.Fatal(together, got)
			}
			if diff := cmp.Diff(want, got[:4]); diff != "" {
				t.Error(together, diff)
			}
			given := "x\n\nWhat the tools answered that were called together with this hand-over:\n\necho {\"before\":1}:\n{\"before\":1}\n\necho {\"after\":1}:\n{\"after\":1}"
			if diff := cmp.Diff([]string{"user: a hands over to b", "user: " + given}, heard(b.all()[0])); diff != "" {
				t.Error("the next member does not see the results: ", diff)
			}
			r.complete(t)
		}
	})

	t.Run("the error of a tool that was called together with the hand-over is marked", func(t *testing.T) {
		broken := fixedTool{"query", &teamv1.ToolResult{Text: "no such table", IsError: true}}
		b := leads(t, says("B says"))
		reg := registry{"a": minded(t, "a", leads(t, calls(tool("query", `{}`), handOver("b", ""))), broken), "b": minded(t, "b", b)}
		if _, err := ask(t, swarmOf(t, reg), "x"); err != nil || !strings.Contains(lastSaid(b.all()[0]), "query {}:\nfailed: no such table") {
			t.Error(err, heard(b.all()[0]))
		}
	})

	t.Run("R-002-6.1 R-002-6.2 R-002-6.3 arguments that are none: an error in the member's own loop, then it tries again", func(t *testing.T) {
		for arguments, want := range map[string]string{
			`junk`: "not a JSON object", `{}`: "agent_name is missing", `{"agent_name":7}`: "agent_name must be a string, got a number", `{"agent_name":" "}`: "agent_name is empty",
			`{"agent_name":"b","message":[1]}`: "message must be a string, got a list",
		} {
			a := leads(t, calls(tool(team.TransferTool, arguments)), handsTo("b", ""))
			r := watch(t.Context(), swarmOf(t, registry{"a": minded(t, "a", a), "b": minded(t, "b", leads(t, says("B says")))}), "x")
			if r.err != nil || r.text() != "B says" {
				t.Fatal(arguments, r.text(), r.err)
			}
			has(t, answers(a.all()[1])[0], want)
		}
		a := leads(t, calls(tool(team.TransferTool, `"{\"agent_name\":\"b\"}"`)))
		r := watch(t.Context(), swarmOf(t, registry{"a": minded(t, "a", a), "b": minded(t, "b", leads(t, says("B says")))}), "x")
		if r.text() != "B says" {
			t.Error("encoded twice: ", r.text(), r.err)
		}
	})

	t.Run("C-06 a member that fails fails the run with its own error", func(t *testing.T) {
		reg := registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": failing("b", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))}
		r := watch(t.Context(), swarmOf(t, reg), "x")
		has(t, wantReason(t, r.err, agent.ReasonAgentNotFound).Message, "no such book")
	})

	t.Run("R-004-34 everyone hands over to a finaliser", func(t *testing.T) {
		last := leads(t, func(req *agent.ModelRequest) *teamv1.Turn { return says("In short: " + lastSaid(req)) })
		reg := registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": minded(t, "b", leads(t, handsTo("finish", "the facts"))), "finish": minded(t, "finish", last)}
		if answer, err := ask(t, swarmOf(t, reg), "x"); err != nil || answer != "In short: the facts" {
			t.Error(answer, err)
		}
	})
}

// mover is a member that is no model: it hands over to its targets, one a call,
// then it answers.
type mover struct {
	*agent.Func
	targets []string
	heard   []string
}

func (m *mover) Process(_ context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		m.heard = append(m.heard, agent.Text(req.GetMessage()))
		r := &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("myself then")}}
		if n := len(m.heard); n <= len(m.targets) {
			r.Result = &teamv1.Reply_Transfer{Transfer: &teamv1.Transfer{To: m.targets[n-1]}}
		}
		yield(agent.ReplyEvent(req, r), nil)
	}
}

// TestSwarm_Refuses has members that are refused a hand-over: they are told why
// and have to answer.
func TestSwarm_Refuses(t *testing.T) {
	limit := func(c *swarm.Config, _ *team.Config) {
		c.Members[0].Handoff = []string{"b", "off"}
		c.Members[3].Disabled = true
	}
	for _, tt := range []struct{ name, to, reason, want string }{
		{"an unknown member", "nobody", agent.ReasonMemberNotFound, `cannot hand over to "nobody"; it can to b`},
		{"itself", "a", agent.ReasonMemberNotFound, `"a" cannot hand over to "a"; it can to b`},
		{"S-59 a disabled member", "off", agent.ReasonDisabled, `member "off" is disabled; hand over to another one of b`},
		{"one that is not in its handoff", "far", agent.ReasonMemberNotFound, `cannot hand over to "far"; it can to b`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reg := rotating(t, false, "b", "far", "off")
			a := &mover{Func: skilled("a"), targets: []string{tt.to}}
			reg["a"] = a
			r := watch(t.Context(), swarmOf(t, reg, limit), "x")
			if r.err != nil || r.text() != "myself then" || r.handoffs() != 0 || len(a.heard) != 2 {
				t.Fatal(r.text(), r.err, r.handoffs())
			}
			has(t, a.heard[1], "transfer_to_agent was refused", tt.want, "Answer the request yourself")
			r.complete(t)
			t.Run("R-004-27 a further hand-over fails the run with the reason of the first", func(t *testing.T) {
				reg["a"] = &mover{Func: skilled("a"), targets: []string{tt.to, "b"}}
				r := watch(t.Context(), swarmOf(t, reg, limit), "x")
				has(t, wantReason(t, r.err, tt.reason).Message, `member "a" handed over to "b" after`, "it had to answer")
				r.complete(t)
			})
		})
	}

	t.Run("a model that names nobody is told so in its own loop, and may try again", func(t *testing.T) {
		reg := rotating(t, false, "b", "far", "off")
		for _, to := range []string{"nobody", "a", "off", "far"} {
			a := leads(t, handsTo(to, ""), handsTo("b", ""))
			reg["a"], reg["b"] = minded(t, "a", a), minded(t, "b", leads(t, says("B says")))
			r := watch(t.Context(), swarmOf(t, reg, limit), "x")
			if r.err != nil || r.text() != "B says" || r.handoffs() != 1 {
				t.Fatal(to, r.text(), r.err, r.handoffs())
			}
			has(t, answers(a.all()[1])[0], fmt.Sprintf("there is no agent %q to hand over to; there are b", to))
		}
	})
}

// TestSwarm_Guards runs members that hand over for ever. at is how many transfers
// pass before one is refused; 0 is none.
func TestSwarm_Guards(t *testing.T) {
	four, two, three := []string{"a", "b", "c", "d"}, []string{"a", "b"}, []string{"a", "b", "c"}
	for _, tt := range []struct {
		name   string
		ids    []string
		limits *teamv1.Limits
		at     int
		reason string
	}{
		{"S-32 R-004-27 C-07 rotation of four: 20 pass, the 21st is refused", four, nil, 20, agent.ReasonMaxHandoffs},
		{"R-004-27 max_handoffs 3", four, &teamv1.Limits{MaxHandoffs: proto.Int32(3)}, 3, agent.ReasonMaxHandoffs},
		{"R-004-27 max_handoffs 1", two, &teamv1.Limits{MaxHandoffs: proto.Int32(1)}, 1, agent.ReasonMaxHandoffs},
		{"S-33 R-004-29 A and B, N=8 M=3: refused on the 8th", two, nil, 7, agent.ReasonRepetitive},
		{"S-33 R-004-31 M=2 does not stop them: refused at 20", two, &teamv1.Limits{LoopMinUnique: proto.Int32(2)}, 20, agent.ReasonMaxHandoffs},
		{"S-33 R-004-30 N=0 is off: refused at 20", two, &teamv1.Limits{LoopWindow: proto.Int32(0)}, 20, agent.ReasonMaxHandoffs},
		{"R-004-30 M=0 is off: refused at 20", two, &teamv1.Limits{LoopMinUnique: proto.Int32(0)}, 20, agent.ReasonMaxHandoffs},
		{"R-004-32 three in rotation never trip N=8 M=3", three, nil, 20, agent.ReasonMaxHandoffs},
		{"R-004-29 three trip M=4", three, &teamv1.Limits{LoopMinUnique: proto.Int32(4)}, 7, agent.ReasonRepetitive},
		{"R-004-29 a short window", two, &teamv1.Limits{LoopWindow: proto.Int32(4)}, 3, agent.ReasonRepetitive},
		{"R-004-29 a window of one", two, &teamv1.Limits{LoopWindow: proto.Int32(1), LoopMinUnique: proto.Int32(2)}, 0, agent.ReasonRepetitive},
		{"R-004-27 the first one hit wins", two, &teamv1.Limits{MaxHandoffs: proto.Int32(7)}, 7, agent.ReasonMaxHandoffs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limits := withLimits(tt.limits)
			r := watch(t.Context(), swarmOf(t, rotating(t, false, tt.ids...), limits), "x")
			if r.err != nil || r.handoffs() != tt.at {
				t.Fatal(r.handoffs(), r.err)
			}
			has(t, r.text(), "then I answer", map[string]string{agent.ReasonMaxHandoffs: "limits.max_handoffs", agent.ReasonRepetitive: "limits.loop_window"}[tt.reason])
			r.complete(t)

			r = watch(t.Context(), swarmOf(t, rotating(t, true, tt.ids...), limits), "x")
			wantReason(t, r.err, tt.reason)
			if r.handoffs() != tt.at {
				t.Error(r.handoffs())
			}
			r.complete(t)
		})
	}

	t.Run("R-004-33 max_handoffs 0 is off: 50 pass, and more, up to max_steps", func(t *testing.T) {
		n := 0
		reg := rotating(t, true, "b", "c")
		reg["a"] = minded(t, "a", modelFunc(func(*agent.ModelRequest) *teamv1.Turn {
			if n++; n == 18 {
				return says("enough")
			}
			return handsTo("b", "")
		}))
		reg["c"] = minded(t, "c", always{"a", true}.model())
		r := watch(t.Context(), swarmOf(t, reg, withLimits(&teamv1.Limits{MaxHandoffs: proto.Int32(0)})), "x")
		if r.err != nil || r.handoffs() != 51 || r.text() != "enough" {
			t.Error(r.err, r.handoffs(), r.text())
		}
		r = watch(t.Context(), swarmOf(t, rotating(t, true, "a", "b", "c"), withLimits(&teamv1.Limits{MaxHandoffs: proto.Int32(0)})), "x")
		has(t, wantReason(t, r.err, agent.ReasonMaxIterations).Message, "limits.max_steps")
		if r.handoffs() != 100 { // the entry and 99, and one that was refused
			t.Error(r.handoffs())
		}
	})

	t.Run("R-004-33 all four off", func(t *testing.T) {
		off := withLimits(&teamv1.Limits{
			MaxHandoffs: proto.Int32(0), LoopWindow: proto.Int32(0), LoopMinUnique: proto.Int32(0), NodeTimeout: durationpb.New(0), MaxSteps: proto.Int32(60),
		})
		r := watch(t.Context(), swarmOf(t, rotating(t, true, "a", "b"), off), "x")
		wantReason(t, r.err, agent.ReasonMaxIterations)
	})

	t.Run("R-004-35 a second run counts from 0", func(t *testing.T) {
		tm := swarmOf(t, rotating(t, false, "a", "b"))
		for range 2 {
			if r := watch(t.Context(), tm, "x"); r.handoffs() != 7 {
				t.Error(r.handoffs())
			}
		}
	})

	t.Run("a refusal is a DELEGATE to the same member with the reason, and no hand-off", func(t *testing.T) {
		r := watch(t.Context(), swarmOf(t, rotating(t, false, "a", "b"), withLimits(&teamv1.Limits{MaxHandoffs: proto.Int32(1)})), "x")
		var last *teamv1.Decided
		for _, ev := range r.events {
			if ev.GetScope() == "" && len(ev.GetDecided().GetSteps()) > 0 {
				last = ev.GetDecided()
			}
		}
		if st := last.GetSteps()[0]; st.GetKind() != teamv1.Step_KIND_DELEGATE || st.GetMember() != "b" || last.GetRule() != agent.ReasonMaxHandoffs {
			t.Error(last)
		}
	})
}

func TestSwarm_Time(t *testing.T) {
	node := withLimits(&teamv1.Limits{NodeTimeout: durationpb.New(2 * time.Second)})
	slow := func(d *diary) registry { return registry{"a": d.takes("a", 5*time.Second)} }

	t.Run("S-34 R-004-28 the entry member has no node_timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			if answer, err := ask(t, swarmOf(t, slow(&d), node), "x"); err != nil || answer != "a(x)" {
				t.Error(answer, err)
			}
		})
	})

	t.Run("S-34 R-004-28 a target has", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			reg := registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": stuck("b")}
			r := watch(t.Context(), swarmOf(t, reg, node), "x")
			wantReason(t, r.err, agent.ReasonTimeout)
			if time.Since(begin) != 2*time.Second || r.delegations()[1] != "2 b: timed_out TIMEOUT_EXCEEDED" {
				t.Error(time.Since(begin), r.delegations())
			}
			r.complete(t)
		})
	})

	t.Run("R-004-28 a target that was refused a hand-over still has", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := leads(t, handsTo("a", ""), func(*agent.ModelRequest) *teamv1.Turn {
				time.Sleep(time.Minute) // the bubble's
				return says("late")
			})
			reg := registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": minded(t, "b", b)}
			r := watch(t.Context(), swarmOf(t, reg, node, withLimits(&teamv1.Limits{MaxHandoffs: proto.Int32(1)})), "x")
			wantReason(t, r.err, agent.ReasonTimeout)
			if r.delegations()[2] != "3 b: timed_out TIMEOUT_EXCEEDED" {
				t.Error(r.delegations())
			}
		})
	})

	t.Run("R-004-28 the default is none, and C-07 member_timeout is not applied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": minded(t, "a", leads(t, handsTo("b", "")))}
			reg["b"] = d.takes("b", 4*time.Minute)
			if answer, err := ask(t, swarmOf(t, reg), "x"); err != nil || answer != "b(x)" {
				t.Error(answer, err)
			}
		})
	})

	t.Run("C-07 the run's timeout always holds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			r := watch(t.Context(), swarmOf(t, registry{"a": stuck("a")}), "x")
			has(t, wantReason(t, r.err, agent.ReasonTimeout).Message, "limits.timeout")
			if time.Since(begin) != 300*time.Second {
				t.Error(time.Since(begin))
			}
		})
	})

	t.Run("R-004-28 the record names the limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": stuck("b")}
			r := watch(t.Context(), swarmOf(t, reg, node), "x")
			i := slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetExpired() != nil })
			if i < 0 || r.events[i].GetExpired().GetLimit() != "node_timeout" {
				t.Error(r.events)
			}
		})
	})
}

// TestSwarm_Owner is who begins (R-004-25, R-004-26).
func TestSwarm_Owner(t *testing.T) {
	list := members("a", "b", "off")
	list[2].Disabled = true
	for _, tt := range []struct {
		name  string
		cross bool
		owner string
		want  string
	}{
		{"R-004-25 each new message begins with the entry member", false, "b", "a"},
		{"R-004-26 with cross_request_transfer with the one that answered last", true, "b", "b"},
		{"R-004-26 another conversation has no owner", true, "", "a"},
		{"R-004-26 S-59 an owner that is disabled", true, "off", "a"},
		{"R-004-26 S-59 an owner that is gone", true, "gone", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := swarm.New(swarm.Config{Entry: "a", Members: list, CrossRequest: tt.cross})
			if err != nil {
				t.Fatal(err)
			}
			s := &team.State{Team: &team.Config{ID: "t1", Members: list, Scheduler: w}, Input: agent.UserMessage("m", "x")}
			if tt.owner != "" {
				s.Context = map[string]*structpb.Value{agent.ConversationPrefix + "active_owner": structpb.NewStringValue(tt.owner)}
			}
			d, err := w.Next(s)
			if err != nil || d.Steps[0].GetMember() != tt.want || d.Steps[0].GetKind() != teamv1.Step_KIND_DELEGATE {
				t.Error(d, err)
			}
		})
	}
	t.Run("R-004-26 who answered is kept for the conversation", func(t *testing.T) {
		reg := registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": minded(t, "b", leads(t, says("B says")))}
		r := watch(t.Context(), swarmOf(t, reg), "x")
		last := r.events[len(r.events)-1].GetDecided()
		if last.GetReply() == nil || last.GetUpdates()["conversation.active_owner"].GetStringValue() != "b" {
			t.Error(last)
		}
	})
}

func TestR_004_20_Configuration(t *testing.T) {
	off := members("a", "b")
	off[0].Disabled = true
	for _, tt := range []struct {
		name   string
		config swarm.Config
		want   string
	}{
		{"R-004-20 no entry member", swarm.Config{Members: members("a")}, "no entry member"},
		{"R-004-20 an entry member that there is not", swarm.Config{Entry: "x", Members: members("a")}, `no such member "x"`},
		{"R-004-20 no members", swarm.Config{Entry: "a"}, `no such member "a"`},
		{"S-59 the entry member is disabled", swarm.Config{Entry: "a", Members: off}, `member "a" is disabled and cannot begin`},
		{"handing over to nobody", swarm.Config{Entry: "a", Members: []team.Member{{Agent: "a", Handoff: []string{"z"}}}}, `no such member "z"`},
		{"handing over to itself", swarm.Config{Entry: "a", Members: []team.Member{{Agent: "a", HandoffAfter: "a"}}}, `would hand over to itself`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := swarm.New(tt.config)
			if err == nil || agent.AsError(err).Reason != agent.ReasonInvalidTeamConfig {
				t.Fatal(err)
			}
			has(t, err.Error(), tt.want)
		})
	}
	t.Run("R-004-20 no name", func(t *testing.T) {
		s, err := swarm.New(swarm.Config{Entry: "a", Members: members("a")})
		if err != nil {
			t.Fatal(err)
		}
		_, err = team.New(team.Config{Scheduler: s, Members: members("a"), Registry: registry{}})
		wantReason(t, err, agent.ReasonInvalidTeamConfig)
	})
	t.Run("C-11 with no member enabled: FAILED_PRECONDITION", func(t *testing.T) {
		w, err := swarm.New(swarm.Config{Entry: "a", Members: members("a")})
		if err != nil {
			t.Fatal(err)
		}
		off := []team.Member{{ID: "a", Agent: "a", Disabled: true}}
		_, err = ask(t, newTeamWith(t, team.Config{ID: "t1", Scheduler: w, Members: off, Registry: registry{"a": skilled("a")}}), "x")
		if e := wantReason(t, err, agent.ReasonTeamError); e.Code != agent.CodeFailedPrecondition {
			t.Error(e)
		}
	})
}

// TestC_13_TeamsInASwarm has teams of each mode as members of a swarm (R-004-09, R-004-10).
func TestC_13_TeamsInASwarm(t *testing.T) {
	named := func(id string) func(*leader.CoordinatorConfig, *team.Config) {
		return func(_ *leader.CoordinatorConfig, c *team.Config) { c.ID = id }
	}

	t.Run("C-13 a coordinator hands over through its leader, whose run ends there", func(t *testing.T) {
		var d diary
		lead := leads(t, calls(give("w", "work")), calls(handOver("z", "yours")))
		inner := ledBy(t, lead, d.crew("w"), named("desk"))
		z := leads(t, says("Z says"))
		r := watch(t.Context(), swarmOf(t, registry{"desk": inner, "z": minded(t, "z", z)}), "x")
		if r.err != nil || r.text() != "Z says" || len(lead.all()) != 2 {
			t.Fatal(r.text(), r.err, len(lead.all()))
		}
		if got := offered(lead.all()[0]); !slices.Contains(got, team.TransferTool) || !slices.Contains(got, "delegate_to_w") {
			t.Error(got)
		}
		if lastSaid(z.all()[0]) != "yours" {
			t.Error(heard(z.all()[0]))
		}
		r.complete(t)
	})

	t.Run("C-13 S-54 the coordinator's members cannot hand over", func(t *testing.T) {
		mind := leads(t, handsTo("z", ""), says("I cannot"))
		inner := ledBy(t, leads(t, calls(give("mind", "work")), says("desk says")), registry{"mind": minded(t, "mind", mind)}, named("desk"))
		r := watch(t.Context(), swarmOf(t, registry{"desk": inner, "z": skilled("z")}), "x")
		if r.err != nil || r.text() != "desk says" || len(mind.all()[0].Tools) != 0 {
			t.Error(r.text(), r.err)
		}
	})

	t.Run("C-13 open work of a leader that hands over is ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			inner := ledBy(t, leads(t, calls(give("w", "work")), after(time.Second, handsTo("z", ""))), registry{"w": stuck("w")}, named("desk"), async)
			r := watch(t.Context(), swarmOf(t, registry{"desk": inner, "z": skilled("z")}), "x")
			if r.err != nil || r.text() != "z(x)" {
				t.Error(r.text(), r.err)
			}
			r.complete(t)
		})
	})

	t.Run("C-13 a swarm hands over through the member at work", func(t *testing.T) {
		in := leads(t, handsTo("far", "go"))
		out := leads(t, handsTo("z", "yours"))
		inner := swarmOf(t, registry{"near": minded(t, "near", in), "far": minded(t, "far", out)}, func(c *swarm.Config, cfg *team.Config) { c.Entry, cfg.ID = "near", "desk" })
		r := watch(t.Context(), swarmOf(t, registry{"desk": inner, "z": minded(t, "z", leads(t, says("Z says")))}), "x")
		if r.err != nil || r.text() != "Z says" {
			t.Fatal(r.text(), r.err)
		}
		has(t, string(in.all()[0].Tools[0].Parameters), `["far","z"]`)
		has(t, string(out.all()[0].Tools[0].Parameters), `["near","z"]`)
		if r.handoffs() != 1 {
			t.Error("the inner hand-over does not count outside: ", r.handoffs())
		}
		r.complete(t)
	})

	t.Run("C-13 R-004-27 a coordinator that is refused a hand-over runs once more, and has to answer", func(t *testing.T) {
		lead := leads(t, handsTo("z", ""), says("desk says"))
		inner := ledBy(t, lead, registry{}, named("desk"))
		r := watch(t.Context(), swarmOf(t, registry{"desk": inner, "z": skilled("z")}, func(c *swarm.Config, _ *team.Config) { c.Members[1].Disabled = true }), "x")
		// a swarm with nobody to hand over to does not offer the tool; the call is the leader's own mistake
		if r.err != nil || r.text() != "desk says" {
			t.Error(r.text(), r.err)
		}
		always := leads(t, handsTo("z", ""), says("desk says"))
		inner = ledBy(t, always, registry{}, named("desk"))
		full := withLimits(&teamv1.Limits{LoopWindow: proto.Int32(1), LoopMinUnique: proto.Int32(2)})
		r = watch(t.Context(), swarmOf(t, registry{"desk": inner, "z": skilled("z")}, full), "x")
		if r.err != nil || r.text() != "desk says" || !strings.Contains(lastSaid(always.all()[1]), "was refused") {
			t.Error(r.text(), r.err)
		}
	})

	flow := func(t *testing.T) *team.Team {
		return newTeamWith(t, team.Config{ID: "flow", Scheduler: inOrder("w"), Members: members("w"), Registry: registry{"w": skilled("w")}})
	}
	t.Run("C-13 a workflow's reply ends the run", func(t *testing.T) {
		reg := registry{"a": minded(t, "a", leads(t, handsTo("flow", "do it"))), "flow": flow(t)}
		if answer, err := ask(t, swarmOf(t, reg), "x"); err != nil || answer != "w(do it)" {
			t.Error(answer, err)
		}
	})
	t.Run("C-13 unless handoff_after names who takes over", func(t *testing.T) {
		z := leads(t, says("Z says"))
		reg := registry{"flow": flow(t), "z": minded(t, "z", z)}
		r := watch(t.Context(), swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) { c.Members[0].HandoffAfter = "z" }), "x")
		if r.err != nil || r.text() != "Z says" || r.handoffs() != 1 {
			t.Fatal(r.text(), r.err)
		}
		if diff := cmp.Diff([]string{"user: x", "user: flow: succeeded\n\nw(x)", "user: w(x)"}, heard(z.all()[0])); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("C-13 R-004-27 a hand-over after its reply that is refused fails the run at once", func(t *testing.T) {
		n := 0
		w := &agent.Func{ID: "w", Call: skilled("w").Call}
		inner := newTeamWith(t, team.Config{ID: "flow", Scheduler: next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) == 0 {
				n++
				return delegateTo("w"), nil
			}
			return team.Decision{Reply: s.Last.Message}, nil
		}), Members: members("w"), Registry: registry{"w": w}})
		reg := registry{"flow": inner, "z": minded(t, "z", modelFunc(func(*agent.ModelRequest) *teamv1.Turn { return handsTo("flow", fmt.Sprint("again ", n)) }))}
		r := watch(t.Context(), swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) { c.Members[0].HandoffAfter = "z" }, withLimits(&teamv1.Limits{MaxHandoffs: proto.Int32(4)})), "x")
		has(t, wantReason(t, r.err, agent.ReasonMaxHandoffs).Message, "limits.max_handoffs")
		if n != 3 {
			t.Errorf("the workflow ran %d times", n)
		}
	})
	t.Run("R-004-10 a coordinator above a swarm", func(t *testing.T) {
		inner := swarmOf(t, registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": minded(t, "b", leads(t, says("B says")))}, func(_ *swarm.Config, c *team.Config) { c.ID = "pair" })
		m := leads(t, calls(give("pair", "go")), func(req *agent.ModelRequest) *teamv1.Turn { return says(lastSaid(req)) })
		if answer, err := ask(t, ledBy(t, m, registry{"pair": inner}), "x"); err != nil || answer != "pair: succeeded\n\nB says" {
			t.Error(answer, err)
		}
	})
}

// understaffed are members of whom some take no more work.
type understaffed struct {
	registry
	gone map[string]bool
}

func (u understaffed) Gone(team, member string) *agent.Error {
	if !u.gone[member] {
		return nil
	}
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "member %q of team %q was disabled", member, team)
}

// TestS_59_RosterInFlight has members that are disabled while a run is under way
// that knows of them (R-002-13).
func TestS_59_RosterInFlight(t *testing.T) {
	leave := func(gone map[string]bool, id string) *agent.Func {
		return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			gone[id], gone["b"] = true, true
			return agent.NewMessage(id + " says"), nil
		}}
	}
	t.Run("S-59 R-002-13 a leader is told at the next delegation; who is at work goes on", func(t *testing.T) {
		var d diary
		gone := map[string]bool{}
		reg := registry{"a": leave(gone, "a"), "b": d.crew("b")["b"]}
		m := leads(t, calls(give("a", "x")), calls(give("b", "y")), calls(give("a", "z")), says("done"))
		r := watch(t.Context(), ledBy(t, m, reg, func(_ *leader.CoordinatorConfig, c *team.Config) { c.Registry = understaffed{reg, gone} }), "x")
		if diff := cmp.Diff([]string{"2 a: succeeded", "4 b: rejected DISABLED", "6 a: rejected DISABLED"}, r.delegations()); diff != "" || r.err != nil || len(d.all()) > 0 {
			t.Error(diff, r.err, d.all())
		}
		if r.starts("4") != 0 || !slices.Contains(offered(m.all()[1]), "delegate_to_b") {
			t.Error("the run chooses among the members it began with")
		}
		r.complete(t)
	})
	t.Run("S-59 a step that has begun is not refused after a crash", func(t *testing.T) {
		w := newWorld(t)
		gone := map[string]bool{}
		reg := registry{"a": asksFirst(w, "a")}
		tm := ledBy(t, leads(t, calls(give("a", "x")), says("done")), reg, func(_ *leader.CoordinatorConfig, c *team.Config) { c.Registry = understaffed{reg, gone} })
		if w.drive(t, tm) {
			t.Fatal("it does not wait")
		}
		gone["a"] = true
		w.answer()
		if !w.drive(t, tm) || w.result() != "succeeded: done" {
			t.Error(w.result())
		}
	})
	t.Run("S-59 a swarm's member that hands over to one is told, and answers itself", func(t *testing.T) {
		gone := map[string]bool{"b": true}
		a := leads(t, handsTo("b", ""), says("myself then"))
		reg := registry{"a": minded(t, "a", a), "b": skilled("b")}
		r := watch(t.Context(), swarmOf(t, reg, func(_ *swarm.Config, c *team.Config) { c.Registry = understaffed{reg, gone} }), "x")
		if r.err != nil || r.text() != "myself then" {
			t.Fatal(r.text(), r.err)
		}
		has(t, lastSaid(a.all()[1]), "transfer_to_agent was refused", `member "b" of team "t1" was disabled`)
		r.complete(t)
	})
	t.Run("S-59 R-004-27 such a hand-over does not count", func(t *testing.T) {
		gone := map[string]bool{"c": true}
		b := leads(t, handsTo("c", ""), says("B says"))
		reg := registry{"a": minded(t, "a", leads(t, handsTo("b", ""))), "b": minded(t, "b", b), "c": skilled("c")}
		r := watch(t.Context(), swarmOf(t, reg, func(_ *swarm.Config, c *team.Config) { c.Registry = understaffed{reg, gone} }, withLimits(&teamv1.Limits{MaxHandoffs: proto.Int32(2)})), "x")
		if r.err != nil || r.text() != "B says" {
			t.Error(r.text(), r.err)
		}
	})
	t.Run("S-59 where nobody can answer instead the run fails: the entry member, and one behind a workflow", func(t *testing.T) {
		gone := map[string]bool{"a": true}
		reg := registry{"a": skilled("a"), "b": skilled("b")}
		with := func(_ *swarm.Config, c *team.Config) { c.Registry = understaffed{reg, gone} }
		r := watch(t.Context(), swarmOf(t, reg, with), "x")
		wantReason(t, r.err, agent.ReasonDisabled)
		gone["a"], gone["b"] = false, true
		r = watch(t.Context(), swarmOf(t, reg, with, func(c *swarm.Config, _ *team.Config) { c.Members[0].HandoffAfter = "b" }), "x")
		wantReason(t, r.err, agent.ReasonDisabled)
		r.complete(t)
	})
	t.Run("S-59 R-000-27 other modes fail with the refusal", func(t *testing.T) {
		reg := registry{"a": skilled("a")}
		tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a"), Members: members("a"), Registry: understaffed{reg, map[string]bool{"a": true}}})
		_, err := ask(t, tm, "x")
		wantReason(t, err, agent.ReasonDisabled)
	})
}

// TestSwarm_A_17: what the user says while a swarm works reaches the member that
// answers, once.
func TestSwarm_A_17(t *testing.T) {
	run := &agent.Run{Root: crashRoot}
	var heard []string
	say := func(n int64, text string) {
		run.Deliver(&teamv1.Inbound{N: n, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m"+text, text)}}})
	}
	reg := registry{"ann": minded(t, "ann", leads(t, func(*agent.ModelRequest) *teamv1.Turn {
		say(1, "in red")
		return handsTo("bob", "paint")
	})), "bob": &agent.Func{ID: "bob", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		if heard = append(heard, agent.Text(m)); len(heard) == 1 {
			say(2, "and large")
		}
		return agent.NewMessage("painted: " + agent.Text(m)), nil
	}}}
	got, err := agent.Reply(agent.With(t.Context(), run), swarmOf(t, reg), agent.UserMessage("m1", "x"))
	if err != nil || !strings.HasPrefix(agent.Text(got), "painted: in red") || !strings.Contains(agent.Text(got), "and large") {
		t.Error(agent.Text(got), err)
	}
	if len(heard) != 2 || heard[0] != "paint" {
		t.Errorf("%q", heard)
	}
}
