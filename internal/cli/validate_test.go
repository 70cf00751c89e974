package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/internal/cli/console"
)

// validates runs validate -o json on a file with a text.
func validates(t *testing.T, text string) (v struct {
	validation
	Teams []map[string]any `json:"teams"`
}, err error,
) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = (&Shell{Console: console.Console{Out: &out, JSON: true}}).Validate([]string{file}, false)
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%s: %v", out.String(), err)
	}
	return v, err
}

// TestR_003_06_MembersAreShown: each member with its id, type, label and what the
// file says of it.
func TestR_003_06_MembersAreShown(t *testing.T) {
	v, err := validates(t, `version: v1
models: {big: {provider: openai, name: big, base_url: "http://127.0.0.1:1", api_key: sk-never-to-be-seen, price: {input: 1, output: 2}}}
agents:
  plain: {instructions: Work., description: Works.}
  own: {name: Owner, model: big, description: Has a model.}
  far: {grpc: {address: "127.0.0.1:1"}}
  peer: {a2a: {card: "http://127.0.0.1:1/.well-known/agent-card.json"}}
  parrot: {scripted: {steps: [{echo: true}]}}
teams:
  line: {name: Line, workflow: {steps: [{id: one, agent: parrot}]}}
  desk:
    members:
      - {agent: plain, id: first, role: chief, priority: -1, member_timeout: 90s, history_scope: ISOLATED}
      - {agent: own, description: Checks., enabled: false, stream_inner: true}
      - {agent: far, priority: 5}
      - {agent: peer, retry: {attempts: 2}}
      - {agent: line, async: true}
    coordinator: {leader: {model: big}}
`)
	if err != nil || !v.Valid || len(v.Teams) != 2 {
		t.Fatal(v, err)
	}
	type object = map[string]any
	seat := func(id, agent, kind, label string, more object) object {
		s := object{"id": id, "agent": agent, "type": kind, "label": label, "priority": 0.0, "enabled": true}
		for k, v := range more {
			s[k] = v
		}
		return s
	}
	for i, want := range []object{
		{"id": "desk", "mode": "coordinator", "members": []any{
			seat("far", "far", "grpc", "far", object{"priority": 5.0}),
			seat("own", "own", "model", "Owner", object{"description": "Checks.", "enabled": false, "parameters": object{"stream_inner": true}}),
			seat("peer", "peer", "a2a", "peer", object{"parameters": object{"retry": object{"attempts": 2.0}}}),
			seat("line", "line", "team", "Line", object{"parameters": object{"async": true}}),
			seat("first", "plain", "model", "first", object{"description": "Works.", "priority": -1.0, "parameters": object{
				"role": "chief", "member_timeout": "90s", "history_scope": "ISOLATED",
			}}),
		}},
		{"id": "line", "name": "Line", "mode": "workflow", "members": []any{seat("parrot", "parrot", "scripted", "parrot", nil)}},
	} {
		delete(v.Teams[i], "file")
		if diff := cmp.Diff(want, v.Teams[i]); diff != "" {
			t.Errorf("R-003-06 R-002-09 (-want +got):\n%s", diff)
		}
	}
	if text := fmt.Sprint(v); strings.Contains(text, "sk-") {
		t.Errorf("R-003-15: a key is shown: %s", text)
	}
}

// bounded is a file with a place for every bound: NAME is replaced by a value.
const bounded = `version: v1
models: {big: {provider: openai, name: big, base_url: "http://127.0.0.1:1", price: {input: 1, output: 2}}}
agents:
  a: {model: big}
  b: {model: big, limits: {max_turns: TURNS}}
MORE
teams:
  desk:
    members: [{agent: a, id: MEMBER, member_timeout: OWN}, {agent: b}EXTRA]
    coordinator: {leader: {model: LEADER}}
    limits: {max_delegations: DELEGATIONS, max_parallel: PARALLEL, max_steps: STEPS, max_depth: DEPTH, max_tokens: TOKENS, max_cost: COST, timeout: TIME, member_timeout: SHARE, retry: {attempts: ATTEMPTS}}
  hand:
    members: [{agent: a}, {agent: b}]
    swarm: {entry_member: ENTRY}
    limits: {max_handoffs: HANDOFFS, loop_window: WINDOW, loop_min_unique: UNIQUE, node_timeout: NODE}
`

// plainly are values that are good.
var plainly = map[string]string{
	"TURNS": "5", "MORE": "", "MEMBER": "first", "OWN": "10s", "EXTRA": "", "LEADER": "big", "DELEGATIONS": "5", "PARALLEL": "2", "STEPS": "5",
	"DEPTH": "4", "TOKENS": "100", "COST": "1", "TIME": "60s", "SHARE": "10s", "ATTEMPTS": "2", "ENTRY": "a", "HANDOFFS": "5", "WINDOW": "8",
	"UNIQUE": "3", "NODE": "1s",
}

// fill is the file with other values.
func fill(values map[string]string) string {
	text := bounded
	for key, value := range plainly {
		if v, ok := values[key]; ok {
			value = v
		}
		text = strings.ReplaceAll(text, key, value)
	}
	return text
}

// crowd are n more agents, as agents and as members.
func crowd(n int) map[string]string {
	var agents, members strings.Builder
	for i := range n {
		fmt.Fprintf(&agents, "  x%d: {model: big}\n", i)
		fmt.Fprintf(&members, ", {agent: x%d}", i)
	}
	return map[string]string{"MORE": agents.String(), "EXTRA": members.String()}
}

// TestS_40_BoundsOfATeam puts each bound of 002 and 004 at its limit and beyond: the
// file is taken, or it is refused at the right place with what to do.
func TestS_40_BoundsOfATeam(t *testing.T) {
	just := func(key, value string) map[string]string { return map[string]string{key: value} }
	for _, tt := range []struct {
		name string
		with map[string]string
		want string // "" is good
		at   string // what stands at the fault
	}{
		{"nothing special", nil, "", ""},
		{"R-002-5.2 C-10 max_delegations 1", just("DELEGATIONS", "1"), "", ""},
		{"R-002-5.2 C-10 max_delegations 0", just("DELEGATIONS", "0"), "max_delegations must be more than 0", "max_delegations: 0"},
		{"C-10 max_delegations -1", just("DELEGATIONS", "-1"), "max_delegations must be more than 0", "max_delegations: -1"},
		{"R-002-03 max_parallel 1", just("PARALLEL", "1"), "", ""},
		{"R-002-03 max_parallel 0", just("PARALLEL", "0"), "max_parallel must be", "max_parallel: 0"},
		{"C-07 max_steps 1", just("STEPS", "1"), "", ""},
		{"C-07 max_steps 0", just("STEPS", "0"), "max_steps must be", "max_steps: 0"},
		{"C-07 max_turns 1", just("TURNS", "1"), "", ""},
		{"C-07 max_turns 0", just("TURNS", "0"), "max_turns must be", "max_turns: 0"},
		{"C-07 max_depth 1", just("DEPTH", "1"), "", ""},
		{"C-07 max_depth 0", just("DEPTH", "0"), "max_depth must be", "max_depth: 0"},
		{"C-07 max_tokens 1", just("TOKENS", "1"), "", ""},
		{"C-07 max_tokens 0", just("TOKENS", "0"), "max_tokens must be", "max_tokens: 0"},
		{"C-07 max_cost a millionth", just("COST", "0.000001"), "", ""},
		{"C-07 max_cost 0", just("COST", "0"), "max_cost must be", "max_cost: 0"},
		{"R-002-05 timeout 1 ms", just("TIME", "1ms"), "", ""},
		{"R-002-05 timeout 0", just("TIME", "0s"), "timeout must be", "timeout: 0s"},
		{"R-002-06 member_timeout 1 ms", just("SHARE", "1ms"), "", ""},
		{"R-002-06 member_timeout 0", just("SHARE", "0s"), "member_timeout must be", "member_timeout: 0s"},
		{"R-002-06 a member's own, 0", just("OWN", "0s"), "member_timeout must be more than 0", "member_timeout: 0s"},
		{"R-002-32 attempts 1", just("ATTEMPTS", "1"), "", ""},
		{"R-002-32 attempts 0", just("ATTEMPTS", "0"), "attempts must be", "attempts: 0"},
		{"R-004-33 max_handoffs 0 is off", just("HANDOFFS", "0"), "", ""},
		{"R-004-33 max_handoffs -1", just("HANDOFFS", "-1"), "max_handoffs must not be negative", "max_handoffs: -1"},
		{"R-004-30 loop_window 0 is off", just("WINDOW", "0"), "", ""},
		{"R-004-30 loop_window -1", just("WINDOW", "-1"), "loop_window must not be negative", "loop_window: -1"},
		{"R-004-30 loop_min_unique 0 is off", just("UNIQUE", "0"), "", ""},
		{"R-004-30 loop_min_unique -1", just("UNIQUE", "-1"), "loop_min_unique must not be negative", "loop_min_unique: -1"},
		{"R-004-28 node_timeout 0 is off", just("NODE", "0s"), "", ""},
		{"R-004-28 node_timeout -1s", just("NODE", "-1s"), "node_timeout must not be negative", "node_timeout: -1s"},
		{"R-004-20 an entry member that is none", just("ENTRY", "z"), `no such member "z"`, "entry_member: z"},
		{"R-002-11 a model that is none", just("LEADER", "bgi"), `model "bgi", which is not defined`, "model: bgi"},
		{"an id of 63 characters", just("MEMBER", strings.Repeat("m", 63)), "", ""},
		{"an id of 64 characters", just("MEMBER", strings.Repeat("m", 64)), "cannot be the id of a member", "id: " + strings.Repeat("m", 64)},
		{"R-002-10 R-004-07 the same id twice", just("MEMBER", "b"), `team "desk" has member "b" twice`, "{agent: b}"},
		{"R-004-38 the id of the team", just("MEMBER", "desk"), `member "desk" has the name of its team`, ""},
		{"C-11 64 members", crowd(62), "", ""},
		{"C-11 65 members", crowd(63), "a team needs 1 to 64 members", ""},
	} {
		t.Run("S-40 "+tt.name, func(t *testing.T) {
			text := fill(tt.with)
			v, err := validates(t, text)
			if tt.want == "" {
				if err != nil || !v.Valid || len(v.Faults) != 0 {
					t.Fatal(v.Faults, err)
				}
				return
			}
			if !errors.Is(err, ErrInvalid) || v.Valid || len(v.Faults) != 1 || len(v.Teams) != 0 {
				t.Fatalf("%v, %v and %d teams", v.Faults, err, len(v.Teams))
			}
			f := v.Faults[0]
			if !strings.Contains(f.Message, tt.want) {
				t.Errorf("it says %q", f)
			}
			key, value, _ := strings.Cut(tt.at, ": ")
			line := strings.Split(text, "\n")[f.Line-1][f.Col-1:]
			if tt.at != "" && !strings.HasPrefix(line, tt.at) && (value == "" || !strings.HasPrefix(line, value)) {
				t.Errorf("it points at %q, not at %s", line, key)
			}
		})
	}
}

// TestDotEnvOfCommands: validate, run and test find the variables that dev finds.
func TestDotEnvOfCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		".env":           "WORD_OF_THE_DOT_ENV=hello\n",
		"team.yaml":      "version: v1\nagents: {a: {scripted: {steps: [{text: \"${WORD_OF_THE_DOT_ENV}\"}]}}}\nteams: {t: {workflow: {steps: [{id: say, agent: a}]}}}\n",
		"team_test.yaml": "version: v1\nscenarios: [{name: says it, send: x, want: {reply: {equals: hello}}}]\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	s := &Shell{Console: console.Console{Out: &out}}
	if err := s.Validate([]string{"team.yaml", "team_test.yaml"}, false); err != nil {
		t.Error(err, out.String())
	}
	if def, err := s.Definition(""); err != nil || def.Server.GetAgents()["a"].GetScripted().GetSteps()[0].GetText() != "hello" {
		t.Error(def, err)
	}
	if files, err := (&tester{}).load([]string{"team_test.yaml"}); err != nil || len(files) != 1 {
		t.Error(files, err)
	}
}
