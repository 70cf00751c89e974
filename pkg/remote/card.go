package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of a card. cardTime is the timeout for reading it.
const (
	maxSkills      = 256
	maxDescription = 4096 // bytes
	cardTime       = 5 * time.Second
)

// URIs of the extensions of A2A that this package supports.
const (
	teamRunURI = "https://github.com/agentteams/team-server/ext/team-run/v1"
	routingURI = "https://github.com/agentteams/team-server/ext/routing/v1"
	inputsURI  = "https://github.com/agentteams/team-server/ext/inputs/v1"
)

// peer identifies an A2A agent, and configures its clients.
type peer struct {
	id   string
	card *url.URL // with /.well-known/agent-card.json
	read string   // the URL as it is configured
	way  *egress.Route
	call a2aclient.Config
}

// newPeer returns the peer of a configuration. The error names an invalid field of cfg.
func newPeer(cfg A2AConfig, out, others *egress.Dialer) (peer, error) {
	u, err := url.Parse(cfg.Card)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return peer{}, fmt.Errorf("a2a agent %q: card must be an http or https URL without a user", cfg.ID)
	}
	if !strings.HasSuffix(u.Path, ".json") {
		u = u.JoinPath("/.well-known/agent-card.json")
	}
	if v := cfg.Version; v != "" && v != a2aclient.V1 && v != a2aclient.V03 {
		return peer{}, fmt.Errorf("a2a agent %q: version %q is unknown; use %s or %s", cfg.ID, v, a2aclient.V1, a2aclient.V03)
	}
	for _, b := range cfg.Prefer {
		if b != BindingGRPC && b != BindingREST && b != BindingJSONRPC {
			return peer{}, fmt.Errorf("a2a agent %q: binding %q is unknown; use %s, %s or %s", cfg.ID, b, BindingGRPC, BindingREST, BindingJSONRPC)
		}
	}
	written := []string{egress.HostPort(u)}
	for _, origin := range cfg.Origins {
		written = append(written, addressOf(origin))
	}
	way := egress.NewRoute(egress.RouteConfig{
		Addresses: written, Own: out, Others: others, TLS: cfg.TLS,
		Refused: func(address string, err error) error {
			if out == others { // the card's address is another party's as well
				return refusedByCaller(cfg.Log, cfg.ID, address, err)
			}
			cfg.Log.Warn("the card of an agent names an address that is neither public nor in server.egress.allow",
				zap.String("agent", cfg.ID), zap.String("address", address), zap.Error(err))
			return err
		},
	})
	call := a2aclient.Config{
		Bindings: cfg.Prefer, Version: cfg.Version, Token: cfg.Token, Tokens: cfg.Tokens, Origins: cfg.Origins,
		Resumes: -1, // a task whose stream breaks is polled instead
		Lenient: true,
		Dial:    way.DialContext, TLS: way.TLSFor(u.Hostname()), Transport: way.Transport(),
	}
	if cfg.Verifier != nil {
		call.Verifier = refusing{cfg.Verifier}
	}
	return peer{id: cfg.ID, card: u, read: cfg.Card, way: way, call: call}, nil
}

// addressOf returns HOST:PORT of an origin, which is a URL or host:port.
func addressOf(origin string) string {
	if u, err := url.Parse(origin); err == nil && u.Host != "" {
		return egress.HostPort(u)
	}
	return origin
}

// hostOf returns the host of the address of an interface, which is a URL or host:port.
func hostOf(address string) string {
	address = strings.TrimPrefix(address, "dns:///")
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Hostname()
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// choose returns the interface to use.
func (p peer) choose(card *a2av1.AgentCard) (*a2av1.AgentInterface, error) {
	i, err := a2aclient.Choose(card, p.card.String(), p.call)
	if none := (*a2aclient.InterfaceError)(nil); errors.As(err, &none) {
		return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
			"agent %q: card read, but it offers %s; this server speaks %s", p.id, offers(none.Refusals), p.speaks())
	}
	return i, err
}

// callTo returns the configuration of the client of an interface.
func (p peer) callTo(i *a2av1.AgentInterface) a2aclient.Config {
	call := p.call
	call.TLS = p.way.TLSFor(hostOf(i.GetUrl()))
	return call
}

// speaks describes the versions that are used with the peer, for people.
func (p peer) speaks() string {
	switch p.call.Version {
	case a2aclient.V1:
		return a2aclient.V1 + ` to it. Set a2a.version: "` + a2aclient.V03 + `" to use the older version`
	case a2aclient.V03:
		return a2aclient.V03 + " over JSONRPC or HTTP+JSON to it. Remove a2a.version to use the highest version that both support"
	}
	return a2aclient.V1 + ", and " + a2aclient.V03 + " over JSONRPC or HTTP+JSON"
}

// offers describes the interfaces of a card, none of which can be used.
func offers(refusals []a2aclient.Refusal) string {
	var refused []string
	for _, r := range refusals {
		binding := clip(r.Interface.GetProtocolBinding())
		switch r.Why {
		case a2aclient.UnknownVersion:
			refused = append(refused, fmt.Sprintf("protocol %s over %s", clip(r.Interface.GetProtocolVersion()), binding))
		case a2aclient.UnknownBinding:
			refused = append(refused, fmt.Sprintf("the binding %q", binding))
		case a2aclient.Elsewhere:
			refused = append(refused, binding+" at an origin that may not receive the token (see origins)")
		case a2aclient.BadAddress:
			refused = append(refused, binding+" at an invalid URL")
		case a2aclient.OtherBinding:
		}
	}
	if len(refused) == 0 {
		return "no interface with a preferred binding"
	}
	return "only " + strings.Join(slices.Compact(refused), ", ")
}

// fetchCard reads the card.
func (a *A2A) fetchCard(ctx context.Context) (*a2av1.AgentCard, error) {
	if err := a.checkOpen(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, cardTime)
	defer stop()
	card, _, err := a2aclient.ReadCard(withPath(ctx, agent.Depth(ctx)), a.peer.read, a.peer.call)
	if err != nil {
		return nil, a.noCard(err)
	}
	return card, nil
}

// noCard returns the error for a card that cannot be read or used. If the peer refuses
// because its own members nest too deep, it returns that error unchanged:
// servers that contain each other then all report MAX_DEPTH_EXCEEDED.
func (a *A2A) noCard(err error) error {
	var (
		untrusted   refusal
		refused     *a2aclient.ServerError
		unreachable *a2aclient.TransportError
		answer      *a2aclient.AnswerError
	)
	switch {
	case errors.As(err, &untrusted):
		return refusedCard(a.cfg.ID, untrusted.error)
	case errors.As(err, &refused) && refused.Reason == agent.ReasonMaxDepth:
		return peerError(refused.GRPCStatus(), false, true)
	case errors.As(err, &refused):
		return &agent.Error{
			Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Fresh: true,
			Retry:   refused.HTTPStatus >= 500 || refused.HTTPStatus == http.StatusTooManyRequests,
			Message: fmt.Sprintf("agent %q does not serve a card (HTTP status %d): %s", a.cfg.ID, refused.HTTPStatus, clip(err.Error())), Err: err,
		}
	case errors.As(err, &unreachable):
		return failure(a.cfg.ID, err)
	case errors.Is(err, a2aclient.ErrMoved):
		return &agent.Error{
			Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Fresh: true,
			Message: fmt.Sprintf("agent %q does not serve a card: its address redirects to another origin", a.cfg.ID), Err: err,
		}
	case errors.As(err, &answer):
		return senseless(a.cfg.ID, "has a card that cannot be read: "+clip(err.Error()), err)
	}
	return err
}

// infoOf returns the description of an agent in its card. Texts and lists are limited,
// because a card comes from another party; inputs are left out, so that it does not choose what its agent is given.
func infoOf(id string, card *a2av1.AgentCard) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{Id: id, Name: clip(card.GetName()), Description: limit(card.GetDescription()), Metadata: facts(card), External: true}
	info.InputModes, info.OutputModes = media(card.GetDefaultInputModes()), media(card.GetDefaultOutputModes())
	var skills []*teamv1.Skill
	for _, s := range card.GetSkills() {
		skills = append(skills, &teamv1.Skill{Id: s.GetId(), Name: s.GetName(), Description: s.GetDescription(), Tags: s.GetTags()})
	}
	describeSkills(info, skills)
	return info
}

// media returns the valid media types of a list, at most maxSkills.
func media(list []string) []string {
	var out []string
	for _, m := range list[:min(len(list), maxSkills)] {
		if m = clip(m); strings.Contains(m, "/") { // older cards say "text"
			out = append(out, m)
		}
	}
	return out
}

// limit returns a text of another server, cleaned, with at most maxDescription bytes, and an ellipsis if some
// were cut.
func limit(s string) string { return cut(clean(s), maxDescription) }

// facts returns the string parameters of the card's team-run extension.
func facts(card *a2av1.AgentCard) map[string]string {
	m := map[string]string{"type": "a2a"}
	for _, e := range card.GetCapabilities().GetExtensions() {
		if e.GetUri() != teamRunURI {
			continue
		}
		for k, v := range e.GetParams().GetFields() {
			if s, ok := v.GetKind().(*structpb.Value_StringValue); ok && len(m) < maxMetadata {
				m[clip(k)] = clip(s.StringValue)
			}
		}
	}
	return m
}

// required returns the extensions that each call must activate. The error names one that
// this server does not support.
func (p peer) required(card *a2av1.AgentCard) ([]string, error) {
	var uris []string
	for _, e := range card.GetCapabilities().GetExtensions() {
		switch {
		case !e.GetRequired():
		case e.GetUri() == inputsURI:
		case e.GetUri() == teamRunURI || e.GetUri() == routingURI:
			uris = append(uris, e.GetUri())
		default:
			return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
				"agent %q: card read, but it requires the extension %s, which this server does not support", p.id, clip(e.GetUri()))
		}
	}
	return uris, nil
}

// declares reports whether a card lists an extension.
func declares(card *a2av1.AgentCard, uri string) bool {
	return slices.ContainsFunc(card.GetCapabilities().GetExtensions(), func(e *a2av1.AgentExtension) bool { return e.GetUri() == uri })
}
