package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/internal/config/source"
)

var update = flag.Bool("update", false, "write the golden files anew")

// noEnv is an environment with nothing in it.
func noEnv(string) (string, bool) { return "", false }

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// faultsOf parses a text and returns what is wrong with it.
func faultsOf(t *testing.T, text string) source.Faults {
	t.Helper()
	_, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(text))
	if err == nil {
		return nil
	}
	var fs source.Faults
	if !errors.As(err, &fs) {
		t.Fatalf("error is no Faults: %v", err)
	}
	return fs
}

// TestBroken compares what is printed for examples/broken with the golden file.
func TestBroken(t *testing.T) {
	files, err := filepath.Glob("../../examples/broken/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d broken files: %v", len(files), err)
	}
	var out bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Loader{Env: noEnv}.Parse(filepath.Base(file), data)
		var fs source.Faults
		if !errors.As(err, &fs) {
			t.Errorf("%s: no faults, but %v", file, err)
			continue
		}
		for _, f := range fs {
			if f.Line == 0 || f.Col == 0 || f.Hint == "" {
				t.Errorf("%s: fault without place or hint: %v", file, f)
			}
		}
		fs.Print(&out)
		fmt.Fprintln(&out)
	}
	golden := "testdata/broken.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Error(diff)
	}
}

const desk = `version: v1
agents:
  writer: {scripted: {steps: [{echo: true}]}}
teams:
  desk:
    members: [{agent: writer}]
    supervisor: {rules: [{id: only, when: "turn == 1", next: [writer]}, {id: done, when: "true", finish: writer}]}
`

func TestFaultsSayWhatToDo(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a word of other YAML", strings.Replace(desk, "echo: true", "echo: yes", 1), "write true or false, without quotes"},
		{"a model where there is none", strings.Replace(desk, "scripted: {steps: [{echo: true}]}", "model: fast", 1), "no models are defined; add it under models"},
		{"a tool where there is none", strings.Replace(desk, "scripted: {steps: [{echo: true}]}", "model: m, tools: [web]", 1) +
			"models: {m: {provider: openai, name: n, base_url: 'http://x'}}\n", "no tools are defined; add it under tools"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if fs := faultsOf(t, tt.text); len(fs) != 1 || fs[0].Hint != tt.want {
				t.Errorf("faults %v, want the hint %q", fs, tt.want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a good file", desk, ""},
		{"more than one fault, by line", desk + "server: {http: nowhere, default_agent: dsk}\nextra: 1\n",
			`team.yaml:8:16 http must be HOST:PORT with a port up to 65535; team.yaml:8:40 default_agent is "dsk", which is not defined; team.yaml:9:1 unknown key "extra"`},
		{"a typo at the top hides what follows", strings.Replace(desk, "agents:", "agnets:", 1), `team.yaml:2:1 unknown key "agnets"`},
		{"a typo in a team hides what follows", strings.Replace(desk, "members:", "membres:", 1), `team.yaml:6:5 unknown key "membres"`},
		{"a wrong type hides its rule", desk + "server: {http: [a]}\n", `team.yaml:8:16 expected a single value, got a list`},
		{"no value", desk + "server:\n", `team.yaml:8:8 the value is missing`},
		{"numbers of fields are no keys", strings.Replace(desk, "version:", "1:", 1), `team.yaml:1:1 unknown key "1"`},
		{"camel case is no key", desk + "server: {defaultAgent: desk}\n", `team.yaml:8:10 unknown key "defaultAgent"`},
		{"other word for a mode", strings.Replace(desk, "supervisor: {rules: [{id: only, when: \"turn == 1\", next: [writer]}, {id: done, when: \"true\", finish: writer}]}",
			"team_lead: {leader: {model: fast}}", 1), `team.yaml:7:33 the leader of team "desk" uses model "fast", which is not defined`},
		{"id of an agent and a team", desk + "  writer:\n    members: [{agent: desk}]\n    supervisor: {rules: [{id: a, when: \"true\", next: [desk]}]}\n",
			`team.yaml:8:3 team "writer" has the id of an agent`},
		{"only a comment", "# nothing\n", "team.yaml:1:1 the file is empty"},
		{"a list at the top", "- a\n", "team.yaml:1:1 expected keys such as version, agents and teams, got a list"},
		{"not UTF-8", "version: v1\nagents: \xff\n", "team.yaml:2:9 the file is not UTF-8 text"},
		{"an open quote", "version: \"v1\nagents: {}\n", "team.yaml:1:10 this quote is never closed"},
		{"a bracket in text within brackets", strings.Replace(desk, "echo: true", "text: see [1", 1) + "x: [\n", "team.yaml:3:42 expected a comma or the closing bracket"},
		{"plain scalar in block", "version: v1\nagents:\n  a:\n    description: mind the [gap\n    scripted: {steps: [{echo: true}]}\n", ""},
		{"a limit of agents on a team", withLimits("s", "{max_turns: 5}"), `team.yaml:8:14 limit max_turns belongs to an agent with a model`},
		{"a limit of teams on an agent", withLimits("b", "{max_steps: 5}"), `team.yaml:3:33 limit max_steps belongs to a team`},
		{"C-10 money that is too little to be counted", withLimits("s", "{max_cost: 0.0000001}"), `team.yaml:8:24 max_cost is less than 0.000001 USD, the smallest amount that is counted`},
		{"C-10 money that is counted", withLimits("s", "{max_cost: 0.000001}"), ""},
		{"a skill without an id", strings.Replace(desk, "{scripted:", "{skills: [{id: a}, {name: Write}], scripted:", 1), `team.yaml:3:30 a skill needs an id`},
		{"two kinds in one scripted step", strings.Replace(desk, "echo: true", "echo: true, text: Hi, ask: Who", 1),
			`team.yaml:3:44 "text" cannot be combined with "echo"; team.yaml:3:54 "ask" cannot be combined with "echo"`},
		{"a step of an agent and people", flow("{id: a, agent: writer, human: {question: Why}}"), `team.yaml:5:26 a step needs exactly one of agent, human and parallel`},
		{"a task for people", flow("{id: a, task: x, human: {question: Why}}"), `team.yaml:5:26 task, repeat and retry are only allowed in a step with an agent`},
		{"a retry for people", flow("{id: a, retry: {attempts: 2}, human: {question: Why}}"), `team.yaml:5:26 task, repeat and retry are only allowed in a step with an agent`},
		{"a time for people", flow("{id: b, agent: writer}, {id: a, timeout: 2h, human: {question: Why}}"), ""},
		{"a step without time", flow("{id: a, agent: writer, timeout: 0s}"), `team.yaml:5:58 timeout must be more than 0`},
		{"a step that is never tried", flow("{id: a, agent: writer, retry: {attempts: 0}}"), `team.yaml:5:67 step "a": attempts is 0`},
		{"a group with a time", flow("{id: g, timeout: 5s, parallel: [{id: a, agent: writer}]}"), `team.yaml:5:26 a step with parallel allows only id and after`},
		{"a reaction of coordinators", strings.Replace(flow("{id: a, agent: writer}"), "{steps: [{id", "{on_member_error: REPORT_TO_LEADER, steps: [{id", 1),
			`team.yaml:5:35 a workflow's on_member_error must be fail or continue_partial`},
		{"partial results", strings.Replace(flow("{id: a, agent: writer}"), "{steps: [{id", "{on_member_error: CONTINUE_PARTIAL, steps: [{id", 1), ""},
		{"a member that streams", strings.Replace(desk, "{agent: writer}", "{agent: writer, stream_inner: true, inner_text: false}", 1), ""},
		{"a broadcast", broadcast("model: m"), ""},
		{"a broadcast without a model", broadcast("instructions: Be quick"), `team.yaml:7:16 broadcast needs a model`},
		{"a broadcast with an unknown model", broadcast("model: mm"), `team.yaml:7:24 the broadcast of team "all" uses model "mm", which is not defined`},
		{"a broadcast without members", strings.Replace(broadcast("model: m"), "[{agent: writer}]", "[]", 1),
			`team.yaml:6:5 a team needs 1 to 64 members`},
		{"a broadcast that is a workflow", broadcast("model: m") + "    workflow: {steps: [{id: a, agent: writer}]}\n",
			`team.yaml:6:5 a team needs exactly one of supervisor, workflow, coordinator, swarm, route, broadcast, loop and program`},
		{"S-62 a plan", planned("model: m, instructions: Be quick, max_steps: 6, max_revisions: 0, approve: {roles: [boss], expires: 24h}"), ""},
		{"S-62 a plan without a model", planned("instructions: Be quick"), `team.yaml:7:22 plan needs a model`},
		{"S-62 a plan with an unknown model", planned("model: mm"), `team.yaml:7:30 the leader of team "all" uses model "mm", which is not defined`},
		{"S-62 a plan with a typo", planned("model: m, approved: {}"), `team.yaml:7:33 unknown key "approved"`},
		{"S-62 too many revisions", planned("model: m, max_revisions: 11"), `team.yaml:7:48 max_revisions must be 0 to 10`},
		{"S-62 a plan without steps", planned("model: m, max_steps: 0"), `team.yaml:7:44 max_steps of a plan must be 1 to 256`},
		{"S-62 more steps than a run may have", planned("model: m, max_steps: 6") + "    limits: {max_steps: 5}\n",
			`team.yaml:7:44 plan: max_steps is 6, but a run has at most 5 steps (limits.max_steps of the team)`},
		{"S-62 people with no name", planned("model: m, approve: {roles: [The Boss], expires: 0s}"), `team.yaml:7:51 this cannot be a role; team.yaml:7:71 expires must be more than 0`},
		{"S-62 a plan without members", strings.Replace(planned("model: m"), "[{agent: writer}]", "[]", 1), `team.yaml:6:5 a team needs 1 to 64 members`},
		{"S-62 a plan with steps", strings.Replace(planned("model: m"), "workflow: {", "workflow: {steps: [{id: a, agent: writer}], ", 1),
			`team.yaml:7:15 a workflow needs exactly one of steps and plan`},
		{"S-62 a workflow without either", strings.Replace(planned("model: m"), "{plan: {model: m}}", "{on_member_error: FAIL}", 1),
			`team.yaml:7:15 a workflow needs exactly one of steps and plan`},
		{"S-62 a workflow of nothing", strings.Replace(planned("model: m"), "{plan: {model: m}}", "{steps: []}", 1),
			`team.yaml:7:15 a workflow needs exactly one of steps and plan`},
		{"S-62 a required member of a plan", strings.Replace(planned("model: m"), "{agent: writer}", "{agent: writer, required: true}", 1), ""},
		{"S-62 more required members than steps", strings.Replace(planned("model: m, max_steps: 1"), "[{agent: writer}]", "[{agent: writer, required: true}, {agent: writer, id: w2, required: true}]", 1),
			`team.yaml:6:82 plan: more members are required than the 1 steps that a plan may have (plan.max_steps)`},
		{"a refused step shows its expressions", flow("{id: a, agent: writer, when: inptu == 'x', human: {question: Why}}"),
			`team.yaml:5:26 a step needs exactly one of agent, human and parallel; team.yaml:5:55 step "a": no such variable "inptu"`},
		{"a quorum of nobody", flow("{id: a, agent: writer, join: QUORUM, quorum: 1}"), `team.yaml:5:55 step "a": has no effect, because no step comes before it`},
		{"a quorum of too many", flow("{id: a, agent: writer}, {id: b, agent: writer, after: [a], join: QUORUM, quorum: 2}"),
			`team.yaml:5:107 step "b": the quorum is 2, but it must be 1 to 1, the number of steps before this one`},
		{"a quorum without a join", flow("{id: a, agent: writer}, {id: b, agent: writer, after: [a], quorum: 1}"),
			`team.yaml:5:93 step "b": quorum needs join: QUORUM`},
		{"a quorum", flow("{id: a, agent: writer}, {id: b, agent: writer, after: [a], join: QUORUM, quorum: 1}"), ""},
		{"an unknown step before a group", flow("{id: g, after: [nope], parallel: [{id: a, agent: writer}, {id: b, agent: writer}]}"),
			`team.yaml:5:42 step "g": runs after "nope", which is not a step`},
		{"a step id that begins with a hyphen", flow("{id: -a, agent: writer}"), `team.yaml:5:31 this cannot be the id of a step`},
		{"a step id that is too long", flow("{id: " + strings.Repeat("a", 64) + ", agent: writer}"), `team.yaml:5:31 this cannot be the id of a step`},
		{"a step id that is just right", flow("{id: " + strings.Repeat("a", 63) + ", agent: writer}"), ""},
		{"bad variable", desk + "server: {http: \"${1}\"}\n", `team.yaml:8:16 ${1} is not a valid reference`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range faultsOf(t, tt.text) {
				got = append(got, f.Place()+" "+f.Message)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// withLimits is a team s and an agent b, one of them with limits.
func withLimits(id, limits string) string {
	own := map[string]string{id: ", limits: " + limits}
	text := `version: v1
models: {m: {provider: openai, name: n, price: {input: 1, output: 2}, base_url: "http://127.0.0.1/v1"}}
agents: {b: {model: m` + own["b"] + `}}
teams:
  s:
    members: [{agent: b}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [b]}, {id: end, when: "true", finish: b}]}
`
	if limits, ok := own["s"]; ok {
		text += "    " + strings.TrimPrefix(limits, ", ") + "\n"
	}
	return text
}

// flow is a workflow with one step.
func flow(step string) string {
	return `version: v1
agents:
  writer: {scripted: {steps: [{echo: true}]}}
teams:
  w: {workflow: {steps: [` + step + "]}}\n"
}

// broadcast returns a configuration with a broadcast team.
func broadcast(how string) string {
	return `version: v1
models: {m: {provider: openai, name: n, base_url: "http://127.0.0.1/v1"}}
agents: {writer: {scripted: {steps: [{echo: true}]}}}
teams:
  all:
    members: [{agent: writer}]
    broadcast: {` + how + "}\n"
}

// planned returns a configuration with a team whose model plans.
func planned(how string) string {
	return strings.Replace(broadcast(how), "broadcast: {"+how+"}", "workflow: {plan: {"+how+"}}", 1)
}

// TestLimitsAreRead has every limit where it is read; elsewhere each is refused.
func TestLimitsAreRead(t *testing.T) {
	team := []string{"max_steps: 1", "max_rounds: 1", "max_parallel: 1", "max_depth: 1", "timeout: 1s", "member_timeout: 1s", "retry: {attempts: 1}", "max_tokens: 1", "max_cost: 0.5"}
	agent := []string{"max_turns: 1", "max_rounds: 1", "timeout: 1s", "retry: {attempts: 1}", "max_tokens: 1", "max_cost: 0.5"}
	other := []string{
		"max_delegations: 1", "max_handoffs: 1", "node_timeout: 1s",
		"loop_window: 1", "loop_min_unique: 1",
	}
	for _, limit := range slices.Concat(team, agent, other) {
		for id, read := range map[string][]string{"s": team, "b": agent} {
			fs := faultsOf(t, withLimits(id, "{"+limit+"}"))
			good := slices.Contains(read, limit)
			if good && len(fs) != 0 || !good && (len(fs) != 1 || fs[0].Line == 0 || fs[0].Hint == "") {
				t.Errorf("%s of %s: %v", limit, id, fs)
			}
		}
	}
}

func TestHints(t *testing.T) {
	lead := func(team string) string {
		return "version: v1\nmodels: {m: {provider: openai, name: m, api_key: k}}\nagents: {writer: {scripted: {steps: [{echo: true}]}}}\nteams: {t: {" + team + "}}\n"
	}
	for _, tt := range []struct{ name, text, want string }{
		{"the id of a grpc agent", strings.Replace(desk, "scripted: {steps: [{echo: true}]}", `grpc: {address: "h:1", agent: newsroom}`, 1), `did you mean "agent_id"?`},
		{"two kinds in one scripted step", strings.Replace(desk, "echo: true", "echo: true, text: Hi", 1), "keep one of them, or make two steps"},
		{"an unknown step", flow("{id: a, agent: writer}, {id: draft, agent: writer, after: [drft]}"), "known here: a"},
		{"an unknown step of a group", flow("{id: group, after: [groop], parallel: [{id: a, agent: writer}]}, {id: z, agent: writer}"), "known here: z"},
		{"a step that is read too early", flow("{id: a, agent: writer, task: \"{{steps.b.text}}\"}, {id: b, agent: writer}"), "name it in after"},
		{"a limit of agents on a team", withLimits("s", "{max_turns: 5}"), "set it in the limits of the agent; a team has max_steps, max_rounds, max_parallel, max_depth, timeout, member_timeout, retry, max_tokens, max_cost, on_limit, ask_roles"},
		{"a budget that asks without a limit", withLimits("s", "{on_limit: ASK}"), "add max_tokens or max_cost to these limits"},
		{"a condition of an approval", desk + "tools: {t: {mcp: {url: \"http://127.0.0.1:1\"}, approve: {when: amount > 3}}}\n", "known here: arguments, tool"},
		{"a pattern of an approval", desk + "tools: {t: {mcp: {url: \"http://127.0.0.1:1\"}, approve: {tools: [\"a[\"]}}}\n", "write a name, in which * stands for any characters, such as pay_*"},
		{"a sticky owner without memory", lead("members: [{agent: writer}], memory: false, coordinator: {leader: {model: m}, sticky_owner: true}"), "remove memory: false, or sticky_owner"},
		{"a sticky owner beside required members", lead("members: [{agent: writer, required: true}], coordinator: {leader: {model: m}, sticky_owner: true}"), "remove sticky_owner, or required"},
		{"roles that are not asked", withLimits("s", "{max_tokens: 5, ask_roles: [boss]}"), "add on_limit: ask, or remove ask_roles"},
	} {
		fs := faultsOf(t, tt.text)
		if len(fs) != 1 || fs[0].Hint != tt.want {
			t.Errorf("%s: %v", tt.name, fs)
		}
	}
}

// TestCertificates has the file that tls.ca names: it is looked at before
// anything is built, where an agent that is served uses it.
func TestCertificates(t *testing.T) {
	const text = `version: v1
agents:
  far: {grpc: {address: "h:1", tls: {ca: ca.pem}}}
`
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	unused := text + "  near: {scripted: {steps: [{echo: true}]}}\nteams:\n  t: {workflow: {steps: [{id: a, agent: near}]}}\n"
	for _, tt := range []struct {
		name, text string
		files      fstest.MapFS
		want       string
	}{
		{"good", text, fstest.MapFS{"ca.pem": {Data: good}}, ""},
		{"missing", text, fstest.MapFS{}, `tls.ca "ca.pem": the file does not exist`},
		{"a folder", text, fstest.MapFS{"ca.pem/x": {}}, `tls.ca "ca.pem": cannot be read`},
		{"no certificate", text, fstest.MapFS{"ca.pem": {Data: []byte("hello")}}, `tls.ca "ca.pem": contains no certificate`},
		{"not served", unused, fstest.MapFS{}, ""},
	} {
		_, err := Loader{Env: noEnv, Files: tt.files}.Parse("team.yaml", []byte(tt.text))
		var fs source.Faults
		if err != nil && !errors.As(err, &fs) {
			t.Fatal(err)
		}
		switch {
		case tt.want == "" && err == nil:
		case len(fs) != 1 || fs[0].Message != tt.want || fs[0].Place() != "team.yaml:3:42" || fs[0].Hint == "":
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		key  string
		good []string
		bad  []string
	}{
		{"public_url", []string{"https://team.example", "http://team.example:8080", "https://team.example/teams", "http://[::1]:8080"},
			[]string{"team.example", "https://team.example/", "ftp://team.example", "https://", "https://team.example?a=b", "https://a:b@team.example", "https://team.example#x"}},
		{"public_grpc", []string{"team.example:443", "10.0.0.1:50051", "[::1]:50051"},
			[]string{"team.example", ":50051", "https://team.example:443", "team.example:0", "team.example:99999", "team.example:x"}},
		{"http", []string{":8080", "127.0.0.1:0", "[::1]:65535", "node_1:8080"}, []string{":", "8080", ":65536", ":99999", "127.0.0.1:x", "::1:8080"}},
		{"grpc", []string{":50051"}, []string{":65536", "127.0.0.1"}},
	} {
		for _, value := range tt.good {
			if fs := faultsOf(t, desk+"server: {"+tt.key+`: "`+value+"\"}\n"); len(fs) != 0 {
				t.Errorf("%s %s: %v", tt.key, value, fs)
			}
		}
		for _, value := range tt.bad {
			fs := faultsOf(t, desk+"server: {"+tt.key+`: "`+value+"\"}\n")
			if len(fs) != 1 || !strings.HasPrefix(fs[0].Message, tt.key+" must be ") || fs[0].Line != 8 || fs[0].Hint == "" {
				t.Errorf("%s %s: %v", tt.key, value, fs)
			}
		}
	}
}

func TestManyFaultsAreCut(t *testing.T) {
	text := "version: v1\nagents:\n"
	for i := range 30 {
		text += fmt.Sprintf("  a%d: {modle: x}\n", i)
	}
	fs := faultsOf(t, text)
	if len(fs) != 30 {
		t.Fatalf("%d faults, want 30", len(fs))
	}
	if !strings.HasSuffix(fs.Error(), "... and 10 more") {
		t.Errorf("the last line is no count: %s", fs.Error())
	}
}

// TestKnownKeysAreComplete: the hint of an unknown key that resembles none names all that there are.
func TestKnownKeysAreComplete(t *testing.T) {
	fs := faultsOf(t, "version: v1\nagents: {w: {scripted: {steps: [{echo: true}]}}}\nteams: {t: {xyzzy: 1, workflow: {steps: [{id: a, agent: w}]}}}\n")
	if text := fs.Error(); strings.Contains(fs[0].Hint, "…") || !strings.Contains(text, "broadcast") || !strings.Contains(text, "workflow") {
		t.Error(text)
	}
	fs = faultsOf(t, "version: v1\nmodels: {m: {provider: openai, xyzzy: 1}}\nagents: {w: {scripted: {steps: [{echo: true}]}}}\n")
	if len(fs) == 0 || strings.Contains(fs[0].Hint, "…") || !strings.Contains(fs[0].Hint, "api_key, base_url") {
		t.Error(fs)
	}
}

func TestFaultsAsJSON(t *testing.T) {
	b, err := json.Marshal(faultsOf(t, "version: v3\nagents: {a: {scripted: {steps: [{echo: true}]}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"file":"team.yaml","line":1,"col":10,"message":"version \"v3\" is unknown","hint":"write version: v1","source":"version: v3"}]`
	if string(b) != want {
		t.Errorf("got %s", b)
	}
}

const hosted = `version: v1
models:
  fast: {provider: openai, name: small}
  far: {provider: openai, name: big, api_key: "${FAR_KEY}"}
agents:
  writer: {model: fast}
  idle: {model: far}
teams:
  desk:
    members: [{agent: writer}]
    supervisor: {rules: [{id: only, when: "true", next: [writer]}]}
`

func TestVariables(t *testing.T) {
	t.Run("a key is demanded only where a used agent needs it", func(t *testing.T) {
		fs := faultsOf(t, hosted)
		if len(fs) != 1 || fs[0].Message != `agent "writer" needs OPENAI_API_KEY, which is not set` || fs[0].Line != 3 {
			t.Errorf("got %v", fs)
		}
	})
	t.Run("the environment fills in", func(t *testing.T) {
		c, err := Loader{Env: env(map[string]string{"OPENAI_API_KEY": "k"})}.Parse("team.yaml", []byte(hosted))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Secret(c.Server.GetModels()["fast"].GetApiKey()).Reveal(); got != "k" {
			t.Errorf("key is %q", got)
		}
		if diff := cmp.Diff(map[string]bool{"desk": true, "writer": true}, maps.Clone(c.Used)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("an endpoint of one's own needs no key and gets none", func(t *testing.T) {
		text := strings.Replace(hosted, "name: small", `name: small, base_url: "http://127.0.0.1:11434/v1"`, 1)
		c, err := Loader{Env: env(map[string]string{"OPENAI_API_KEY": "k"})}.Parse("team.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Server.GetModels()["fast"].GetApiKey(); got != "" {
			t.Errorf("the key went to another address: %q", got)
		}
	})
	t.Run("a value that is not UTF-8 is a fault where it is needed", func(t *testing.T) {
		const text = `version: v1
agents: {a: {description: "%s", scripted: {steps: [{echo: true}]}}}
`
		l := Loader{Env: env(map[string]string{"NAME": "hush\xe4"}), Files: fstest.MapFS{"x.txt": {Data: []byte("hush\xe4")}}}
		for value, name := range map[string]string{"${NAME}": "NAME", "${NAME:-x}": "NAME", "${file:x.txt}": "${file:x.txt}"} {
			_, err := l.Parse("team.yaml", fmt.Appendf(nil, text, value))
			var fs source.Faults
			if !errors.As(err, &fs) || len(fs) != 1 || !strings.HasSuffix(fs[0].Message, "needs "+name+", which is not UTF-8") || fs[0].Line != 2 || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: %v", value, err)
			}
		}
	})
	t.Run("defaults, files and what is written out", func(t *testing.T) {
		files := fstest.MapFS{
			"d/team.yaml": {Data: []byte(`version: v1
agents:
  a: {description: "${NAME:-nobody} $${NAME} ${file:secret.txt}", scripted: {steps: [{delay_ms: "${MS:-7}"}, {echo: "${ECHO:-true}"}]}}
`)},
			"d/secret.txt": {Data: []byte("hush\n")},
		}
		c, err := Loader{Env: noEnv, Files: files}.Load("d")
		if err != nil {
			t.Fatal(err)
		}
		a := c.Server.GetAgents()["a"]
		if got := a.GetDescription(); got != "nobody ${NAME} hush" {
			t.Errorf("description is %q", got)
		}
		if got := a.GetScripted().GetSteps()[0].GetDelayMs(); got != 7 {
			t.Errorf("delay is %d", got)
		}
	})
}

// TestKeysAsWritten: faults show keys as they are written, also such as are not valid ids.
func TestKeysAsWritten(t *testing.T) {
	for _, key := range []string{"Head Writer", "writer -> critic", "writer{{ x", "hush!", "system_prompt", "gpt-4o"} {
		for _, section := range []string{"agents", "models", "teams", "tools"} {
			fs := faultsOf(t, fmt.Sprintf("version: v1\n%s:\n  %s: {description: x}\n", section, key))
			if len(fs) == 0 || !strings.Contains(fs.Error(), key) || strings.Contains(fs.Error(), "…") {
				t.Errorf("%s, %s: %v", section, key, fs)
			}
		}
	}
}

func TestReferenceWithoutEnd(t *testing.T) {
	const text = `version: v1
agents:
  writer: {description: "%s", scripted: {steps: [{echo: true}]}}
`
	for _, value := range []string{"${OPEN", "a ${A:-b} ${C", "${file:x"} {
		fs := faultsOf(t, fmt.Sprintf(text, value))
		if len(fs) != 1 || fs[0].Message != "unterminated variable reference" || fs[0].Line != 3 || fs[0].Col != 25 || fs[0].Hint != "close it with }; write $${ for a literal ${" {
			t.Errorf("%s: got %v", value, fs)
		}
	}
	c, err := Loader{Env: noEnv}.Parse("team.yaml", fmt.Appendf(nil, text, "$${OPEN $${A} $$${B}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Server.GetAgents()["writer"].GetDescription(); got != "${OPEN ${A} $${B}" {
		t.Errorf("description is %q", got)
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "the file does not exist",
		dir:                             "the folder contains no team.yaml",
	} {
		_, err := Loader{}.Load(path)
		var fs source.Faults
		if !errors.As(err, &fs) || len(fs) != 1 || fs[0].Message != want || fs[0].Hint == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzP17_Parse(f *testing.F) {
	f.Add([]byte(desk))
	f.Add([]byte(hosted))
	files, _ := filepath.Glob("../../examples/broken/*.yaml")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	l := Loader{Env: noEnv, Files: fstest.MapFS{}}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := l.Parse("team.yaml", data)
		var fs source.Faults
		if err != nil && !errors.As(err, &fs) {
			t.Fatalf("error is no Faults: %v", err)
		}
		if err == nil && c.Server.GetVersion() != "v1" {
			t.Fatal("accepted without a version")
		}
		_ = fs.Error()
	})
}

func TestStoresInTheFile(t *testing.T) {
	file := func(server string) string {
		return "version: v1\nagents: {a: {scripted: {steps: [{echo: true}]}}}\nserver: {" + server + "}\n"
	}
	for _, good := range []string{
		`store: "memory:"`, "store: sqlite:team.db", `store: "postgres://ann@h/d", store_listen: "postgres://ann@h:5433/d", retention: 24h`,
		`store: "${DB_URL:-sqlite:x.db}"`, "push: {enabled: false}", "push: {}",
		`store: "postgres://ann@h/d", engine: {temporal: {address: "h:7233", tls: {}, api_key: k}}`,
	} {
		if fs := faultsOf(t, file(good)); len(fs) > 0 {
			t.Errorf("%s: %v", good, fs)
		}
	}
	for bad, message := range map[string]string{
		"store: team.db": "unknown store", `store: "sqlite:"`: "unknown store", `store: "mysql://h/d"`: "unknown store",
		"retention: 0s": "retention must be more than 0", `store_listen: "postgres://h/d"`: "store_listen is only allowed with a PostgreSQL store",
		`store: "postgres://h/d", store_listen: h`: "store_listen must be postgres://",
		`engine: {temporal: {}}`:                   "address must be HOST:PORT", `engine: {temporal: {address: h}}`: "address must be HOST:PORT",
		`engine: {temporal: {address: "h:1", namespace: "a b"}}`:    "namespace must be 1 to 255 characters",
		`engine: {temporal: {address: "h:1", task_queue: "a b"}}`:   "task_queue must be 1 to 255 characters",
		`engine: {temporal: {address: "h:1", tls: {ca: none.pem}}}`: "the file does not exist",
		`store: "${DB_URL}"`: "the server needs DB_URL, which is not set",
	} {
		if fs := faultsOf(t, file(bad)); len(fs) != 1 || !strings.Contains(fs[0].Message, message) || fs[0].Hint == "" {
			t.Errorf("%s: %v", bad, fs)
		}
	}
	fs := faultsOf(t, file(`retention: 0s, store: "postgres://ann:hush@h/d"`))
	if len(fs) != 1 || strings.Contains(fs.Error(), "hush") {
		t.Errorf("no fault, or the password is shown: %s", fs.Error())
	}
}

// TestLineBreaks: a carriage return ends a line in YAML, and so do characters of Unicode.
func TestLineBreaks(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r", "\u0085", "\u2028", "\u2029"} {
		text := strings.ReplaceAll("version: v1\nagents:\n  a: {scripted: {steps: [{echo: true}]}}\nteams:\n  t:\n    members: [{agent: a, history_scope: nobody}]\n    swarm: {entry_member: a}\n", "\n", end)
		if fs := faultsOf(t, text); len(fs) != 1 || fs[0].Line != 6 || !strings.Contains(fs[0].Source, "history_scope") {
			t.Errorf("%q: %v", end, fs)
		}
	}
}
