package a2a

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// isFor reports whether the caller may see the extended card.
func (e ExtendedCard) isFor(c Caller) bool {
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
	who, err := Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	id, a, err := h.resolve(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	all := h.cards().extended(id)
	if len(all) == 0 {
		return nil, UnsupportedOperation("agent %q has no extended card; use its public card", id)
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
	return &Error{
		Reason: ReasonExtendedCardNotConfigured, Code: agent.CodeFailedPrecondition,
		Message: "agent \"" + id + "\" has no extended card for this caller; use its public card, or add the caller to for: of its extended_card",
	}
}

type baseKey struct{}

// WithBase returns a context for a call that reached the server under another base URL than that
// in the settings. Cards returned to this call have that URL for the REST and JSON-RPC interfaces.
// An empty url changes nothing.
func WithBase(ctx context.Context, url string) context.Context {
	if url == "" {
		return ctx
	}
	return context.WithValue(ctx, baseKey{}, url)
}

// baseOf returns the URL set by WithBase, or "".
func baseOf(ctx context.Context) string {
	url, _ := ctx.Value(baseKey{}).(string)
	return url
}
