package config

import (
	"strings"
	"testing"
)

// TestT_14_EgressAllow: entries that are no addresses are faults, each with what to write.
func TestT_14_EgressAllow(t *testing.T) {
	const file = "version: v1\nagents: {a: {scripted: {steps: [{echo: true}]}}}\nserver:\n  egress:\n    allow:\n    - 10.1.0.0/16\n    - "
	for entry, want := range map[string]string{
		"10.2.0.7": "", `"10.2.0.7:8080"`: "", `"[fd00::/8]:443"`: "", `"::1"`: "", "hooks.internal": "", `"hooks.internal:8443"`: "",
		"10.0.0.1/8": "has bits set after its first 8; write 10.0.0.0/8", `"*"`: "is not an address; write a CIDR", "http://x": "has an invalid port; it must be 1 to 65535",
		`"x:0"`: "has an invalid port", "127.1": "is not an address", `"::ffff:10.0.0.1"`: "is an IPv4 address in the form of IPv6",
	} {
		fs := faultsOf(t, file+entry+"\n")
		if want == "" && len(fs) > 0 || want != "" && (len(fs) != 1 || fs[0].Line != 7 || !strings.HasPrefix(fs[0].Message+"; "+fs[0].Hint, "this entry of egress.allow "+want)) {
			t.Errorf("%s: %v", entry, fs)
		}
	}
}

// TestT_22_TokensAreEncrypted: a token is sent without TLS only to this machine.
func TestT_22_TokensAreEncrypted(t *testing.T) {
	for agent, want := range map[string]string{
		`{address: "far.example:1", auth: {bearer: x}}`:          "the token would be sent without encryption",
		`{address: "dns:///far.example:1", auth: {bearer: x}}`:   "the token would be sent without encryption",
		`{address: "10.0.0.5:1", auth: {bearer: x}}`:             "the token would be sent without encryption",
		`{address: "far.example:1", auth: {bearer: x}, tls: {}}`: "",
		`{address: "far.example:1"}`:                             "",
		`{address: "127.0.0.1:1", auth: {bearer: x}}`:            "",
		`{address: "[::1]:1", auth: {bearer: x}}`:                "",
		`{address: "localhost:1", auth: {bearer: x}}`:            "",
	} {
		fs := faultsOf(t, "version: v1\nagents:\n  a: {grpc: "+agent+"}\n")
		if want == "" && len(fs) > 0 || want != "" && (len(fs) != 1 || fs[0].Message != want || !strings.Contains(fs[0].Hint, "tls: {}") || fs[0].Line != 3) {
			t.Errorf("%s: %v", agent, fs)
		}
	}
}

// TestA_21_AddressesThatCannotBeUsed: validate rejects the addresses that serve cannot use, and shows
// no user, password or query of one.
func TestA_21_AddressesThatCannotBeUsed(t *testing.T) {
	const secret = "hush2"
	for _, address := range []string{
		"http://:80/", "http://h.example:99999/", "http://h.example:0/", "http://ann:" + secret + "@ho%41st/", "http://ho%41st/?key=" + secret, "http://ann:" + secret + "@h.example/",
		"http://ann:" + secret + "@[::1/", "http://ann:" + secret + "@h.example:99999/?key=" + secret, "http://[v1.x]/", "http://[::1%25lo]x/",
	} {
		for _, kind := range []string{"agents: {a: {a2a: {card: '%s'}}}", "tools: {t: {mcp: {url: '%s'}}}\nagents: {a: {scripted: {steps: [{echo: true}]}}}"} {
			fs := faultsOf(t, "version: v1\n"+strings.Replace(kind, "%s", address, 1)+"\n")
			if len(fs) != 1 || strings.Contains(fs.Error(), secret) {
				t.Errorf("%s in %s: %v", address, kind, fs)
			}
		}
	}
	for _, address := range []string{"host:99999", "host:0", "a:b:1", "::1:80", "ann:" + secret + "@host:1", "host?" + secret + ":1"} {
		fs := faultsOf(t, "version: v1\nagents: {a: {grpc: {address: '"+address+"'}}}\n")
		if len(fs) != 1 || strings.Contains(fs.Error(), secret) {
			t.Errorf("%s: %v", address, fs)
		}
	}
}

// TestT_14_WhoNamesAnAddress: an address comes from the file only if the agent is the file's, also in
// the definition that a run began with.
func TestT_14_WhoNamesAnAddress(t *testing.T) {
	const own = "version: v1\nagents:\n  near: {a2a: {card: \"http://near.example\"}}\n  x: {scripted: {steps: [{echo: true}]}}\n"
	const team = "teams: {t: {members: [{agent: near}, {agent: far}], supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}}\n"
	both, err := parsed(t, own).With(t.Context(), []Addition{{Name: "t", Data: []byte("agents: {far: {a2a: {card: \"http://far.example\"}}}\n" + team)}})
	if err != nil {
		t.Fatal(err)
	}
	if !both.AddressInFile("near") || both.AddressInFile("far") {
		t.Errorf("near %t, far %t", both.AddressInFile("near"), both.AddressInFile("far"))
	}
	d, err := both.Definition("t")
	if err != nil {
		t.Fatal(err)
	}
	restored, err := parsed(t, own).Restore(d.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !restored.AddressInFile("near") || restored.AddressInFile("far") {
		t.Errorf("restored: near %t, far %t", restored.AddressInFile("near"), restored.AddressInFile("far"))
	}
	// The file no longer has near; another one was made over the API.
	later, err := parsed(t, "version: v1\nagents: {x: {scripted: {steps: [{echo: true}]}}}\n").With(t.Context(), []Addition{{Name: "near", Data: []byte("agents: {near: {a2a: {card: \"http://other.example\"}}}\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if restored, err = later.Restore(d.Body); err == nil || err.Error() != `agent "near" is no longer configured` {
		t.Errorf("restored with the card %s: %v", restored.Server.GetAgents()["near"].GetA2A().GetCard(), err)
	}
}
