package a2a

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Names of the protocol bindings in agent cards.
const (
	BindingJSONRPC  = "JSONRPC"
	BindingHTTPJSON = "HTTP+JSON"
	BindingGRPC     = "GRPC"
)

// Bindings returns all bindings, in the order in which cards list them by default.
func Bindings() []string { return []string{BindingJSONRPC, BindingHTTPJSON, BindingGRPC} }

// Card returns the card of the agent that tenant names. If tenant is empty, that is the default agent.
// public reports whether it may be read without authentication; without a caller Card returns only
// such cards. It returns AGENT_NOT_FOUND if there is no such agent, or no default, or if the caller of
// ctx may not see the card.
func (h *Handler) Card(ctx context.Context, tenant string) (card *a2av1.AgentCard, public bool, err error) {
	id, err := h.agents.idOf(ctx, tenant)
	var a agent.Agent
	if err == nil {
		a, public, err = h.agents.withCard(ctx, id)
	}
	if err != nil {
		if tenant == "" {
			return nil, false, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound,
				"there is no default agent; use /{agent}/.well-known/agent-card.json")
		}
		return nil, false, err
	}
	info, err := a.Info(ctx)
	if err != nil {
		return nil, false, err
	}
	card, err = h.cards().of(ctx, id, info)
	return card, public, err
}

// withCard returns an agent whose card the caller of ctx may see, and whether the card is public.
func (d *directory) withCard(ctx context.Context, id string) (a agent.Agent, public bool, err error) {
	a, err = d.lookup(ctx, id)
	if err == nil && d.hasPublicCard(id) {
		return a, true, nil
	}
	a, err = d.find(ctx, id)
	return a, false, err
}

// cards builds agent cards with the settings of a handler.
type cards struct {
	c      *Config
	s      *settings.Snapshot
	pushes bool // whether push notifications are supported
}

// cards returns what builds cards with the present settings.
func (h *Handler) cards() cards {
	return cards{&h.c, h.c.Settings.Load(), h.hooks.on()}
}

// of returns the card of the agent with this id and description, signed if the server signs cards.
func (b cards) of(ctx context.Context, id string, info *teamv1.AgentInfo) (*a2av1.AgentCard, error) {
	card := b.unsigned(ctx, id, info)
	if b.s.Signer == nil {
		return card, nil
	}
	if err := b.s.Signer.Sign(card); err != nil {
		return nil, err
	}
	return card, nil
}

// unsigned returns the card without signatures. The id is the one under which the agent is
// served, which need not be the one in info.
func (b cards) unsigned(ctx context.Context, id string, info *teamv1.AgentInfo) *a2av1.AgentCard {
	security := securitySchemes(b.s.GetAuth())
	card := &a2av1.AgentCard{
		Name: info.GetName(), Description: info.GetDescription(), Version: b.c.Version,
		SupportedInterfaces: b.interfaces(ctx, id),
		Capabilities: &a2av1.AgentCapabilities{
			Streaming: yes(true), PushNotifications: yes(b.pushes), ExtendedAgentCard: yes(len(b.extended(id)) > 0),
			Extensions: []*a2av1.AgentExtension{{
				Uri: TeamRunURI, Description: "Decisions, delegations and questions of a run as metadata.", Required: b.s.GetProtocol().GetRequireTeamRun(), Params: facts(info),
			}},
		},
		DefaultInputModes: modes(agent.InputModes(info)), DefaultOutputModes: modes(info.GetOutputModes()),
		SecuritySchemes: security, Skills: skills(id, info),
	}
	if inputs := info.GetInputs(); inputs != nil {
		card.Capabilities.Extensions = append(card.Capabilities.Extensions, &a2av1.AgentExtension{
			Uri: InputsURI, Description: inputsText(inputs), Params: inputs,
		})
	}
	if routes(info) {
		card.Capabilities.Extensions = append(card.Capabilities.Extensions, &a2av1.AgentExtension{
			Uri: RoutingURI, Description: "Hands over to agents that the caller names, as a member of a swarm.",
		})
	}
	for _, name := range slices.Sorted(maps.Keys(security)) {
		card.SecurityRequirements = append(card.SecurityRequirements, &a2av1.SecurityRequirement{
			Schemes: map[string]*a2av1.StringList{name: {}},
		})
	}
	if card.GetName() == "" {
		card.Name = id
	}
	if card.GetDescription() == "" {
		card.Description = card.GetName()
	}
	return card
}

// securitySchemes returns the security schemes of cards, by name. Callers need one of them.
func securitySchemes(c *teamv1.AuthConfig) map[string]*a2av1.SecurityScheme {
	schemes := map[string]*a2av1.SecurityScheme{}
	bearer := func(format, text string) *a2av1.SecurityScheme {
		return &a2av1.SecurityScheme{Scheme: &a2av1.SecurityScheme_HttpAuthSecurityScheme{
			HttpAuthSecurityScheme: &a2av1.HTTPAuthSecurityScheme{Scheme: "Bearer", BearerFormat: format, Description: text},
		}}
	}
	if len(c.GetApiKeys()) > 0 {
		schemes["apiKey"] = bearer("", "An API key of this server.")
	}
	if len(c.GetMtls()) > 0 {
		schemes["mtls"] = &a2av1.SecurityScheme{Scheme: &a2av1.SecurityScheme_MtlsSecurityScheme{
			MtlsSecurityScheme: &a2av1.MutualTlsSecurityScheme{Description: "A client certificate that this server knows."},
		}}
	}
	for _, i := range c.GetJwt() {
		if i.GetJwksUrl() != "" { // the issuer may have no discovery document
			schemes[i.GetName()] = bearer("JWT", "An access token of "+i.GetIssuer())
			continue
		}
		schemes[i.GetName()] = &a2av1.SecurityScheme{Scheme: &a2av1.SecurityScheme_OpenIdConnectSecurityScheme{
			OpenIdConnectSecurityScheme: &a2av1.OpenIdConnectSecurityScheme{
				OpenIdConnectUrl: strings.TrimSuffix(i.GetIssuer(), "/") + "/.well-known/openid-configuration", Description: "An access token of " + i.GetIssuer(),
			},
		}}
	}
	return schemes
}

// yes returns a pointer to b, for optional fields.
func yes(b bool) *bool { return &b }

// interfaces returns the interfaces of an agent for its card. Over HTTP the tenant is in the URL
// only: some clients ignore the tenant field and would reach the default agent, others add it to
// the URL of whatever binding.
func (b cards) interfaces(ctx context.Context, id string) []*a2av1.AgentInterface {
	of := map[string]*a2av1.AgentInterface{}
	if at := b.s.Address; at != "" {
		of[BindingGRPC] = &a2av1.AgentInterface{Url: at, Tenant: id}
	}
	if at := cmp.Or(baseOf(ctx), b.s.BaseURL); at != "" {
		of[BindingJSONRPC] = &a2av1.AgentInterface{Url: at + "/" + id + "/rpc"}
		of[BindingHTTPJSON] = &a2av1.AgentInterface{Url: at + "/" + id}
	}
	shown := b.s.GetCard().GetInterfaces()
	if len(shown) == 0 {
		shown = Bindings()
	}
	var list []*a2av1.AgentInterface
	for _, binding := range shown {
		if i := of[binding]; i != nil {
			i.ProtocolBinding, i.ProtocolVersion = binding, ProtocolVersion
			list = append(list, i)
		}
	}
	return list
}

// skills returns the skills of an agent for its card. A card must have at least one skill, so for
// an agent without skills it returns one that stands for the agent itself.
func skills(id string, info *teamv1.AgentInfo) []*a2av1.AgentSkill {
	var list []*a2av1.AgentSkill
	for _, s := range info.GetSkills() {
		skill := &a2av1.AgentSkill{Id: s.GetId(), Name: s.GetName(), Description: s.GetDescription(), Tags: s.GetTags()}
		if skill.GetName() == "" {
			skill.Name = s.GetId()
		}
		if skill.GetDescription() == "" {
			skill.Description = skill.GetName()
		}
		if len(skill.GetTags()) == 0 {
			skill.Tags = []string{s.GetId()}
		}
		list = append(list, skill)
	}
	if len(list) > 0 {
		return list
	}
	tag := info.GetMetadata()["mode"]
	if tag == "" {
		tag = "agent"
	}
	name := info.GetName()
	if name == "" {
		name = id
	}
	description := info.GetDescription()
	if description == "" {
		description = name
	}
	return []*a2av1.AgentSkill{{Id: id, Name: name, Description: description, Tags: []string{tag}}}
}

// facts returns the metadata of an agent as the parameters of the team-run extension. For a team
// these are type, mode and member_count. It returns nil if the agent has no metadata.
func facts(info *teamv1.AgentInfo) *structpb.Struct {
	if len(info.GetMetadata()) == 0 {
		return nil
	}
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range info.GetMetadata() {
		s.Fields[k] = structpb.NewStringValue(v)
	}
	return s
}

// isFor reports whether the caller may see the extended card.
func (e ExtendedCard) isFor(c identity.Caller) bool {
	return len(e.For) == 0 || slices.Contains(e.For, c.Account) || slices.Contains(e.For, c.Owner())
}

// extended returns the extended cards of an agent.
func (b cards) extended(id string) []ExtendedCard {
	if b.c.Extended == nil {
		return nil
	}
	return b.c.Extended(id)
}

// GetExtendedAgentCard returns the public card of an agent with the additions of the first
// extended card that is for the caller; see A2A 1.0, section 3.1.11. Errors: UNAUTHENTICATED if
// there is no caller; UNSUPPORTED_OPERATION if the agent has no extended cards, as its public
// card says; EXTENDED_AGENT_CARD_NOT_CONFIGURED if none of them is for the caller.
func (h *Handler) GetExtendedAgentCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	id, a, err := h.agents.resolve(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	all := h.cards().extended(id)
	if len(all) == 0 {
		return nil, a2aerror.UnsupportedOperation("agent %q has no extended card; use its public card", id)
	}
	i := slices.IndexFunc(all, func(e ExtendedCard) bool { return e.isFor(who) })
	if i < 0 {
		return nil, ExtendedCardNotConfigured(id)
	}
	info, err := a.Info(ctx)
	if err != nil {
		return nil, err
	}
	return h.cards().of(ctx, id, extend(info, all[i]))
}

// extend returns a copy of info with the additions of an extended card.
func extend(info *teamv1.AgentInfo, e ExtendedCard) *teamv1.AgentInfo {
	info = proto.CloneOf(info)
	if e.Description != "" {
		info.Description = e.Description
	}
	for _, s := range e.Skills {
		same := func(other *teamv1.Skill) bool { return other.GetId() == s.GetId() }
		if i := slices.IndexFunc(info.GetSkills(), same); i >= 0 {
			info.Skills[i] = s
		} else {
			info.Skills = append(info.Skills, s)
		}
	}
	return info
}

// ExtendedCardNotConfigured returns the error for a caller that none of the agent's extended
// cards is for.
func ExtendedCardNotConfigured(id string) error {
	return &a2aerror.Error{
		Reason: a2aerror.ReasonExtendedCardNotConfigured, Code: agent.CodeFailedPrecondition,
		Message: "agent \"" + id + "\" has no extended card for this caller; use its public card, or add the caller to for: of its extended_card",
	}
}
