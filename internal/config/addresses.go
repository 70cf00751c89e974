package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/model"
)

// EgressAllow returns the entries for egress.NewGuard: the addresses that are not public and to
// which connections may lead whose address callers or cards have named.
func (c *Config) EgressAllow() []string {
	allow := c.Server.GetServer().GetEgress().GetAllow()
	if c.Loopback() {
		return append(egress.Loopback(), allow...)
	}
	return allow
}

// Loopback reports whether the loader lets additions name addresses of this machine.
func (c *Config) Loopback() bool { return c.loader.Loopback }

// AddressInFile reports whether the address of a remote agent stands in the configuration file, rather
// than in an addition.
func (c *Config) AddressInFile(id string) bool { return c.additions[id] == "" && !c.restored[id] }

// addresses checks the addresses of models, tools and remote agents, and the entries of server.egress.allow.
func (k *checker) addresses() {
	for _, name := range sorted(k.Server.GetModels()) {
		m, at := k.Server.GetModels()[name], k.at("models", name, "base_url")
		if u := urlAt(at, m.GetBaseUrl(), "base_url", "for example https://HOST/v1"); u != nil && !plain(u) {
			at.Fault("base_url must have no user, query or fragment", "a key belongs in api_key")
		} else if path := model.Path(m.GetProvider()); u != nil && path != "" && strings.HasSuffix(strings.TrimRight(m.GetBaseUrl(), "/"), path) {
			at.Fault("base_url ends with "+path+", which is added to it", "remove "+path+" from its end")
		}
	}
	for _, name := range sorted(k.Server.GetTools()) {
		at := k.at("tools", name, "mcp", "url")
		if u := urlAt(at, k.Server.GetTools()[name].GetMcp().GetUrl(), "url", "for example http://127.0.0.1:8000/mcp"); u != nil && !plain(u) {
			at.Fault("url must have no user, query or fragment", "a token belongs in bearer")
		}
	}
	for i, entry := range k.Server.GetServer().GetEgress().GetAllow() {
		if err := egress.CheckEntry(entry); err != nil {
			what, instead, _ := strings.Cut(err.Error(), "; ")
			k.at("server", "egress", "allow", i).Fault("this entry of egress.allow "+what, instead)
		}
	}
	guard, err := egress.NewGuard(k.EgressAllow()...)
	for _, id := range sorted(k.Server.GetAgents()) {
		k.cardAddress(k.at("agents", id, "a2a", "card"), k.Server.GetAgents()[id].GetA2A())
		k.grpcAddress(k.at("agents", id, "grpc"), k.Server.GetAgents()[id].GetGrpc())
		if k.additions[id] != "" && err == nil { // an error was reported above
			k.reachable(guard, k.at("agents", id), k.Server.GetAgents()[id])
		}
	}
}

// plain reports whether a URL has no user, query or fragment.
func plain(u *url.URL) bool { return u.User == nil && u.RawQuery == "" && u.Fragment == "" }

// urlAt parses a URL. It returns nil if the URL is missing or has a fault.
func urlAt(at source.Place, raw, key, instead string) *url.URL {
	if raw == "" || at.Damaged() || at.Faulty() { // nothing is looked up without a URL: a file may have many agents
		return nil
	}
	if _, _, err := splitCard(raw); err != nil {
		at.Fault(key+" "+err.Error(), instead)
		return nil
	}
	u, _ := url.Parse(raw)
	return u
}

// cardAddress checks the address of the card of an A2A agent.
func (k *checker) cardAddress(at source.Place, a *teamv1.A2AAgent) {
	if u := urlAt(at, a.GetCard(), "card", "for example https://HOST/.well-known/agent-card.json"); u != nil && u.User != nil {
		at.Fault("card must have no user", "a token belongs in auth: {bearer: ...}")
	}
}

// grpcAddress checks the address of a gRPC agent, and that no token is sent to it in clear.
func (k *checker) grpcAddress(at source.Place, g *teamv1.GrpcAgent) {
	address := at.At("address")
	if g.GetAddress() == "" || address.Damaged() || address.Faulty() {
		return
	}
	host, _, err := splitAddress(g.GetAddress())
	switch {
	case err != nil:
		address.Fault("address "+err.Error(), "for example agents.example:50051, with a port from 1 to 65535")
	case g.GetAuth().GetOauth() != nil:
		at.At("auth").Fault("oauth is not supported for agents that implement the Agent service", "use bearer, or call the agent over A2A")
	case g.GetAuth().GetBearer() != "" && g.GetTls() == nil && inClear(host):
		at.At("auth").Fault("the token would be sent without encryption", "add tls: {} beside auth; without TLS a token is sent only to a loopback address")
	}
}

// reachable reports addresses of an agent of an addition to which no connection would be made.
func (k *checker) reachable(guard *egress.Guard, at source.Place, a *teamv1.AgentConfig) {
	for _, of := range []struct {
		at    source.Place
		text  string
		split func(string) (string, uint16, error)
	}{{at.At("a2a", "card"), a.GetA2A().GetCard(), splitCard}, {at.At("grpc", "address"), a.GetGrpc().GetAddress(), splitAddress}} {
		host, port, err := of.split(of.text)
		if err != nil || of.text == "" || of.at.Faulty() {
			continue
		}
		if err := guard.Host(host, port); err != nil {
			why, instead, _ := strings.Cut(err.Error(), "; ")
			of.at.Fault(fmt.Sprint(of.at.Path()[len(of.at.Path())-1])+" "+why, instead)
		}
	}
}

// splitCard returns the host and port of the URL of a card or tool. The error follows the name of a
// key.
func splitCard(raw string) (host string, port uint16, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return "", 0, errors.New("is not a valid address")
	}
	digits := u.Port()
	if digits == "" {
		digits = map[bool]string{true: "80", false: "443"}[u.Scheme == "http"]
	}
	port, err = portOf(digits)
	return u.Hostname(), port, err
}

// splitAddress returns the host and port of the address of a gRPC agent. The error follows the name
// of a key.
func splitAddress(address string) (host string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(strings.TrimPrefix(address, "dns:///"))
	if err != nil || host == "" || strings.ContainsAny(host, "@/?#%") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", 0, errors.New("is not HOST:PORT")
	}
	port, err = portOf(digits)
	return host, port, err
}

// inClear reports whether a connection without TLS to a host may be read on its way.
func inClear(host string) bool {
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

func portOf(digits string) (uint16, error) {
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("has an invalid port")
	}
	return uint16(n), nil
}
