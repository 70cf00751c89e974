package config

import (
	"fmt"
	"strings"
	"testing"
)

// modesFile is a file with a team of each mode that is led or handed around.
const modesFile = `version: v1
models: {fast: {provider: openai, name: n, base_url: "http://127.0.0.1/v1"}}
agents:
  a: {scripted: {steps: [{echo: true}]}}
  b: {model: fast, instructions: Do it.}
  c: {instructions: Do it with the model of the leader.}
teams:
  lead:
    members: [{agent: a, id: one}, {agent: b, MEMBER}, {agent: c}]
    coordinator: {leader: {model: fast, instructions: Lead.}, LEAD}
    limits: {max_delegations: 3, max_turns: 5, LIMITS}
  hand:
    members: [{agent: a}, {agent: lead, HAND}, {agent: b}]
    swarm: {entry_member: ENTRY, SWARM}
    limits: {max_handoffs: 0, loop_window: 0, loop_min_unique: 0, node_timeout: 0s, OFF}
  pick:
    members: [{agent: a}, {agent: b}]
    route: {model: fast}
`

func TestModes(t *testing.T) {
	for _, tt := range []struct{ name, at, value, want string }{
		{"all of it is good", "", "", ""},
		{"R-003-02 C-01 another word for coordinator", "coordinator:", "orchestrator_agent:", ""},
		{"R-003-02 and another", "coordinator:", "ai_employee:", ""},
		{"C-08 tool style", "LEAD", "tool_style: SINGLE, allow_parallel: true, async: true, on_open_delegations: CANCEL, strict_cycles: true, on_limit: FINALIZE, on_member_error: FAIL", ""},
		{"C-09 detached work", "LEAD", "async: true, on_open_delegations: DETACH, wake_on_completion: true", ""},
		{"S-65 nobody to be woken by", "LEAD", "async: true, wake_on_completion: true", "wake_on_completion needs detached work"},
		{"history scopes", "MEMBER", "history_scope: ISOLATED, skip_summarization: true, async: false", ""},
		{"R-002-11 the leader's model is not defined", "{model: fast, instructions: Lead.}", "{model: fats}", `the leader of team "lead" uses model "fats", which is not defined`},
		{"R-002-01 a leader without a model", "{model: fast, instructions: Lead.}", "{instructions: Lead.}", "a coordinator needs a leader"},
		{"R-004-04 a remote agent cannot lead", "{model: fast, instructions: Lead.}", "{grpc: {address: \"h:1\"}}", `unknown key "grpc"`},
		{"R-002-10 R-004-07 a member twice", "{agent: c}]", "{agent: c}, {agent: c}]", `team "lead" has member "c" twice`},
		{"R-004-38 a member with the team's name", "id: one", "id: lead", `member "lead" has the name of its team`},
		{"R-002-5.3 no members", "members: [{agent: a, id: one}, {agent: b, MEMBER}, {agent: c}]", "members: []", "a team needs 1 to 64 members"},
		{"R-002-5.4 a member without an agent", "{agent: a, id: one}", "{id: one}", "a member needs an agent"},
		{"R-003-04 a tool as a member", "{agent: a, id: one}", "{agent: web}", `team "lead" has member "web", which is not defined`},
		{"R-002-5.2 C-10 no delegations", "max_delegations: 3", "max_delegations: 0", "max_delegations must be more than 0"},
		{"C-10 a negative limit", "max_handoffs: 0", "max_handoffs: -1", "max_handoffs must not be negative"},
		{"C-10 a negative time", "node_timeout: 0s", "node_timeout: -1s", "node_timeout must not be negative"},
		{"a limit of another mode", "LIMITS", "max_handoffs: 3", "limit max_handoffs belongs to a swarm team"},
		{"R-004-20 no entry member", "entry_member: ENTRY, SWARM", "", "a swarm needs an entry member"},
		{"R-004-20 an unknown entry member", "ENTRY", "x", `no such member "x"`},
		{"S-59 the entry member is disabled", "{agent: a}, {agent: lead, HAND}", "{agent: a, enabled: false}, {agent: lead}", `member "a" is disabled and cannot begin`},
		{"R-004-09 strict members", "SWARM", "strict_members: true", `team "lead" cannot be a member of swarm "hand"`},
		{"handing over to nobody", "HAND", "handoff: [z]", `no such member "z"`},
		{"handing over to itself", "HAND", "handoff_after: lead", `member "lead" would hand over to itself`},
		{"handing over in a coordinator", "MEMBER", "handoff: [a]", "handoff belongs to members of swarm teams"},
		{"a required member", "MEMBER", "required: true", ""},
		{"a required member that is disabled", "MEMBER", "required: true, enabled: false", `member "b" is required, but disabled`},
		{"a required member in a swarm", "HAND", "required: true", ""},
		{"two required members of a team that calls one", "members: [{agent: a}, {agent: b}]\n    route", "members: [{agent: a, required: true}, {agent: b, required: true}]\n    route", "more members are required than the 1 that a run may call"},
		{"required work that no run waits for", "[{agent: a, id: one}, {agent: b, MEMBER}, {agent: c}]\n    coordinator: {leader: {model: fast, instructions: Lead.}, LEAD}", "[{agent: b, required: true}]\n    coordinator: {leader: {model: fast}, async: true, on_open_delegations: DETACH}", `member "b" is required, but its work becomes a task of its own`},
		{"required work that the run waits for", "[{agent: a, id: one}, {agent: b, MEMBER}, {agent: c}]\n    coordinator: {leader: {model: fast, instructions: Lead.}, LEAD}", "[{agent: b, required: true, async: false}, {agent: c}]\n    coordinator: {leader: {model: fast}, async: true, on_open_delegations: DETACH}", ""},
		{"a required member that no rule names", "members: [{agent: a}, {agent: b}]\n    route: {model: fast}", "members: [{agent: a}, {agent: b, required: true}]\n    supervisor: {rules: [{id: r, when: \"true\", next: [a]}]}", `member "b" is required, but no rule or step of the team names it`},
		{"a required member that a router may choose", "members: [{agent: a}, {agent: b}]\n    route: {model: fast}", "members: [{agent: a}, {agent: b, required: true}]\n    supervisor: {router: {model: fast}}", ""},
		{"a required member that no step names", "members: [{agent: a}, {agent: b}]\n    route: {model: fast}", "members: [{agent: a}, {agent: b, required: true}]\n    workflow: {steps: [{id: s, agent: a}]}", `member "b" is required, but no rule or step of the team names it`},
		{"a required step", "members: [{agent: a}, {agent: b}]\n    route: {model: fast}", "workflow: {steps: [{id: s, agent: a, required: true}, {id: q, human: {question: \"Go?\"}, required: true}]}", ""},
		{"a required group", "members: [{agent: a}, {agent: b}]\n    route: {model: fast}", "workflow: {steps: [{required: true, parallel: [{id: s, agent: a}]}]}", "a step with parallel allows only id and after"},
		{"async in a swarm", "HAND", "async: true", "async belongs to members of coordinator teams"},
		{"R-003-14 no leader to take a model from", "route: {model: fast}", "supervisor: {rules: [{id: r, when: \"true\", next: [c]}]}", `agent "c" has no model, and team "pick" has no leader`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := modesFile
			if strings.HasPrefix(tt.name, "R-003-14 no leader") {
				text = strings.Replace(text, "  pick:\n    members: [{agent: a}", "  pick:\n    members: [{agent: c}", 1)
			}
			if tt.at != "" {
				text = strings.Replace(text, tt.at, tt.value, 1)
			}
			for _, at := range []string{", MEMBER", ", LEAD", ", LIMITS", ", HAND", ", SWARM", ", OFF"} {
				text = strings.Replace(text, at, "", 1)
			}
			text = strings.Replace(text, "ENTRY", "a", 1)
			fs := faultsOf(t, text)
			switch {
			case tt.want == "" && len(fs) > 0:
				t.Errorf("faults: %v", fs)
			case tt.want != "" && (len(fs) != 1 || !strings.Contains(fs[0].Message, tt.want) || fs[0].Line == 0):
				t.Errorf("faults %v, want %q", fs, tt.want)
			}
		})
	}
}

// TestS_62_ModelOfTheLeader: the model that plans is a leader's: members without a model use it, a
// missing key names who needs it, and its cost counts.
func TestS_62_ModelOfTheLeader(t *testing.T) {
	const file = `version: v1
models: {m: {provider: openai, name: n}}
agents: {writer: {description: Writes., instructions: Write.}}
teams:
  desk: {members: [{agent: writer}], workflow: {plan: {model: m}}, limits: {max_cost: 1}}
`
	text := fmt.Sprint(faultsOf(t, file))
	for _, want := range []string{`the leader of team "desk" needs OPENAI_API_KEY`, `model "m" has no price, and max_cost of "desk" limits it`} {
		if !strings.Contains(text, want) {
			t.Errorf("faults %s, want %q", text, want)
		}
	}
	if strings.Contains(text, `agent "writer" has no model`) {
		t.Error(text)
	}
}
