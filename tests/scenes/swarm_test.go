package scenes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// swarm is a file with a swarm of model-backed members; limits and keys are those
// of the team and its mode.
func swarm(members, limits, keys string) string {
	var b, list strings.Builder
	b.WriteString("agents:\n")
	for _, id := range strings.Fields(members) {
		fmt.Fprintf(&b, "  %s: {model: %s, instructions: You are %s., description: Knows %s.}\n", id, id, id, id)
		fmt.Fprintf(&list, "{agent: %s}, ", id)
	}
	fmt.Fprintf(&b, "teams:\n  desk:\n    description: Helps with everything.\n    members: [%s]\n    swarm: {entry_member: a%s}\n    limits: {retry: {backoff: 1ms}%s}\n",
		strings.TrimSuffix(list.String(), ", "), keys, limits)
	return b.String()
}

// rotates has each member hand over to the next one for ever; who is refused
// answers, unless it is stubborn.
func (s *scene) rotates(stubborn bool, ids ...string) {
	for i, id := range ids {
		s.llm.Answer(id+"-model", func(r *fakellm.Request) fakellm.Turn {
			if strings.Contains(r.Last(), "was refused") && !stubborn {
				return speaks(id + " answers: " + r.Last())
			}
			return handsTo(ids[(i+1)%len(ids)])
		})
	}
}

// handoffs counts the transfers of a run.
func (r *ran) handoffs() int {
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

func TestS_30_SwarmChain(t *testing.T) {
	eachScene(t, "a b c", swarm("a b c", "", ""), func(t *testing.T, s *scene) {
		s.script("a", handsTo("b"))
		s.script("b", handsTo("c"))
		s.script("c", speaks("C says"))
		r := s.play("desk", "help").completed("C says")
		t.Run("S-30 R-004-21 R-004-23 R-004-24 three model calls, the first is the entry member's, the author is C", func(t *testing.T) {
			reqs := s.llm.Requests()
			if len(reqs) != 3 || reqs[0].Model != "a-model" || reqs[2].Model != "c-model" {
				t.Fatal(len(reqs))
			}
			wantText(t, r.task("3"), "C says")
			if d := r.detailed().GetDelegations(); len(d) != 3 || d[2].GetPath() != "desk/c" || d[2].GetKind() != teamv1.Step_KIND_TRANSFER || d[0].GetKind() != teamv1.Step_KIND_DELEGATE {
				t.Error(d)
			}
		})
		t.Run("S-30 R-004-22 each one's tool lists the others only", func(t *testing.T) {
			for i, others := range []string{`["b","c"]`, `["a","c"]`, `["a","b"]`} {
				r := s.llm.Requests()[i]
				if diff := cmp.Diff([]string{"transfer_to_agent"}, r.Tools); diff != "" {
					t.Error(diff)
				}
				holds(t, string(r.Body), `"enum":`+others)
			}
		})
		t.Run("R-004-36 the card has the team's own description", func(t *testing.T) {
			card, _, err := rig.PublicCard(t.Context(), s.Target, "desk")
			if err != nil || card.GetDescription() != "Helps with everything." {
				t.Error(card.GetDescription(), err)
			}
		})
	})
}

func TestS_32_MaxHandoffs(t *testing.T) {
	four := []string{"a", "b", "c", "d"}
	for _, tt := range []struct {
		name, limits string
		want         int
	}{
		{"S-32 R-004-27 the default: 20 pass, the 21st is refused", "", 20},
		{"R-004-33 0 is off: 50 pass", ", max_handoffs: 0, max_steps: 51", 0},
	} {
		eachScene(t, "a b c d", swarm("a b c d", tt.limits, ""), func(t *testing.T, s *scene) {
			t.Run(tt.name, func(t *testing.T) {
				s.rotates(false, four...)
				r := s.begin("desk", "help").wait()
				r.verify()
				if tt.want == 0 {
					if n := len(s.llm.Requests()); n != 51 {
						t.Errorf("%d turns", n)
					}
					r.failed(agent.ReasonMaxIterations)
					return
				}
				if r.handoffs() != tt.want {
					t.Error(r.handoffs())
				}
				holds(t, textOf(r.task("")), "a answers", "20 times", "limits.max_handoffs")
			})
		})
	}
	eachScene(t, "a b c d", swarm("a b c d", "", ""), func(t *testing.T, s *scene) {
		t.Run("R-004-27 a further one fails the run", func(t *testing.T) {
			s.rotates(true, four...)
			s.play("desk", "help").failed(agent.ReasonMaxHandoffs)
		})
	})
}

func TestS_33_PingPong(t *testing.T) {
	for _, tt := range []struct {
		name, limits string
		want         int
		why          string
	}{
		{"S-33 R-004-29 N=8 M=3: refused at the 8th", "", 7, "limits.loop_window"},
		{"S-33 R-004-31 M=2: not refused, stops at 20", ", loop_min_unique: 2", 20, "limits.max_handoffs"},
		{"S-33 R-004-30 N=0: not refused, stops at 20", ", loop_window: 0", 20, "limits.max_handoffs"},
	} {
		eachScene(t, "a b", swarm("a b", tt.limits, ""), func(t *testing.T, s *scene) {
			t.Run(tt.name, func(t *testing.T) {
				s.rotates(false, "a", "b")
				r := s.play("desk", "help")
				if r.handoffs() != tt.want {
					t.Error(r.handoffs())
				}
				holds(t, textOf(r.task("")), "answers", tt.why)
				t.Run("R-004-35 the next run counts from 0", func(t *testing.T) {
					if r := s.play("desk", "help again"); r.handoffs() != tt.want {
						t.Error(r.handoffs())
					}
				})
			})
		})
	}
}

func TestS_34_NodeTimeout(t *testing.T) {
	limits := ", node_timeout: 300ms"
	eachScene(t, "a b", swarm("a b", limits, ""), func(t *testing.T, s *scene) {
		t.Run("S-34 R-004-28 the entry member survives", func(t *testing.T) {
			s.script("a", fakellm.Turn{Text: "A says", Delay: 600 * time.Millisecond})
			s.play("desk", "help").completed("A says")
		})
	})
	eachScene(t, "a b", swarm("a b", limits, ""), func(t *testing.T, s *scene) {
		t.Run("S-34 R-004-28 a target times out, and its request is closed", func(t *testing.T) {
			s.script("a", handsTo("b"))
			s.script("b", fakellm.Turn{Text: "late", Gate: fakellm.NewGate()})
			r := s.play("desk", "help").failed(agent.ReasonTimeout)
			if diff := cmp.Diff([]string{"desk/b: timed_out TIMEOUT_EXCEEDED"}, r.lost()); diff != "" {
				t.Error(diff)
			}
			if !s.asked("b")[0].Gone {
				t.Error("the request was answered")
			}
		})
	})
}

// TestR_004_26_Owner sends two messages in one conversation, and one in another.
func TestR_004_26_Owner(t *testing.T) {
	for _, cross := range []bool{false, true} {
		eachScene(t, "a b", swarm("a b", "", fmt.Sprintf(", cross_request_transfer: %t", cross)), func(t *testing.T, s *scene) {
			s.llm.Answer("a-model", func(r *fakellm.Request) fakellm.Turn {
				if r.Last() == "go to b" {
					return handsTo("b")
				}
				return speaks("A says")
			})
			s.llm.Answer("b-model", func(*fakellm.Request) fakellm.Turn { return speaks("B says") })
			send := func(id, contextID, text string) *a2av1.Task {
				req := rig.Text("desk", id, text)
				req.Message.ContextId = contextID
				resp, err := s.clients[0].Send(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				return resp.GetTask()
			}
			wantText(t, send("1", "talk", "go to b"), "B says")
			if cross {
				t.Run("R-004-26 the next message begins with the one that answered last", func(t *testing.T) {
					wantText(t, send("2", "talk", "and now"), "B says")
				})
				t.Run("R-004-26 also after a restart", func(t *testing.T) {
					s.restart()
					wantText(t, send("3", "talk", "and then"), "B says")
				})
			} else {
				t.Run("R-004-25 each message begins with the entry member", func(t *testing.T) {
					wantText(t, send("2", "talk", "and now"), "A says")
				})
			}
			t.Run("R-004-26 another conversation begins with the entry member", func(t *testing.T) {
				wantText(t, send("4", "other", "and here"), "A says")
			})
		})
	}
}

// TestC_13_TeamsInASwarm has a coordinator and a workflow as members of a swarm.
func TestC_13_TeamsInASwarm(t *testing.T) {
	file := `agents:
  w: {model: w, instructions: Work.}
  z: {model: z, instructions: Close.}
teams:
  office:
    members: [{agent: w}]
    coordinator: {leader: {model: lead}}
  line:
    members: [{agent: w}]
    workflow: {steps: [{id: one, agent: w}]}
  desk:
    members: [{agent: office}, {agent: line, handoff_after: z}, {agent: z}]
    swarm: {entry_member: office}
`
	eachScene(t, "w z lead", file, func(t *testing.T, s *scene) {
		s.script("lead", acts(gives("w", "look")), handsTo("line"))
		s.script("w", speaks("W looked"), speaks("W worked"))
		s.script("z", speaks("Z closes"))
		r := s.play("desk", "help").completed("Z closes")
		t.Run("C-13 R-004-10 the leader hands over, the workflow's reply goes on to the one behind it", func(t *testing.T) {
			if r.handoffs() != 2 {
				t.Error(r.handoffs())
			}
			holds(t, s.asked("z")[0].Last(), "W worked")
			if got := s.asked("lead")[0].Tools; !cmp.Equal(got, []string{"delegate_to_w", "transfer_to_agent"}) {
				t.Error(got)
			}
			paths := map[string]bool{}
			for _, ev := range r.events {
				paths[ev.GetAgent()] = true
			}
			for _, path := range []string{"desk/office", "desk/office/w", "desk/line/w", "desk/z"} {
				if !paths[path] {
					t.Errorf("no event of %s", path)
				}
			}
		})
		t.Run("C-13 each is a task of its own", func(t *testing.T) {
			wantText(t, r.task("2"), "W worked")
			wantText(t, r.task("1.2"), "W looked")
			if run := a2a.RunOf(r.task("").GetMetadata()); len(run.GetFailedDelegations()) != 0 {
				t.Error(run)
			}
		})
	})
}
