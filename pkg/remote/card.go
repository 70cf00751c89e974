package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/a2av03"
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
	version string // empty is the best
}

func newPeer(cfg A2AConfig) (peer, error) {
	u, err := url.Parse(cfg.Card)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return peer{}, fmt.Errorf("a2a agent %q: card is no http or https URL without a user", cfg.ID)
	}
	if !strings.HasSuffix(u.Path, ".json") {
		u = u.JoinPath("/.well-known/agent-card.json")
	}
	p := peer{id: cfg.ID, card: u, token: cfg.Token != "", prefer: cfg.Prefer, version: cfg.Version, trusted: []string{wire.HostPort(u)}}
	if v := cfg.Version; v != "" && v != a2aVersion && v != a2av03.Version {
		return peer{}, fmt.Errorf("a2a agent %q: version %q is unknown; known are %s and %s", cfg.ID, v, a2aVersion, a2av03.Version)
	}
	for _, b := range cfg.Prefer {
		if b != BindingGRPC && b != BindingREST && b != BindingJSONRPC {
			return peer{}, fmt.Errorf("a2a agent %q: binding %q is unknown; known are %s, %s and %s", cfg.ID, b, BindingGRPC, BindingREST, BindingJSONRPC)
		}
	}
	for _, o := range cfg.Origins {
		host := o
		if u, err := url.Parse(o); err == nil && u.Host != "" {
			host = wire.HostPort(u)
		}
		p.trusted = append(p.trusted, host)
	}
	return p, nil
}

// choose returns the interface to use: of the best version the first of the
// bindings preferred.
func (p peer) choose(card *a2av1.AgentCard) (*a2av1.AgentInterface, error) {
	var refused []string
	var usable, old []*a2av1.AgentInterface
	for _, i := range card.GetSupportedInterfaces() {
		switch why := p.refuses(i); {
		case why != "":
			refused = append(refused, why)
		case a2av03.Is(i.GetProtocolVersion()):
			old = append(old, i)
		default:
			usable = append(usable, i)
		}
	}
	for _, of := range [][]*a2av1.AgentInterface{usable, old} {
		if i := p.preferred(of); i != nil {
			return i, nil
		}
	}
	return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
		"agent %q: card read, but it offers %s; this server speaks %s", p.id, offers(refused), p.speaks())
}

// preferred is the first interface of the binding that is preferred most, nil
// without one.
func (p peer) preferred(usable []*a2av1.AgentInterface) *a2av1.AgentInterface {
	if len(p.prefer) == 0 && len(usable) > 0 {
		return usable[0]
	}
	for _, binding := range p.prefer {
		for _, i := range usable {
			if i.GetProtocolBinding() == binding {
				return i
			}
		}
	}
	return nil
}

// speaks is what is spoken with the peer, for people.
func (p peer) speaks() string {
	switch p.version {
	case a2aVersion:
		return a2aVersion + ` to it.  Set a2a.version: "` + a2av03.Version + `" if compatibility is wanted`
	case a2av03.Version:
		return a2av03.Version + " over JSONRPC or HTTP+JSON to it.  Remove a2a.version to have the best that both speak"
	}
	return a2aVersion + ", and " + a2av03.Version + " over JSONRPC or HTTP+JSON"
}

// isCurrent reports whether a version is one of A2A 1.0.
func isCurrent(version string) bool {
	return version == a2aVersion || strings.HasPrefix(version, a2aVersion+".")
}

// spoken reports whether an interface's version is spoken with the peer.
func (p peer) spoken(i *a2av1.AgentInterface) bool {
	if a2av03.Is(i.GetProtocolVersion()) {
		return p.version != a2aVersion && (i.GetProtocolBinding() == BindingJSONRPC || i.GetProtocolBinding() == BindingREST)
	}
	return p.version != a2av03.Version && isCurrent(i.GetProtocolVersion())
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
	switch {
	case !p.spoken(i):
		return fmt.Sprintf("protocol %s over %s", clip(i.GetProtocolVersion()), binding)
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
	return err == nil && slices.Contains(p.trusted, wire.HostPort(u)) && (u.Scheme == "https" || p.card.Scheme == "http")
}

// grpcAddress is host:port of a gRPC interface, and whether it wants TLS: where
// it does not say so itself, when the card came that way.
func (p peer) grpcAddress(s string) (address string, secure bool) {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		return wire.HostPort(u), u.Scheme != "http"
	}
	return s, p.card.Scheme == "https"
}

// fetchCard reads the card.
func (a *A2A) fetchCard(ctx context.Context) (*a2av1.AgentCard, error) {
	if err := a.checkOpen(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, cardTime)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.peer.card.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking for the card of %q: %w", a.cfg.ID, err)
	}
	setHeaders(req, a.cfg.Token)
	if a.cfg.Version == a2av03.Version {
		req.Header.Set("A2A-Version", a2av03.Version) // else some show the card of 1.0 alone
	}
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
		return nil, unreadableCard(a.cfg.ID, err)
	}
	if a.cfg.Verifier != nil {
		return a.verifiedCard(body)
	}
	return parseCard(a.cfg.ID, body)
}

// noCard returns the error of a peer that serves no card. If the peer refuses because its
// own members nest too deep, it returns that error unchanged: servers that contain each
// other then all report MAX_DEPTH_EXCEEDED.
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
	card, err := a2av03.ReadCard(body)
	if err != nil {
		return nil, unreadableCard(id, err)
	}
	return card, nil
}

// unreadableCard is the error for an invalid card; err describes the problem.
func unreadableCard(id string, err error) error {
	return senseless(id, "has a card that cannot be read: "+clip(strings.TrimPrefix(wire.AnswerFault(err), "the answer cannot be read: ")), err)
}

// sameOrigin follows few redirects, and none to another origin.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects || req.URL.Scheme != first.Scheme || wire.HostPort(req.URL) != wire.HostPort(first) {
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
	info.InputModes, info.OutputModes = media(card.GetDefaultInputModes()), media(card.GetDefaultOutputModes())
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

// media are a card's media types, within limits.
func media(list []string) []string {
	var out []string
	for _, m := range list[:min(len(list), maxSkills)] {
		if m = clip(m); strings.Contains(m, "/") { // older cards say "text"
			out = append(out, m)
		}
	}
	return out
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

// required are the extensions that each call must activate. The error names one
// that is not known here.
func (p peer) required(card *a2av1.AgentCard) ([]string, error) {
	var uris []string
	for _, e := range card.GetCapabilities().GetExtensions() {
		switch {
		case !e.GetRequired():
		case e.GetUri() == teamRunURI || e.GetUri() == routingURI:
			uris = append(uris, e.GetUri())
		default:
			return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
				"agent %q: card read, but it wants callers that know the extension %s, which this server does not", p.id, clip(e.GetUri()))
		}
	}
	return uris, nil
}

func declares(card *a2av1.AgentCard, uri string) bool {
	return slices.ContainsFunc(card.GetCapabilities().GetExtensions(), func(e *a2av1.AgentExtension) bool { return e.GetUri() == uri })
}
