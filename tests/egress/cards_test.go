package egress

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// peer is a host that serves a card, and records the calls to it.
type peer struct {
	mu    sync.Mutex
	card  string   // guarded by mu
	calls []string // guarded by mu
}

// name makes the card name an interface.
func (p *peer) name(binding, url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.card = fmt.Sprintf(`{"name": "far", "description": "Far.", "version": "1", "capabilities": {}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
		"skills": [], "supportedInterfaces": [{"url": %q, "protocolBinding": %q, "protocolVersion": "1.0"}]}`, url, binding)
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/agent-card.json") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, p.card)
		return
	}
	p.calls = append(p.calls, fmt.Sprint(r.Host, r.Header, string(b)))
	http.Error(w, "{}", http.StatusBadRequest)
}

// called returns what was called since the last time, other than cards.
func (p *peer) called() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

// house serves a file with a remote agent.
func house(t testing.TB, kind, egress string) rig.Target {
	t.Helper()
	needNetwork(t)
	file := fmt.Sprintf(`version: v1
agents: {far: {description: Far., %s}}
server:
  egress: {allow: [%s]}
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", manage: true}]}
`, kind, egress)
	return whole.Open(t, rig.Memory(t), file, fakellm.New(t)).Target
}

// fails sends a text to the remote agent, whose task fails.
func fails(t testing.TB, target rig.Target, id string) string {
	t.Helper()
	resp, err := rig.NewREST(target).Send(t.Context(), rig.Text("far", id, "canary-text"))
	if err != nil {
		return err.Error()
	}
	if got := resp.GetTask().GetStatus(); got.GetState() != a2av1.TaskState_TASK_STATE_FAILED {
		t.Errorf("%s: %v", id, got)
	}
	return agent.Text(resp.GetTask().GetStatus().GetMessage())
}

// TestT_14_CardsOfPublicHosts: a card at a public host cannot have a text sent to an address that is
// not public, over any binding.
func TestT_14_CardsOfPublicHosts(t *testing.T) {
	canary(t, ":9090")
	table(t, map[string][]string{"agent.example": {"93.184.216.34"}, "inner.example": {"10.0.0.5"}})
	p, other := &peer{}, &peer{}
	receive(t, "93.184.216.34:8080", p.ServeHTTP)
	receive(t, "93.184.216.36:9191", other.ServeHTTP)
	for i, to := range []struct{ binding, url string }{
		{"HTTP+JSON", "http://10.0.0.5:9090/"}, {"JSONRPC", "http://169.254.169.254:9090/latest"}, {"JSONRPC", "http://127.0.0.1:9090/"},
		{"HTTP+JSON", "http://inner.example:9090/"}, {"GRPC", "10.0.0.5:9090"}, {"GRPC", "inner.example:9090"}, {"JSONRPC", "http://[::ffff:10.0.0.5]:9090/"},
		{"JSONRPC", "http://2130706433:9090/"}, {"JSONRPC", "https://10.0.0.5:9090/"},
	} {
		p.name(to.binding, to.url)
		target := house(t, `a2a: {card: "http://agent.example:8080"}`, "")
		if says := fails(t, target, fmt.Sprint("m", i)); strings.Contains(says, "10.0.0.5") || strings.Contains(says, "refused") {
			t.Errorf("%s: the caller sees %q", to.url, says)
		}
	}
	p.name("JSONRPC", "http://93.184.216.36:9191/rpc")
	fails(t, house(t, `a2a: {card: "http://agent.example:8080"}`, ""), "public")
	if len(other.called()) == 0 {
		t.Error("another public host was not called")
	}
}

// TestT_14_CardsOfPrivateHosts: an agent that the operator wrote may live at a private host, and its
// card may name interfaces there; those at other hosts only if the operator allows them.
func TestT_14_CardsOfPrivateHosts(t *testing.T) {
	p, same, other := &peer{}, &peer{}, &peer{}
	receive(t, "10.0.0.9:8080", p.ServeHTTP)
	receive(t, "10.0.0.9:9091", same.ServeHTTP)
	receive(t, "10.0.0.8:9091", other.ServeHTTP)
	for _, c := range []struct {
		url, allow string
		at         *peer
		called     bool
	}{
		{"http://10.0.0.9:9091/", "", same, true},
		{"http://10.0.0.8:9091/", "", other, false},
		{"http://10.0.0.8:9091/", `"10.0.0.8:9092"`, other, false},
		{"http://10.0.0.8:9091/", `"10.0.0.8:9091"`, other, true},
		{"http://10.0.0.8:9091/", "10.0.0.0/24", other, true},
	} {
		p.name("JSONRPC", c.url)
		fails(t, house(t, `a2a: {card: "http://10.0.0.9:8080"}`, c.allow), "m")
		if called := len(c.at.called()) > 0; called != c.called {
			t.Errorf("%s with %q: called %t", c.url, c.allow, called)
		}
	}
}

// TestT_14_OtherPortsOfAHost: a card names the port of an interface. At a host that answered from a
// public address its name leads to no private one, at any port. At a machine that the operator wrote,
// by its address or by a name that never was public, other ports are called.
func TestT_14_OtherPortsOfAHost(t *testing.T) {
	canary(t, "10.0.0.5:8080", "10.0.0.5:9091")
	p, same := &peer{}, &peer{}
	once := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // the next call asks for the address again
		p.ServeHTTP(w, r)
	}
	for _, host := range []string{"93.184.216.34", "10.0.0.9", "127.0.0.1"} {
		receive(t, host+":8080", once)
		receive(t, host+":9091", same.ServeHTTP)
	}
	names(t, func(name string, n int) []string {
		switch {
		case name == "steady.example":
			return []string{"10.0.0.9"}
		case name == "moves.example" && n == 0:
			return []string{"10.0.0.9"}
		case name == "public.example", strings.HasPrefix(name, "rebinds") && n == 0:
			return []string{"93.184.216.34"}
		}
		return []string{"10.0.0.5"}
	})
	for _, c := range []struct {
		card, binding, url string
		at                 *peer
	}{
		{"http://rebinds1.example:8080", "JSONRPC", "http://rebinds1.example:9091/", nil},
		{"http://rebinds2.example:8080", "GRPC", "rebinds2.example:9091", nil},
		{"http://rebinds3.example:8080", "JSONRPC", "http://rebinds3.example:8080/rpc", nil},
		{"http://moves.example:8080", "JSONRPC", "http://moves.example:9091/", nil},
		{"http://public.example:8080", "JSONRPC", "http://public.example:9091/", same},
		{"http://public.example:8080", "JSONRPC", "http://public.example:8080/rpc", p},
		{"http://steady.example:8080", "JSONRPC", "http://steady.example:9091/", same},
		{"http://127.0.0.1:8080", "JSONRPC", "http://localhost:9091/", same},
		{"http://localhost:8080", "JSONRPC", "http://0.0.0.0:9091/", same},
		{"http://10.0.0.9:8080", "JSONRPC", "http://localhost:9091/", nil},
	} {
		p.name(c.binding, c.url)
		fails(t, house(t, fmt.Sprintf("a2a: {card: %q}", c.card), ""), "m")
		got := map[*peer]bool{p: len(p.called()) > 0, same: len(same.called()) > 0}
		if want := map[*peer]bool{p: c.at == p, same: c.at == same}; got[p] != want[p] || got[same] != want[same] {
			t.Errorf("card at %s, interface at %s: called %v, want %v", c.card, c.url, got, want)
		}
	}
}

// TestT_14_SharedConnections: a connection that one agent may use does not serve another one, whose
// card names the same address.
func TestT_14_SharedConnections(t *testing.T) {
	table(t, map[string][]string{"agent.example": {"93.184.216.34"}})
	public, private := &peer{}, &peer{}
	receive(t, "93.184.216.34:8080", public.ServeHTTP)
	receive(t, "10.0.0.9:8080", private.ServeHTTP)
	public.name("JSONRPC", "http://10.0.0.9:8080/")
	private.name("JSONRPC", "http://10.0.0.9:8080/")
	file := `version: v1
agents:
  far: {description: Far., a2a: {card: "http://agent.example:8080"}}
  near: {description: Near., a2a: {card: "http://10.0.0.9:8080"}}
server: {auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}]}}
`
	target := whole.Open(t, rig.Memory(t), file, fakellm.New(t)).Target
	if _, err := rig.NewREST(target).Send(t.Context(), rig.Text("near", "near", "x")); err != nil {
		t.Fatal(err)
	}
	if len(private.called()) == 0 {
		t.Fatal("the private agent was not called")
	}
	fails(t, target, "far")
	if got := private.called(); len(got) > 0 {
		t.Errorf("the private agent was called by the card of another one: %v", got)
	}
}

// TestT_14_AgentsOfTheAPI: an agent that is made over the API leads to public addresses, and to those
// that the operator allows.
func TestT_14_AgentsOfTheAPI(t *testing.T) {
	canary(t, ":9090")
	table(t, map[string][]string{"inner.example": {"10.0.0.5"}})
	p := &peer{}
	receive(t, "10.0.0.9:8080", p.ServeHTTP)
	p.name("JSONRPC", "http://10.0.0.9:8080/")
	team := func(kind string) *teamv1.CreateTeamRequest {
		return &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: "agents: {away: {" + kind + "}}\nteams: {t: {members: [{agent: away}], supervisor: {rules: [{id: one, when: \"turn == 1\", next: [away]}, {id: end, when: \"true\", finish: last}]}}}\n"}}
	}
	for _, s := range rig.Services(t, house(t, "scripted: {steps: [{echo: true}]}", "")) {
		teams := teamv1.NewTeamServiceClient(s)
		for _, kind := range []string{
			`a2a: {card: "http://10.0.0.5:9090"}`, `a2a: {card: "http://localhost:9090"}`, `a2a: {card: "http://2130706433:9090"}`, `a2a: {card: "http://[::ffff:127.0.0.1]:9090"}`,
			`grpc: {address: "10.0.0.5:9090"}`, `grpc: {address: "dns:///127.0.0.1:9090"}`, `grpc: {address: "[::1]:9090"}`, `grpc: {address: "0x7f.1:9090"}`,
		} {
			_, err := teams.CreateTeam(t.Context(), team(kind))
			f := rig.Fault(err)
			if f == nil || f.Reason != agent.ReasonInvalidTeamConfig || len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0], "yaml:1:") {
				t.Errorf("%s %s: %v %+v", s.Binding(), kind, err, f)
			}
		}
		for _, kind := range []string{`a2a: {card: "http://inner.example:9090"}`, `grpc: {address: "inner.example:9090"}`} {
			if _, err := teams.CreateTeam(t.Context(), team(kind)); err == nil {
				t.Errorf("%s %s was made", s.Binding(), kind)
			}
		}
	}
	s := rig.Services(t, house(t, "scripted: {steps: [{echo: true}]}", `"10.0.0.9:8080"`))[0]
	if _, err := teamv1.NewTeamServiceClient(s).CreateTeam(t.Context(), team(`a2a: {card: "http://10.0.0.9:8080"}`)); err != nil {
		t.Errorf("an address that the operator allows: %v", err)
	}
}

// TestT_21_T_16_RedirectsOfCards: a card is not read from another origin, even one that may be called.
func TestT_21_T_16_RedirectsOfCards(t *testing.T) {
	canary(t, ":9090")
	table(t, map[string][]string{"agent.example": {"93.184.216.34"}})
	receive(t, "93.184.216.34:8080", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://10.0.0.5:9090/card.json", http.StatusFound)
	})
	fails(t, house(t, `a2a: {card: "http://agent.example:8080", auth: {bearer: canary-bearer}}`, `"10.0.0.5:9090"`), "m")
}

// TestT_22_CredentialsStayWithTheirOrigin: neither our token for an agent nor the key of the caller is
// sent to a host that the agent's card names.
func TestT_22_CredentialsStayWithTheirOrigin(t *testing.T) {
	p, other := &peer{}, &peer{}
	receive(t, "10.0.0.9:8080", p.ServeHTTP)
	receive(t, "93.184.216.36:9191", other.ServeHTTP)
	p.name("JSONRPC", "http://93.184.216.36:9191/")
	fails(t, house(t, `a2a: {card: "http://10.0.0.9:8080", auth: {bearer: canary-bearer}}`, ""), "ours")
	if got := other.called(); len(got) > 0 {
		t.Errorf("with a token, called: %v", got)
	}
	fails(t, house(t, `a2a: {card: "http://10.0.0.9:8080"}`, ""), "theirs")
	got := other.called()
	if len(got) == 0 {
		t.Fatal("without a token, not called")
	}
	for _, call := range append(got, p.called()...) {
		if strings.Contains(call, "acme/ann") || strings.Contains(call, "Authorization") || strings.Contains(call, "canary-bearer") {
			t.Errorf("called with credentials: %s", call)
		}
	}
}
