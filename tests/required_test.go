package tests

import (
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// requiredFile has a team of each mode whose member c is required.
const requiredFile = `
models: {a: MODEL(a), c: MODEL(c), lead: MODEL(lead)}
agents: {a: {model: a}, c: {model: c}}
teams:
  coordinator: {members: [{agent: a}, {agent: c, required: true}], coordinator: {leader: {model: lead}}, limits: {retry: {attempts: 1}}}
  final: {members: [{agent: a}, {agent: c, required: true}], coordinator: {leader: {model: lead}, on_limit: FINALIZE}, limits: {max_delegations: 1, retry: {attempts: 1}}}
  route: {members: [{agent: a}, {agent: c, required: true}], route: {model: lead}, limits: {retry: {attempts: 1}}}
  broadcast: {members: [{agent: a}, {agent: c, required: true}], broadcast: {model: lead}, limits: {retry: {attempts: 1}}}
  workflow: {workflow: {on_member_error: CONTINUE_PARTIAL, steps: [{parallel: [{id: text, agent: a}, {id: check, agent: c, required: true}]}]}, limits: {retry: {attempts: 1}}}
  rules: {members: [{agent: a}, {agent: c, required: true}], supervisor: {rules: [{id: one, when: "turn == 1", next: [a]}, {id: two, when: "turn == 7", next: [c]}, {id: end, when: "true", finish: last}]}}
  router: {members: [{agent: a}, {agent: c, required: true}], supervisor: {router: {model: lead}}}
  swarm: {members: [{agent: a}, {agent: c, required: true}], swarm: {entry_member: a}}
`

// TestRequired_NeverCompleted has the leader of a team of each mode claim success, over each binding,
// although its required member failed or was never called.
func TestRequired_NeverCompleted(t *testing.T) {
	t.Parallel()
	calls := func(member string) fakellm.Turn {
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_" + member, Arguments: `{"task":"look"}`}}}
	}
	claim := fakellm.Turn{Text: "All done.", Chunks: 3}
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, requiredFile)
		s.llm.Answer("a", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "a text"} })
		s.llm.Answer("c", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Status: 400, Message: "no ink"} })
		for _, c := range []struct {
			team   string
			lead   []fakellm.Turn
			result string
			failed bool // c was called and failed; else it was never called
		}{
			{"coordinator", []fakellm.Turn{calls("c"), claim}, "All done.", true},
			{"coordinator", []fakellm.Turn{claim}, "All done.", false},
			{"final", []fakellm.Turn{calls("c"), calls("a"), claim}, "All done.", true},
			{"route", []fakellm.Turn{calls("a")}, "a text", false},
			{"broadcast", []fakellm.Turn{claim}, "All done.", true},
			{"workflow", nil, "a text", true},
			{"rules", nil, "a text", false},
			{"router", []fakellm.Turn{{Text: "a"}, {Text: "finish"}}, "a text", false},
			{"swarm", nil, "a text", false},
		} {
			rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
				s.llm.Script("lead", c.lead...)
				_, task := s.told(t, client, c.team, "tides", a2av1.TaskState_TASK_STATE_FAILED)
				run := a2a.RunOf(task.GetMetadata())
				e := run.GetError()
				if e.GetReason() != agent.ReasonRequiredWork || e.GetDetails()["members"] != "c" || !strings.Contains(e.GetMessage(), `member "c"`) {
					t.Errorf("%s: error %v", c.team, e)
				}
				if resultOf(task) != c.result {
					t.Errorf("%s: artifacts %v", c.team, task.GetArtifacts())
				}
				failed := run.GetFailedDelegations()
				if !c.failed {
					if len(failed) != 0 {
						t.Errorf("%s: failed delegations %v", c.team, failed)
					}
					return
				}
				if len(failed) == 0 || failed[0].GetPath() != c.team+"/c" || failed[0].GetOutcome() != teamv1.Outcome_OUTCOME_FAILED || failed[0].GetId() != e.GetDetails()["delegations"] {
					t.Errorf("%s: failed delegations %v, details %v", c.team, failed, e.GetDetails())
				}
			})
		}
	})
}

// TestRequired_InTheTask has required work that failed without an error: an empty reply is in the
// task's metadata and in the trace, and a later success makes up for it.
func TestRequired_InTheTask(t *testing.T) {
	t.Parallel()
	again := func(task string) fakellm.Turn {
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_c", Arguments: `{"task":"` + task + `"}`}}}
	}
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, requiredFile)
		s.llm.Script("c", fakellm.Turn{Text: ""}, fakellm.Turn{Text: ""}, fakellm.Turn{Text: "fine"})
		s.llm.Script("lead", again("look"), fakellm.Turn{Text: "All done."}, again("look"), again("look again"), fakellm.Turn{Text: "All done."})
		task := s.ask(t, "coordinator", "tides", failedTask)
		run := a2a.RunOf(task.GetMetadata())
		if f := run.GetFailedDelegations(); len(f) != 1 || f[0].GetOutcome() != teamv1.Outcome_OUTCOME_EMPTY || !strings.Contains(run.GetError().GetMessage(), "returned no content") {
			t.Errorf("failed delegations %v, error %v", f, run.GetError())
		}
		for _, m := range rig.Monitors(t, s.Target) {
			tr, err := m.Trace(t.Context(), task.GetId())
			if err != nil {
				t.Fatal(err)
			}
			ds := tr.GetStep().GetDecisions()
			if d := ds[len(ds)-1]; d.GetFailure().GetReason() != agent.ReasonRequiredWork {
				t.Errorf("over %s the last decision is %v", m.Binding(), d)
			}
		}
		if task := s.ask(t, "coordinator", "tides", completedTask); resultOf(task) != "All done." || len(a2a.RunOf(task.GetMetadata()).GetFailedDelegations()) != 1 {
			t.Errorf("after a later success: %v", task)
		}
	})
}
