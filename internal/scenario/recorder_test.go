package scenario_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// recordFiles has teams whose agents work at the same time, in an order that differs from that of a test.
const (
	recordTeam = `version: v1
models: {m: {provider: openai, name: m, api_key: k}, votes: {provider: openai, name: votes, api_key: k}, cheap: {provider: openai, name: cheap, api_key: k, fallback: [m]}}
tools: {shop: {mcp: {command: [/no/such/program], prefix: s_}, approve: {tools: [s_buy]}}}
agents:
  reader: {description: Reads., model: m}
  voter: {description: Votes., model: votes}
  clerk: {description: Sells., model: cheap, tools: [shop]}
teams:
  race: {workflow: {steps: [{id: fast, agent: reader, task: be fast}, {id: slow, agent: reader, task: be slow, after: []}, {id: end, agent: reader, task: be done, after: [fast, slow], join: any}]}}
  twice: {workflow: {steps: [{id: both, parallel: [{id: one, agent: reader, task: do the first}, {id: two, agent: reader, task: do the second}]}, {id: last, agent: clerk}]}}
  same: {workflow: {steps: [{id: both, parallel: [{id: one, agent: voter, task: vote}, {id: two, agent: voter, task: vote}]}]}}
  near: {workflow: {steps: [{id: both, parallel: [{id: one, agent: reader, task: RND tides}, {id: two, agent: reader, task: RND tides of Brest}]}]}}
  led: {members: [reader], coordinator: {leader: clerk}}
  boarded: {members: [reader], board: true, coordinator: {model: m}}
`
	recordTest = `version: v1
models:
  votes: {recorded: true, agents: {voter: [{delay_ms: 30, text: "yes"}, {delay_ms: 40, text: "no"}]}}
  m:
    agents:
      reader:
        - {when: 'input.contains("first")', delay_ms: 40, text: "the first, late"}
        - {when: 'input.contains("second")', text: the second}
        - {when: 'input.contains("Brest")', delay_ms: 40, text: of Brest}
        - {when: 'input.contains("RND")', delay_ms: 30, text: of all}
        - {when: 'input.contains("slow")', delay_ms: 9000, text: slow}
        - {text: fast}
      boarded: [{text: nothing to do}]
      clerk: [{text: "from the fallback"}]
  cheap:
    agents:
      clerk:
        - {when: 'input.contains("buy")&& size(results) == 0', tool_calls: [{name: s_buy, arguments: {n: 1}}]}
        - {when: 'input.contains("buy")', text: "bought: {{results}}"}
        - {error: {status: 503}}
      led:
        - {when: size(results) == 0, tool_calls: [{name: s_buy, arguments: {n: 2}}]}
        - {text: "{{results}}"}
tools: {shop: {calls: [{name: buy, text: "{{input}} ${HOME}", files: [{raw: aGVsbG8=, mediaType: text/plain, filename: a.txt}]}]}}
scenarios:
  - {name: race, team: race, send: go, want: {reply: {contains: [fast]}}}
  - {name: twice, team: twice, send: go}
  - {name: same, team: same, send: vote}
  - {name: near, team: near, send: go}
  - {name: led, team: led, send: go, answers: [approve]}
  - {name: clerk, team: clerk, send: buy it, answers: ['edit: {"n": 7}']}
  - {name: boarded, team: boarded, send: go}
`
)

// TestRecord_Scenarios: what was played is recorded and played again, with other scripts gone. One that cannot be
// recorded is refused with the reason.
func TestRecord_Scenarios(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"team.yaml": recordTeam, "team_test.yaml": recordTest} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := scenario.Load(scenario.Loader{}, filepath.Join(dir, "team_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	def, err := config.Loader{StandIns: &config.StandIns{}}.Load(filepath.Join(dir, "team.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r, err := s.Play(t.Context(), nil)
			if err != nil || len(r.Failures) > 0 {
				t.Fatal(err, r)
			}
			task := scenario.Recorded{Task: r.Runs[0].Task, Team: s.Team, Message: r.Runs[0].Events[0].GetAccepted().GetMessage(), Events: r.Runs[0].Events[1:]}
			data, err := scenario.Record(def, "team.yaml", nil, task)
			if s.Name == "boarded" {
				if err == nil || !strings.Contains(err.Error(), "has a board") {
					t.Errorf("a team with a board: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, s.Name+"_test.yaml")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := scenario.Load(scenario.Loader{}, path)
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			if r, err = again.Scenarios[0].Play(t.Context(), nil); err != nil || len(r.Failures) > 0 {
				t.Errorf("%v %+v\n%s", err, r.Failures, data)
			}
			if s.Name == "same" != strings.Contains(string(data), "exchanged at random: reply is not checked") || s.Name == "same" && strings.Contains(string(data), "equals:") {
				t.Errorf("answers that may be exchanged:\n%s", data)
			}
			if near := string(data); s.Name == "near" && (!strings.Contains(near, "of Brest") || strings.Index(near, "text: of Brest") > strings.Index(near, "text: of all")) {
				t.Errorf("the answer to the shorter text is first:\n%s", data)
			}
			refused(t, def, task)
		})
	}
}

// refused changes the record of a task to what cannot be played again.
func refused(t *testing.T, def *config.Config, task scenario.Recorded) {
	t.Helper()
	end := len(task.Events) - 1
	with := func(ev *teamv1.Event) []*teamv1.Event {
		return append(append([]*teamv1.Event{}, task.Events[:end]...), ev, task.Events[end])
	}
	canceled := proto.CloneOf(task.Events[end])
	canceled.GetEnded().Outcome = teamv1.Outcome_OUTCOME_CANCELED
	late := proto.CloneOf(task.Events[end])
	late.GetEnded().Outcome = teamv1.Outcome_OUTCOME_TIMED_OUT
	for why, events := range map[string][]*teamv1.Event{
		"has not ended":            task.Events[:end],
		"was canceled":             append(task.Events[:end:end], canceled),
		"the time of":              append(task.Events[:end:end], late),
		"received a message":       with(&teamv1.Event{Kind: &teamv1.Event_Received{Received: &teamv1.Received{}}}),
		"works on its own":         with(&teamv1.Event{Kind: &teamv1.Event_Spawned{Spawned: &teamv1.Spawned{}}}),
		"what became of a call":    with(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Kind: teamv1.Asked_KIND_OUTCOME}}}),
		"was not answered in time": with(&teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: "question"}}}),
	} {
		changed := task
		changed.Events = events
		if _, err := scenario.Record(def, "team.yaml", nil, changed); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
}

// TestRecord_Secrets: a secret is found before it is encoded, in texts, files, data and arguments.
func TestRecord_Secrets(t *testing.T) {
	t.Parallel()
	def, err := config.Loader{StandIns: &config.StandIns{}}.Parse("team.yaml", []byte("version: v1\nmodels: {m: {provider: openai, name: m, api_key: k}}\nagents: {reader: {description: Reads., model: m}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const one, lines = `sk-pass'word"1234`, "-----BEGIN\n  abcdefgh\n-----END"
	data := func(text string) *a2av1.Part {
		return &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(text)}})}}
	}
	ended := &teamv1.Event{Seq: 2, Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")}}}}
	for name, tt := range map[string]struct {
		part  *a2av1.Part
		holds bool
	}{
		"a text":                  {agent.TextParts("it is " + one + "\nand more")[0], true},
		"a text with other lines": {agent.TextParts("it is\n" + strings.ReplaceAll(lines, "\n", "\n    "))[0], true},
		"a text with JSON":        {agent.TextParts(`{"key": "sk-pass'word\"1234"}`)[0], true},
		"a file":                  {&a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte("x\n" + one)}, MediaType: "text/plain"}, true},
		"data":                    {data("my " + lines), true},
		"nothing":                 {data("my -----BEGIN sk-pass"), false},
	} {
		task := scenario.Recorded{Task: "t", Team: "reader", Message: &a2av1.Message{Parts: []*a2av1.Part{tt.part}}, Events: []*teamv1.Event{ended}}
		data, err := scenario.Record(def, "team.yaml", []secret.Secret{secret.New(one), secret.New(lines), secret.New("data"), secret.New("         ")}, task)
		if tt.holds != (err != nil && strings.Contains(err.Error(), "hold a secret")) || !tt.holds && err != nil {
			t.Errorf("%s: %v\n%s", name, err, data)
		}
	}
}
