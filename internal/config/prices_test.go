package config

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/prices"
)

// TestPrices: a model without a price has that of its provider and name if it is called at the provider's own address.
func TestPrices(t *testing.T) {
	t.Parallel()
	keys := map[string]string{"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k", "OPENROUTER_API_KEY": "k", "AZURE_OPENAI_API_KEY": "k"}
	elsewhere := map[string]string{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://proxy.example/v1"}
	free, shipped := &teamv1.Price{}, prices.Of("openai", "gpt-4o")
	for _, c := range []struct {
		model string
		vars  map[string]string
		want  *teamv1.Price
	}{
		{"{provider: openai, name: gpt-4o}", keys, shipped},
		{"{provider: openai, name: gpt-4o}", elsewhere, nil},
		{"{provider: openai, name: gpt-4o, base_url: 'https://proxy.example/v1'}", keys, nil},
		{"{provider: openai, name: gpt-4o, base_url: 'https://api.openai.com/v1/'}", keys, shipped},
		{"{provider: openai, name: gpt-4o, base_url: 'https://api.openai.com.example/v1'}", keys, nil},
		{"{provider: openai, name: openai/gpt-oss-20b, base_url: 'https://api.groq.com/openai/v1'}", keys, prices.Of("groq", "openai/gpt-oss-20b")},
		{"{provider: anthropic, name: claude-opus-4-5, base_url: 'https://api.groq.com/openai/v1'}", keys, nil},
		{"{provider: openai, name: gpt-4o, price: {input: 7}}", keys, &teamv1.Price{Input: 7}},
		{"{provider: openai, name: gpt-4o, price: {input: 0, output: 0}}", keys, free},
		{"{provider: openai, name: gpt-99}", keys, nil},
		{"{provider: anthropic, name: claude-opus-4-5-20251101}", keys, prices.Of("anthropic", "claude-opus-4-5")},
		{"{provider: anthropic, name: gpt-4o}", keys, nil},
		{"{provider: groq, name: openai/gpt-oss-20b}", keys, prices.Of("groq", "openai/gpt-oss-20b")},
		{"{provider: groq, name: openai/gpt-oss-20b, base_url: 'http://127.0.0.1:1/v1'}", keys, nil},
		{"{provider: openrouter, name: openai/gpt-4o}", keys, nil},
		{"{provider: azure, name: gpt-4o, base_url: 'https://r.openai.azure.com/openai/v1'}", keys, nil},
		{"{provider: ollama, name: gpt-4o}", keys, free},
		{"{provider: ollama, name: gpt-4o, base_url: 'http://10.0.0.7:11434/v1'}", keys, nil},
	} {
		text := []byte("version: v1\nmodels: {m: " + c.model + "}\nagents: {a: {model: m, instructions: i}}\n")
		for how, stand := range map[string]*StandIns{"served": nil, "in a test": {}} {
			conf, err := Loader{Env: env(c.vars), StandIns: stand}.Parse("team.yaml", text)
			if err != nil {
				t.Fatalf("%s: %v", c.model, err)
			}
			if m := conf.Server.GetModels()["m"]; !proto.Equal(m.GetPrice(), c.want) {
				t.Errorf("%s %s has the price %v, want %v", c.model, how, m.GetPrice(), c.want)
			}
			if conf.Shipped["m"] != (c.want.GetInput() > 0 && c.want.GetInput() != 7) {
				t.Errorf("%s %s: Shipped is wrong", c.model, how)
			}
		}
	}
}

// TestPricesOfLimits: max_cost takes a price that the program ships with, unless extra_body may change it.
func TestPricesOfLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ model, price, agent, want string }{
		{"gpt-4o", "", "", ""},
		{"gpt-99", "", "", `model "m" has no price, and max_cost of "a" limits it`},
		{"gpt-4o", "settings: {extra_body: {service_tier: priority}}", "", `model "m" has no price of its own, extra_body may change what it costs, and max_cost of "a" limits it`},
		{"gpt-4o", "", "settings: {extra_body: {service_tier: priority}},", `model "m" has no price of its own, extra_body may change what it costs, and max_cost of "a" limits it`},
		{"gpt-4o", "price: {input: 5, output: 20}", "settings: {extra_body: {service_tier: priority}},", ""},
		{"gpt-4o", "", "settings: {temperature: 0},", ""},
	} {
		model := "{provider: openai, name: " + c.model + ", api_key: k, " + c.price + "}"
		fs := faultsOf(t, "version: v1\nmodels: {m: "+model+"}\nagents: {a: {model: m, instructions: i, "+c.agent+" limits: {max_cost: 1}}}\n")
		if len(fs) > 1 || len(fs) == 1 != (c.want != "") || len(fs) == 1 && fs[0].Message != c.want {
			t.Errorf("%+v: got %v", c, fs)
		}
	}
}

// TestPricesOfMembers: a member that takes the model of its leader is called with the leader's settings.
func TestPricesOfMembers(t *testing.T) {
	t.Parallel()
	fs := faultsOf(t, `version: v1
models: {m: {provider: openai, name: gpt-4o, api_key: k}}
agents: {w: {description: Works., instructions: i, limits: {max_cost: 1}}}
teams: {t: {members: [w], coordinator: {leader: {model: m, settings: {extra_body: {service_tier: priority}}}}}}
`)
	if len(fs) != 1 || !strings.Contains(fs[0].Message, `extra_body may change what it costs, and max_cost of "w" limits it`) {
		t.Errorf("got %v", fs)
	}
}

// TestPricesAreOfTheDefinition: runs keep the price that the program shipped with when they began, because it is part of their
// definition.
func TestPricesAreOfTheDefinition(t *testing.T) {
	t.Parallel()
	read := func(model string) *Config {
		c, err := Loader{Env: noEnv}.Parse("team.yaml", []byte("version: v1\nmodels: {m: {provider: openai, api_key: k, "+model+"}}\nagents: {a: {model: m, instructions: i}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	began := read("name: gpt-4o")
	d, err := began.Definition("a")
	if err != nil {
		t.Fatal(err)
	}
	now, err := read("name: gpt-4o, price: {input: 9, output: 9}").Restore(d.Body) // as if the program had another price
	if err != nil {
		t.Fatal(err)
	}
	if got := now.Server.GetModels()["m"].GetPrice(); !proto.Equal(got, prices.Of("openai", "gpt-4o")) {
		t.Errorf("the run has the price %v", got)
	}
}
