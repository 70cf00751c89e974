package board

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// nested are teams with and without a board in each other, and every way to work.
const nested = `version: v1
models:
  top: {provider: openai, name: top, base_url: "${LLM}", api_key: k}
  mid: {provider: openai, name: mid, base_url: "${LLM}", api_key: k}
  low: {provider: openai, name: low, base_url: "${LLM}", api_key: k}
agents:
  low: {model: low, instructions: Work.}
teams:
  mid: {members: [{agent: low}], coordinator: {leader: {model: mid, instructions: Lead.}}}
  top: {board: true, members: [{agent: mid}], coordinator: {leader: {model: top, instructions: Lead.}}}
  rules: {board: true, members: [{agent: low}], supervisor: {rules: [{id: one, when: "turn == 1", next: [low]}, {id: end, when: "true", finish: last}]}}
  hive: {board: true, members: [{agent: low}], swarm: {entry_member: low}}
  all: {board: true, members: [{agent: low}], broadcast: {model: top, instructions: Join.}}
server:
  default_agent: top
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}]}
`

// TestR_003_18_WhoHasTools: who works in a team with a board has its tools, however it
// works; the members of a member have those of their own team only.
func TestR_003_18_WhoHasTools(t *testing.T) {
	t.Parallel()
	h := openFile(t, rig.Memory(t), fakellm.New(t), nested)
	delegate := func(to string) fakellm.Turn {
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_" + to, Arguments: `{"task":"x"}`}}}
	}
	for _, c := range []struct {
		team string
		has  map[string]bool // who is asked, and is offered the tools
	}{
		{"top", map[string]bool{"top": true, "mid": true, "low": false}},
		{"mid", map[string]bool{"mid": false, "low": false}},
		{"low", map[string]bool{"low": false}},
		{"rules", map[string]bool{"low": true}},
		{"hive", map[string]bool{"low": true}},
		{"all", map[string]bool{"low": true, "top": false}},
	} {
		seen := len(h.llm.Requests())
		if c.team == "top" {
			h.llm.Script("top", delegate("mid"), fakellm.Turn{Text: "done"})
		}
		if c.has["mid"] || c.team == "mid" {
			h.llm.Script("mid", delegate("low"), fakellm.Turn{Text: "done"})
		}
		if c.team == "all" {
			h.llm.Script("top", fakellm.Turn{Text: "done"})
		}
		h.llm.Script("low", fakellm.Turn{Text: "done"})
		if answer, _ := h.says(t, c.team, "go"); answer != "done" {
			t.Errorf("%s answers %q", c.team, answer)
		}
		got := map[string]bool{}
		for _, r := range h.llm.Requests()[seen:] {
			offered := 0
			for _, name := range tools {
				if slices.Contains(r.Tools, name) {
					offered++
				}
			}
			if offered != 0 && offered != len(tools) {
				t.Errorf("%s in %s is offered %v", r.Model, c.team, r.Tools)
			}
			got[r.Model] = offered > 0
		}
		if fmt.Sprint(got) != fmt.Sprint(c.has) {
			t.Errorf("in %s the tools have %v, want %v", c.team, got, c.has)
		}
	}
}

// TestR_003_19_WrongVerb: the paths of changes answer to POST alone.
func TestR_003_19_WrongVerb(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), fakellm.New(t))
	for _, path := range []string{"items/a:claim", "items/a:update", "items/a:complete", "items/a:fail", "items/a:cancel", "messages:ack"} {
		answer, err := h.Do(t.Context(), http.MethodGet, "/team/v1/teams/desk/board/"+path, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := answer.Body(); answer.Status != http.StatusMethodNotAllowed || err != nil {
			t.Errorf("GET %s: %d %s, %v", path, answer.Status, body, err)
		}
	}
}

// staged is a workflow whose first step can be held.
const staged = `version: v1
models: {slow: {provider: openai, name: slow, base_url: "${LLM}", api_key: k}}
agents:
  slow: {model: slow, instructions: Take your time.}
  parrot: {scripted: {steps: [{text: "parrot: {{input}}"}]}}
teams:
  desk:
    board: true
    workflow:
      steps:
        - {id: first, agent: slow}
        - {id: both, after: [first], parallel: [{id: left, agent: parrot}, {id: right, agent: parrot}]}
        - {id: ask, after: [first], human: {question: "Is it good?"}}
        - {id: last, agent: parrot, after: [both, ask]}
server:
  default_agent: desk
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}]}
`

// TestR_003_18_PlannedSteps: the steps of a workflow stand on the board before their
// turn comes.
func TestR_003_18_PlannedSteps(t *testing.T) {
	t.Parallel()
	h := openFile(t, rig.Memory(t), fakellm.New(t), staged)
	gate := fakellm.NewGate()
	h.llm.Script("slow", fakellm.Turn{Text: "ready", Gate: gate})
	g, err := rig.NewGRPC(h.Target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	req := rig.Text("desk", "m1", "go")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := g.Send(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	b := h.board(t, 1, "acme", "ann")
	stand := func() string {
		list, err := b.ListWorkItems(t.Context(), &teamv1.ListWorkItemsRequest{TeamId: "desk"})
		b.must(err)
		var words []string
		for _, it := range list.GetSteps() {
			needs := strings.Join(it.GetDependsOn(), " ")
			words = append(words, fmt.Sprint(it.GetTitle(), ":", strings.TrimPrefix(it.GetState().String(), "STATE_"), strings.ReplaceAll("["+needs+"]", resp.GetTask().GetId(), "")))
		}
		return strings.Join(words, " ")
	}
	const before = "first:IN_PROGRESS[] left:BLOCKED[~1] right:BLOCKED[~1] ask:BLOCKED[~1] last:BLOCKED[~left ~right ~ask]"
	until(t, before, func() bool { return stand() == before })
	gate.Open()
	const then = "first:COMPLETED[] left:COMPLETED[] right:COMPLETED[] ask:IN_PROGRESS[] last:BLOCKED[~2 ~3 ~4]"
	until(t, then, func() bool { return stand() == then })
}
