package config

import (
	"fmt"
	"slices"
	"testing"
)

// TestC_07_CostsOfInheritedModels: an agent without a model uses that of its leader, whose price its
// own max_cost needs.
func TestC_07_CostsOfInheritedModels(t *testing.T) {
	fs := faultsOf(t, `version: v1
models: {m: {provider: openai, name: n, base_url: "http://127.0.0.1/v1"}}
agents: {b: {instructions: Write., limits: {max_cost: 1}}}
teams:
  s:
    members: [{agent: b}]
    coordinator: {leader: {model: m, instructions: Lead.}}
`)
	if len(fs) != 1 || fs[0].Line != 2 || fs[0].Message != `model "m" has no price, and max_cost of "b" limits it` {
		t.Errorf("got %v", fs)
	}
}

// TestC_07_FaultsOfAccounts: the limits of an account name their place, and a limit on money needs
// prices of everything that is served.
func TestC_07_FaultsOfAccounts(t *testing.T) {
	head := `version: v1
models: {m: {provider: openai, name: n, base_url: "http://127.0.0.1/v1"}}
agents:
  b: {description: Writes., model: m, instructions: Write.}
  far: {a2a: {card: "http://127.0.0.1/card"}}
teams:
  s:
    members: [{agent: b}, {agent: far}]
    supervisor: {rules: [{id: r, when: "turn == 1", next: [b]}, {id: e, when: "true", finish: b}]}
server:
  accounts:
`
	for name, c := range map[string]struct {
		limits string
		want   []string
	}{
		"none":              {"    acme: {time_zone: Europe/Berlin}", []string{"12 no limit is set"}},
		"not positive":      {"    acme: {max_tokens_per_day: 0}", []string{"12 max_tokens_per_day must be a number of tokens from 1 to 9007199254740992"}},
		"too little money":  {"    acme: {max_cost_in_flight: 0.0000001}", []string{"2 model \"m\" has no price, and server.accounts limits the cost of an account", "5 agent \"far\" has no cost_per_task, and server.accounts limits the cost of an account", "12 max_cost_in_flight must be an amount in USD from 0.000001 to 9007199254.740992"}},
		"unknown time zone": {"    acme: {max_tokens_per_day: 1, time_zone: Mars/Olympus}", []string{"12 time_zone is not known"}},
		"unpriced":          {"    acme: {max_cost_per_day: 5}", []string{"2 model \"m\" has no price, and server.accounts limits the cost of an account", "5 agent \"far\" has no cost_per_task, and server.accounts limits the cost of an account"}},
		"each principal": {"    acme:\n      per_principal:\n        burst: 0\n        max_queued: 0", []string{
			"14 burst must be a number from 1 to 1000000", "14 burst has no effect without requests_per_second", "15 max_queued must be a number from 1 to 1000000",
		}},
		"no principal":     {"    acme: {max_queued: 5, per_principal: {}}", []string{"12 per_principal has no limit"}},
		"tokens need none": {"    acme: {max_tokens_per_day: 5, max_tokens_in_flight: 7}", nil},
		"no account":       {"    \"a/b\": {max_tokens_per_day: 5}", []string{"12 this cannot be an account"}},
		"the own account":  {"    \"-\": {max_tokens_per_day: 5}", []string{"12 this cannot be an account"}},
		"a folder":         {"    \"..\": {max_tokens_per_day: 5}", []string{"12 this cannot be an account"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range faultsOf(t, head+c.limits+"\n") {
				got = append(got, fmt.Sprint(f.Line, " ", f.Message))
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.want))
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}
