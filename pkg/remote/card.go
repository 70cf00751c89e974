package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of a card.
const (
	maxCard        = 256 << 10 // bytes
	maxSkills      = 256
	maxDescription = 4096 // bytes
	maxRedirects   = 3
	cardTime       = 5 * time.Second
)

// Extensions of the protocol.
const (
	teamRunURI = "https://github.com/agentteams/team-server/ext/team-run/v1"
	routingURI = "https://github.com/agentteams/team-server/ext/routing/v1"
)

// peer is who an A2A agent is: where its card is, and who may see its token.
type peer struct {
	id      string
	card    *url.URL
	token   bool
	trusted []string // host:port of origins that get the token
	prefer  []string
}

func newPeer(cfg A2AConfig) (peer, error) {
	u, err := url.Parse(cfg.Card)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return peer{}, fmt.Errorf("a2a agent %q: card %q is no http or https URL", cfg.ID, cfg.Card)
	}
	if !strings.HasSuffix(u.Path, ".json") {
		u = u.JoinPath("/.well-known/agent-card.json")
	}
	p := peer{id: cfg.ID, card: u, token: cfg.Token != "", prefer: cfg.Prefer, trusted: []string{hostPort(u)}}
	for _, b := range cfg.Prefer {
		if b != BindingGRPC && b != BindingREST && b != BindingJSONRPC {
			return peer{}, fmt.Errorf("a2a agent %q: binding %q is unknown; known are %s, %s and %s", cfg.ID, b, BindingGRPC, BindingREST, BindingJSONRPC)
		}
	}
	for _, o := range cfg.Origins {
		host := o
		if u, err := url.Parse(o); err == nil && u.Host != "" {
			host = hostPort(u)
		}
		p.trusted = append(p.trusted, host)
	}
	return p, nil
}

// hostPort is where a URL leads, with the port that its scheme implies.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
		if u.Scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// choose returns the interface to use: the first of the bindings preferred.
func (p peer) choose(card *a2av1.AgentCard) (*a2av1.AgentInterface, error) {
	var refused []string
	usable := []*a2av1.AgentInterface{}
	for _, i := range card.GetSupportedInterfaces() {
		if why := p.refuses(i); why != "" {
			refused = append(refused, why)
			continue
		}
		usable = append(usable, i)
	}
	order := p.prefer
	if len(order) == 0 && len(usable) > 0 {
		return usable[0], nil
	}
	for _, binding := range order {
		for _, i := range usable {
			if i.GetProtocolBinding() == binding {
				return i, nil
			}
		}
	}
	return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
		"agent %q: card read, but it offers %s; this server speaks %s", p.id, offers(refused), a2aVersion)
}

func offers(refused []string) string {
	if len(refused) == 0 {
		return "no interface that is preferred"
	}
	return "only " + strings.Join(slices.Compact(refused), ", ")
}

// refuses says why an interface cannot be used; empty: it can.
func (p peer) refuses(i *a2av1.AgentInterface) string {
	binding := clip(i.GetProtocolBinding())
	switch v := i.GetProtocolVersion(); {
	case v != a2aVersion && !strings.HasPrefix(v, a2aVersion+"."):
		return fmt.Sprintf("protocol %s over %s", clip(v), binding)
	case binding != BindingGRPC && binding != BindingREST && binding != BindingJSONRPC:
		return fmt.Sprintf("the binding %q", binding)
	case p.token && !p.trusts(i):
		return binding + " at an origin that must not see the token (see origins)"
	case binding != BindingGRPC && !isHTTP(i.GetUrl()):
		return binding + " at an address that is no URL"
	}
	return ""
}

func isHTTP(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "http" || u.Scheme == "https")
}

// trusts reports whether an interface is at an origin that may see the token,
// and no less protected than the card.
func (p peer) trusts(i *a2av1.AgentInterface) bool {
	if i.GetProtocolBinding() == BindingGRPC {
		address, secure := p.grpcAddress(i.GetUrl())
		return slices.Contains(p.trusted, strings.ToLower(address)) && (secure || p.card.Scheme == "http")
	}
	u, err := url.Parse(i.GetUrl())
	return err == nil && slices.Contains(p.trusted, hostPort(u)) && (u.Scheme == "https" || p.card.Scheme == "http")
}

// grpcAddress is host:port of a gRPC interface, and whether it wants TLS: where
// it does not say so itself, when the card came that way.
func (p peer) grpcAddress(s string) (address string, secure bool) {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		return hostPort(u), u.Scheme != "http"
	}
	return s, p.card.Scheme == "https"
}

// fetchCard reads the card.
func (a *A2A) fetchCard(ctx context.Context) (*a2av1.AgentCard, error) {
	ctx, stop := context.WithTimeout(ctx, cardTime)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.peer.card.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking for the card of %q: %w", a.cfg.ID, err)
	}
	setHeaders(req, a.cfg.Token)
	client := *a.http
	client.CheckRedirect = sameOrigin
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreachable(a.cfg.ID, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, a.noCard(resp)
	}
	body, err := egress.ReadBody(resp.Body, maxCard)
	if err != nil {
		return nil, senseless(a.cfg.ID, "has a card that cannot be read", err)
	}
	return parseCard(a.cfg.ID, body)
}

// noCard is the error of a peer that shows no card. That the peer's own members
// nest too deep is passed on as it is, so that a circle of servers is seen by all
// in it (R-000-36).
func (a *A2A) noCard(resp *http.Response) error {
	body, err := egress.ReadBody(resp.Body, maxCard)
	if err != nil {
		body = nil
	}
	st := wire.ParseRESTError(resp.StatusCode, body)
	if wire.InfoOf(st).GetReason() == agent.ReasonMaxDepth {
		return peerError(st, false, true)
	}
	return &agent.Error{
		Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Fresh: true,
		Retry:   resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests,
		Message: fmt.Sprintf("agent %q shows no card (HTTP status %d)", a.cfg.ID, resp.StatusCode), Err: st.Err(),
	}
}

func parseCard(id string, body []byte) (*a2av1.AgentCard, error) {
	card := &a2av1.AgentCard{}
	if err := wire.Unmarshal(body, card); err != nil {
		if version, ok := oldCard(body); ok {
			return oldOnly(id, version)
		}
		return nil, senseless(id, "has a card that cannot be read", err)
	}
	if version, ok := oldCard(body); ok && len(card.GetSupportedInterfaces()) == 0 {
		return oldOnly(id, version)
	}
	return card, nil
}

// oldCard recognises a card of a protocol before 1.0.
func oldCard(body []byte) (version string, ok bool) {
	var old struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	err := json.Unmarshal(body, &old)
	return old.ProtocolVersion, err == nil && old.ProtocolVersion != ""
}

func oldOnly(id, version string) (*a2av1.AgentCard, error) {
	return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
		"agent %q: card read, but it offers only protocol %s; this server speaks %s", id, clip(version), a2aVersion)
}

// sameOrigin follows few redirects, and none to another origin.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects || req.URL.Scheme != first.Scheme || hostPort(req.URL) != hostPort(first) {
		return http.ErrUseLastResponse
	}
	return nil
}

// setHeaders sets what every HTTP call to a peer carries.
func setHeaders(req *http.Request, token string) {
	req.Header.Set("A2A-Version", a2aVersion)
	req.Header.Set("Team-Path", strconv.Itoa(agent.Depth(req.Context())))
	req.Header.Set("Accept", "application/a2a+json, application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
}

// infoOf is what a card says, within limits: it is a stranger's text.
func infoOf(id string, card *a2av1.AgentCard) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{Id: id, Name: clip(card.GetName()), Description: limit(card.GetDescription()), Metadata: facts(card)}
	for _, s := range card.GetSkills() {
		skill := clip(s.GetId())
		if skill == "" || len(info.GetSkills()) == maxSkills || slices.Contains(info.GetCapabilities(), skill) {
			continue
		}
		info.Capabilities = append(info.Capabilities, skill)
		info.Skills = append(info.Skills, &teamv1.Skill{
			Id: skill, Name: clip(s.GetName()), Description: limit(s.GetDescription()), Tags: s.GetTags(),
		})
	}
	return info
}

func limit(s string) string {
	if len(s) > maxDescription {
		return strings.ToValidUTF8(s[:maxDescription], "") + "…"
	}
	return s
}

// facts are the parameters of the card's team extension, when they are texts.
func facts(card *a2av1.AgentCard) map[string]string {
	m := map[string]string{"type": "a2a"}
	for _, e := range card.GetCapabilities().GetExtensions() {
		if e.GetUri() != teamRunURI {
			continue
		}
		for k, v := range e.GetParams().GetFields() {
			if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
				m[clip(k)] = clip(s.StringValue)
			}
		}
	}
	return m
}

func declares(card *a2av1.AgentCard, uri string) bool {
	return slices.ContainsFunc(card.GetCapabilities().GetExtensions(), func(e *a2av1.AgentExtension) bool { return e.GetUri() == uri })
}
