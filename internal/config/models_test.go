package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/config/source"
)

// crew is a file with a model and an agent that uses it.
func crew(models string) string {
	return "version: v1\nmodels:\n" + models + `
agents:
  writer: {model: fast}
  idle: {model: spare}
teams:
  desk: {members: [{agent: writer}], supervisor: {rules: [{id: only, when: "true", next: [writer]}]}}
`
}

func TestProviders(t *testing.T) {
	for provider, variable := range map[string]string{"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"} {
		t.Run(provider, func(t *testing.T) {
			text := strings.ReplaceAll(crew(fmt.Sprintf("  fast: {provider: %s, name: n}\n  spare: {provider: %s, name: n}\n", provider, provider)), "\n\n", "\n")
			fs := faultsOf(t, text)
			if want := fmt.Sprintf(`agent "writer" needs %s, which is not set`, variable); len(fs) != 1 || fs[0].Message != want {
				t.Errorf("faults %v, want %s", fs, want)
			}
			c, err := Loader{Env: env(map[string]string{variable: "k-1"})}.Parse("team.yaml", []byte(text))
			if err != nil || c.Secret(c.Server.GetModels()["fast"].GetApiKey()).Reveal() != "k-1" {
				t.Errorf("R-003-15: %v", err)
			}
			own := strings.Replace(text, "name: n}", `name: n, base_url: "http://127.0.0.1:1"}`, 1)
			c, err = Loader{Env: env(map[string]string{variable: "k-1"})}.Parse("team.yaml", []byte(own))
			if err != nil || c.Server.GetModels()["fast"].GetApiKey() != "" {
				t.Errorf("the key went to another address: %v", err)
			}
			fs = faultsOf(t, strings.Replace(text, "fast: {provider: "+provider+", name: n}", "fast: {provider: "+provider+", file: x, base_url: \"http://x\", max_output_tokens: -1}", 1))
			for _, want := range []string{"this model needs a name", "file belongs to scripted models", "max_output_tokens must be 1 or more"} {
				if !slices.ContainsFunc(fs, func(f source.Fault) bool { return strings.Contains(f.Message, want) && f.Line == 3 }) {
					t.Errorf("no %q in %v", want, fs)
				}
			}
		})
	}
}

func TestFallbackFaults(t *testing.T) {
	for _, c := range []struct{ fast, says string }{
		{"{provider: openai, name: n, base_url: 'http://x', fallback: [spar]}", `the fallback of model "fast" uses model "spar", which is not defined`},
		{"{provider: openai, name: n, base_url: 'http://x', fallback: [fast]}", `model "fast" falls back to "fast" twice`},
		{"{provider: openai, name: n, base_url: 'http://x', fallback: [spare, spare]}", `model "fast" falls back to "spare" twice`},
		{"{provider: openai, name: n, base_url: 'http://x', fallback: [" + strings.Repeat("spare, ", 9) + "]}", "fallback has more than 8 models"},
		{"{provider: scripted, file: s.yaml, max_output_tokens: 5}", "a scripted model allows only file, price, fallback and accepts"},
		{"{provider: anthropic, name: n, base_url: 'http://x', accepts: [image/png, video/mp4]}", `models of the provider "anthropic" take no files of type video/mp4`},
		{"{provider: openai, name: n, base_url: 'http://x', accepts: [images]}", "this is not a media type"},
		{"{provider: openai, name: n, base_url: 'http://x', context_window: -1}", "context_window must be 1 or more"},
	} {
		fs := faultsOf(t, crew("  fast: "+c.fast+"\n  spare: {provider: openai, name: n, base_url: 'http://y'}"))
		if !slices.ContainsFunc(fs, func(f source.Fault) bool { return f.Message == c.says && f.Line == 3 && f.Hint != "" }) {
			t.Errorf("%s: %v", c.says, fs)
		}
	}
	// A key is demanded of a model that stands in for one that is used.
	fs := faultsOf(t, crew("  fast: {provider: openai, name: n, base_url: 'http://x', fallback: [spare]}\n  spare: {provider: gemini, name: n}"))
	if len(fs) != 1 || fs[0].Message != `agent "writer" needs GEMINI_API_KEY, which is not set` || fs[0].Line != 4 {
		t.Error(fs)
	}
}

func TestToolFaults(t *testing.T) {
	const base = `version: v1
models: {m: {provider: openai, name: n, base_url: "http://x"}}
tools: {web: TOOL}
agents: {writer: AGENT}
`
	const tool, agent = `{mcp: {command: [x], allow: [fetch]}}`, "{model: m, tools: [web]}"
	file := func(a, b string) string { return strings.NewReplacer("TOOL", a, "AGENT", b).Replace(base) }
	if fs := faultsOf(t, file(tool, agent)); len(fs) > 0 {
		t.Fatal(fs)
	}
	for _, c := range []struct {
		tool, agent, says string
		line              int
	}{
		{"{}", agent, "a tool needs mcp", 3},
		{"{mcp: {allow: [x]}}", agent, "an MCP server needs exactly one of command and url", 3},
		{`{mcp: {command: [x], url: "http://x"}}`, agent, "an MCP server needs exactly one of command and url", 3},
		{`{mcp: {command: [x], bearer: t}}`, agent, "bearer is only allowed with url", 3},
		{`{mcp: {url: "http://x", env: {A: b}}}`, agent, "env is only allowed with command", 3},
		{`{mcp: {url: "ftp://x"}}`, agent, "url must be an http or https address", 3},
		{`{mcp: {url: "http://ann:pw@x/mcp"}}`, agent, "url must have no user, query or fragment", 3},
		{`{mcp: {url: "http://x/mcp?key=k"}}`, agent, "url must have no user, query or fragment", 3},
		{`{mcp: {command: [""]}}`, agent, "command does not name a program", 3},
		{`{mcp: {command: [x], allow: [fetch], effects: {search: SAFE}}}`, agent, `tool "web" declares effects of "search", but does not allow it`, 3},
		{`{mcp: {command: [x], effects: {"*": SURE}}}`, agent, `unknown value "SURE"`, 3},
		{`{mcp: {url: "http://x", elicit: {keep_open: 100ms}}}`, agent, "keep_open must be 1s to 24h", 3},
		{`{mcp: {url: "http://x", elicit: {keep_open: 25h}}}`, agent, "keep_open must be 1s to 24h", 3},
		{`{mcp: {url: "http://x", elicit: {expires: 0s}}}`, agent, "expires must be more than 0", 3},
		{`{mcp: {url: "http://x", elicit: {roles: [A]}}}`, agent, "this cannot be a role", 3},
		{`{mcp: {url: "http://x", elicit: {ask: true}}}`, agent, `unknown key`, 3},
		{`{mcp: {url: "http://x", bearer: "${TOKEN}"}}`, agent, `agent "writer" needs TOKEN, which is not set`, 3},
		{tool, "{model: m, tools: [wbe]}", `agent "writer" uses tool "wbe", which is not defined`, 4},
		{tool, "{model: m, tools: [web, web]}", `agent "writer" has tool "web" twice`, 4},
		{tool, "{scripted: {steps: [{echo: true}]}, tools: [web]}", "instructions, tools and limits are only allowed for an agent with a model", 4},
		{tool, "{scripted: {steps: [{echo: true}]}, skills: [{id: a, instructions: Think.}]}", "instructions of a skill belong to an agent with a model", 4},
	} {
		fs := faultsOf(t, file(c.tool, c.agent))
		if len(fs) != 1 || !strings.HasPrefix(fs[0].Message, c.says) || fs[0].Line != c.line || fs[0].Hint == "" {
			t.Errorf("%s: %v", c.says, fs)
		}
	}
	lead := file(tool, "{model: m}") + "teams: {t: {members: [{agent: writer}], coordinator: {leader: {model: m, tools: [wbe]}}}}\n"
	if fs := faultsOf(t, lead); len(fs) != 1 || fs[0].Message != `the leader of team "t" uses tool "wbe", which is not defined` || fs[0].Line != 5 {
		t.Error(fs)
	}
	unused := file(`{mcp: {url: "http://x", bearer: "${TOKEN}"}}`, "{model: m}")
	if fs := faultsOf(t, unused); len(fs) > 0 {
		t.Error("a tool that nobody uses needs something: ", fs)
	}
}

// TestDefinitionOfToolsAndFallbacks: a run is tied to what it may answer with and
// call, and not to where that is or to secrets.
func TestDefinitionOfToolsAndFallbacks(t *testing.T) {
	const text = `version: v1
models:
  fast: {provider: anthropic, name: n, api_key: "${KEY}", max_output_tokens: 100, context_window: 9000, accepts: [text/plain], settings: {temperature: 0.5, headers: {X-Team: "${KEY}"}}, fallback: [spare]}
  spare: {provider: scripted, file: s.yaml}
  other: {provider: gemini, name: n, api_key: "${KEY}"}
tools:
  web: {mcp: {command: [program-secret, "${KEY}"], env: {TOKEN: "${KEY}"}, allow: [fetch], effects: {fetch: KEYED}, elicit: {roles: [legal]}}}
  far: {mcp: {url: "http://address-secret/mcp", headers: {X-Key: "${KEY}"}, prefix: far_, resources: false, results: BOTH, timeouts: {call: 3s}}}
agents:
  writer: {model: fast, tools: [web]}
teams:
  lead: {members: [{agent: writer}], coordinator: {leader: {model: fast, tools: [far]}}}
`
	c := defined(t, text, script)
	d := definition(t, c, "lead")
	for _, secret := range []string{key, "-secret"} {
		if strings.Contains(string(d.Body), secret) {
			t.Errorf("%s is in the definition", secret)
		}
	}
	r, err := c.Restore(d.Body)
	if err != nil {
		t.Fatal(err)
	}
	fast, web, far := r.Server.GetModels()["fast"], r.Server.GetTools()["web"].GetMcp(), r.Server.GetTools()["far"].GetMcp()
	if r.Secret(fast.GetApiKey()).Reveal() != key || !proto.Equal(fast, c.Server.GetModels()["fast"]) || r.Secret(fast.GetSettings().GetHeaders()["X-Team"]).Reveal() != key || r.Scripts["spare"] == nil || r.Server.GetModels()["other"] != nil {
		t.Errorf("models %v", r.Server.GetModels())
	}
	if len(web.GetCommand()) != 2 || r.Secret(web.GetEnv()["TOKEN"]).Reveal() != key || len(web.GetAllow()) != 1 || len(web.GetEffects()) != 1 || far.GetUrl() == "" || r.Secret(far.GetHeaders()["X-Key"]).Reveal() != key || !proto.Equal(far, c.Server.GetTools()["far"].GetMcp()) {
		t.Errorf("tools %v", r.Server.GetTools())
	}
	for _, change := range []struct{ from, to string }{
		{"allow: [fetch]", "allow: [fetch, search]"}, {"fetch: KEYED", "fetch: SAFE"}, {"prefix: far_", "prefix: near_"}, {"results: BOTH", "results: TEXT"}, {"resources: false", "resources: true"}, {"max_output_tokens: 100", "max_output_tokens: 99"}, {"temperature: 0.5", "temperature: 0.6"}, {"context_window: 9000", "context_window: 8000"}, {", fallback: [spare]", ""},
	} {
		changed := defined(t, strings.Replace(text, change.from, change.to, 1), script)
		if definition(t, changed, "lead").Revision == d.Revision {
			t.Errorf("%s changes nothing", change.to)
		}
	}
	elsewhere := defined(t, strings.Replace(text, "program-secret", "other-program", 1), script)
	if definition(t, elsewhere, "lead").Revision != d.Revision {
		t.Error("a run is tied to a program")
	}
	gone := defined(t, strings.NewReplacer("  web:", "  net:", "tools: [web]", "tools: [net]").Replace(text), script)
	if _, err := gone.Restore(d.Body); err == nil || !strings.Contains(err.Error(), `tool "web" is no longer configured`) {
		t.Error(err)
	}
}

// TestAddressesOfModelsAndCards: what serve would refuse, or would call in vain, is a fault of the file.
func TestAddressesOfModelsAndCards(t *testing.T) {
	model := func(url string) string {
		return "version: v1\nmodels: {m: {provider: openai, name: n, base_url: \"" + url + "\"}}\nagents: {a: {model: m}}\n"
	}
	card := func(url string) string { return "version: v1\nagents: {a: {a2a: {card: \"" + url + "\"}}}\n" }
	for text, want := range map[string]string{
		model("http://h.example/v1"):                  "",
		model("http://ann:pw@h.example/v1"):           "base_url must have no user, query or fragment",
		model("http://h.example/v1?key=k"):            "base_url must have no user, query or fragment",
		model("http://h.example/v1#x"):                "base_url must have no user, query or fragment",
		model("http://h.example/v1/chat/completions"): "base_url ends with /chat/completions, which is added to it",
		card("https://h.example"):                     "",
		card("https://h.example/card.json?agent=x"):   "",
		card("https://h.example/card.json#x"):         "",
		card("https://?agent=x"):                      "a2a needs the address of the agent card",
		card("https://#x"):                            "a2a needs the address of the agent card",
		card("https://ann:pw@h.example"):              "card must have no user",
		"version: v1\nagents: {a: {a2a: {card: \"https://h.example\", idle_timeout: 10ms}}}\n": "idle_timeout must be 1s or more",
		"version: v1\nagents: {a: {grpc: {address: \"h.example:1\", idle_timeout: 0s}}}\n":     "idle_timeout must be 1s or more",
	} {
		fs := faultsOf(t, text)
		if want == "" && len(fs) > 0 || want != "" && (len(fs) != 1 || fs[0].Message != want || fs[0].Hint == "" || fs[0].Line < 2) {
			t.Errorf("%s\n%v", text, fs)
		}
	}
	if fs := faultsOf(t, model("http://h.example/v1/chat/completions/")); len(fs) != 1 || fs[0].Hint != "remove /chat/completions from its end" {
		t.Error(fs)
	}
}

// TestSettingsFaults: a setting that a provider does not have, or that is out of bounds, is reported at its
// place, for models and for agents with a model or one of its fallbacks.
func TestSettingsFaults(t *testing.T) {
	const base = `version: v1
models:
  fast: {provider: %s, name: n, base_url: 'http://x', settings: %s}
  claude: {provider: anthropic, name: n, base_url: 'http://x'}
  both: {provider: openai, name: n, base_url: 'http://x', fallback: [claude]}
  script: {provider: openai, name: n, base_url: 'http://x'}
agents:
  writer: {model: fast, %s}
`
	for _, c := range []struct {
		provider, model, agent string
		line                   int
		says                   string
	}{
		{"anthropic", "{seed: 1}", "", 3, `models of the provider "anthropic" have no seed`},
		{"gemini", "{parallel_tool_calls: false}", "", 3, `models of the provider "gemini" have no parallel_tool_calls`},
		{"gemini", "{}", "settings: {parallel_tool_calls: true}", 8, `models of the provider "gemini" have no parallel_tool_calls`},
		{"openai", "{}", "model: both, settings: {seed: 1}", 8, `models of the provider "anthropic" have no seed`},
		{"openai", "{temperature: 3}", "", 3, "temperature must be 0 to 2"},
		{"openai", "{}", "settings: {temperature: -0.1}", 8, "temperature must be 0 to 2"},
		{"openai", "{top_p: 0}", "", 3, "top_p must be more than 0, and at most 1"},
		{"openai", "{stop: [a, '']}", "", 3, "stop must list 1 to 16 texts that are not empty"},
		{"openai", "{reasoning_effort: very high}", "", 3, "reasoning_effort must be one word"},
		{"openai", "{headers: {'X Team': a}}", "", 3, "this is not the name of a header"},
		{"openai", "{extra_body: {max_tokens: 5}}", "", 3, "extra_body must not set max_tokens, which the server sets"},
		{"gemini", "{extra_body: {generationConfig: {maxOutputTokens: 5}}}", "", 3, "extra_body must not set maxOutputTokens, which the server sets"},
		{"openai", "{}", "settings: {extra_body: {stream: false}}", 8, "extra_body must not set stream, which the server sets"},
		{"openai", "{temprature: 1}", "", 3, "unknown key"},
	} {
		text := strings.Replace(fmt.Sprintf(base, c.provider, c.model, c.agent), "model: fast, model: both", "model: both", 1)
		fs := faultsOf(t, text)
		if len(fs) != 1 || !strings.Contains(fs[0].Message, c.says) || fs[0].Line != c.line || fs[0].Hint == "" {
			t.Errorf("%+v: %v", c, fs)
		}
	}
	for _, agent := range []string{"{scripted: {steps: [{echo: true}]}, settings: {seed: 1}}", "{instructions: Write., settings: {seed: 1}}"} {
		fs := faultsOf(t, strings.Replace(fmt.Sprintf(base, "openai", "{}", ""), "{model: fast, }", agent, 1))
		if !slices.ContainsFunc(fs, func(f source.Fault) bool {
			return f.Message == "settings are only allowed for an agent with a model of its own"
		}) {
			t.Errorf("%s: %v", agent, fs)
		}
	}
}
