package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
)

const key = "sk-never-to-be-seen"

// commands returns the commands over a file with the model m at an endpoint, and what they print.
func commands(t *testing.T, model string) (c *Commands, out, talk *bytes.Buffer) {
	t.Helper()
	files := fstest.MapFS{"a.script.yaml": {Data: []byte("agents: {a: [{text: Hi.}]}")}}
	def, err := config.Loader{Files: files, Env: func(string) (string, bool) { return "", false }}.Parse("team.yaml", []byte(`version: v1
models:
  m: `+model+`
  played: {provider: scripted, file: a.script.yaml}
  keyless: {provider: openai, name: gpt-4o}
agents: {a: {model: m, instructions: i}}
`))
	if err != nil {
		t.Fatal(err)
	}
	out, talk = &bytes.Buffer{}, &bytes.Buffer{}
	return &Commands{Console: &console.Console{Out: out, Talk: talk}, Definition: def}, out, talk
}

func at(llm *fakellm.Server, more string) string {
	return "{provider: openai, name: n, base_url: '" + llm.URL + "', api_key: " + key + more + "}"
}

// able are the answers of a model that can do everything.
var able = []fakellm.Turn{
	{Text: "1 2 3 4 5 6 7 8 9 10 11 12", Chunks: 4, Usage: &fakellm.Usage{PromptTokens: 30, CompletionTokens: 25}},
	{Calls: []fakellm.Call{{Name: "add", Arguments: `{"a":19,"b":23}`}}, Usage: &fakellm.Usage{PromptTokens: 80, CompletionTokens: 15}},
	{Text: `{"sum": 42}`, Usage: &fakellm.Usage{PromptTokens: 60, CompletionTokens: 10}},
}

// TestModelTest: models test says what works, and what the calls can cost at most and have cost.
func TestModelTest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		turns   []fakellm.Turn
		price   string
		fails   []string // findings that do not work
		details []string
	}{
		"everything": {able, ", price: {input: 1, output: 2}", nil, []string{
			"testing model m (n of openai) with 3 calls of at most 2000 input and 1024 output tokens: at most 0.012144 USD",
			"the text arrived in 4 pieces", `add {\"a\":19,\"b\":23}`, `{\"sum\": 42}`, "170 input and 50 output tokens in 3 calls", "1 input and 2 output, USD per million tokens, from the file", "cost: 0.00027 USD",
		}},
		"no price": {able, "", []string{"price"}, []string{"its price is not known", "or max_cost refuses the model"}},
		"little": {[]fakellm.Turn{{Text: "Sure!", NoUsage: true}, {Text: "It is 42."}, {Text: "42"}}, ", price: {input: 1, output: 2}", []string{"streaming", "tools", "json", "usage"}, []string{
			"in 1 pieces", `without a call of the tool: "It is 42."`, `"42"`, "budgets count as the most",
		}},
		"refused parts": {[]fakellm.Turn{able[0], {Status: 400, Message: "tools are not supported"}, able[2]}, "", []string{"tools", "price"}, []string{"tools are not supported", "90 input and 35 output tokens in 3 calls"}},
		"cut":           {[]fakellm.Turn{{Finish: "length"}, able[1], able[2]}, "", []string{"text", "streaming", "price"}, []string{`the reason for the end is "length"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm := fakellm.New(t)
			llm.Script("n", tt.turns...)
			c, out, talk := commands(t, at(llm, tt.price))
			if err := c.Test(t.Context(), "m"); err != nil {
				t.Fatal(err)
			}
			text := talk.String() + out.String()
			for _, want := range tt.details {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
			for line := range strings.Lines(out.String()) {
				if f := strings.Fields(line); len(f) > 2 && (f[1] == "yes" || f[1] == "no") && (f[1] == "no") != slices.Contains(tt.fails, f[0]) {
					t.Errorf("%q, want those that fail to be %v", line, tt.fails)
				}
			}
			if strings.Contains(text, key) {
				t.Errorf("the key is in\n%s", text)
			}
		})
	}
}

// TestModelTestOfProviders: models test works with the API of each provider.
func TestModelTestOfProviders(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"anthropic", "gemini"} {
		llm := fakellm.New(t)
		llm.Script("n", able...)
		c, out, _ := commands(t, "{provider: "+provider+", name: n, base_url: '"+llm.Root+"', api_key: "+key+", price: {input: 1, output: 2}}")
		if err := c.Test(t.Context(), "m"); err != nil {
			t.Fatalf("%s: %v", provider, err)
		}
		if text := out.String(); strings.Count(text, " yes ") != 6 || !strings.Contains(text, "cost: 0.00027 USD") {
			t.Errorf("%s: got\n%s", provider, text)
		}
	}
}

// TestModelTestAsJSON: with -o json the result is an object.
func TestModelTestAsJSON(t *testing.T) {
	t.Parallel()
	llm := fakellm.New(t)
	llm.Script("n", able...)
	c, out, _ := commands(t, at(llm, ", price: {input: 1, output: 2}"))
	c.Console.JSON = true
	if err := c.Test(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Findings) != 6 || !r.Findings[2].Works || r.CostUSD == nil || *r.CostUSD != 0.00027 || r.Output != 50 {
		t.Errorf("got %s, %v", out, err)
	}
}

// TestModelTestFails: a model that cannot be called is an error that says what to do, and costs no further calls.
func TestModelTestFails(t *testing.T) {
	t.Parallel()
	llm := fakellm.New(t)
	llm.Script("n", fakellm.Turn{Status: 401, Message: "bad key " + key, Forever: true})
	for id, tt := range map[string]struct {
		model, want string
		usage       bool
	}{
		"m":       {at(llm, ""), "refused the key (HTTP 401); check the model's api_key", false},
		"gone":    {"{provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1'}", "could not be reached: dial tcp 127.0.0.1:1: connect: connection refused; check base_url and the network, and that the server runs", false},
		"keyless": {at(llm, ""), `model "keyless" needs OPENAI_API_KEY, which is not set; set it, or add it to .env`, false},
		"played":  {at(llm, ""), `model "played" is scripted: it plays its file and calls no endpoint`, true},
		"lost":    {at(llm, ""), `the file has no model "lost"; it has keyless, m, played`, true},
	} {
		c, out, talk := commands(t, tt.model)
		if id == "gone" {
			id = "m"
		}
		err := c.Test(t.Context(), id)
		var usage console.UsageError
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &usage) != tt.usage {
			t.Errorf("%s: got %v, want %s", id, err, tt.want)
		}
		if strings.Contains(err.Error()+out.String()+talk.String(), key) {
			t.Errorf("%s: the key is in %v", id, err)
		}
	}
	if n := len(llm.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestList: models ls shows where prices are from, and what models lack.
func TestList(t *testing.T) {
	t.Parallel()
	c, out, _ := commands(t, "{provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1', price: {input: 0.5, output: 2}}")
	if err := c.List(); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Fields(line))
	}
	for i, want := range []string{"MODEL PROVIDER NAME ADDRESS INPUT OUTPUT PRICE", "keyless openai gpt-4o - 2.5 10 genai-prices", "m openai n http://127.0.0.1:1/v1 0.5 2 the file", "played scripted - - - - -"} {
		if got := strings.Join(rows[i], " "); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	out.Reset()
	c.Console.JSON = true
	if err := c.List(); err != nil || !strings.Contains(out.String(), `"lacks":"OPENAI_API_KEY, which is not set"`) {
		t.Errorf("got %s, %v", out, err)
	}
}

// TestPrices: models prices selects by a part of the provider and name.
func TestPrices(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{"openai/gpt-4o-mini": "gpt-4o-mini", "OPENAI/*5-mini-2025": "gpt-5-mini-2025-08-07", "claude-opus-4-5": "claude-opus-4-5*"} {
		c, out, talk := commands(t, "{provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1'}")
		if err := c.Prices(pattern); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || strings.Fields(lines[1])[1] != want || !strings.Contains(talk.String(), "https://github.com/pydantic/genai-prices") {
			t.Errorf("%s: got %s\n%s", pattern, talk, out)
		}
	}
	c, _, _ := commands(t, "{provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1'}")
	if err := c.Prices("gpt-("); err == nil || !strings.Contains(err.Error(), `there is no price of a model like "gpt-("`) {
		t.Errorf("got %v", err)
	}
}
