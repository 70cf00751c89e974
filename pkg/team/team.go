// Package team composes agents: a Team is a loop that asks a Scheduler who is
// next and dispatches the answer, and is an agent itself. A
// model-backed agent is the same loop over model turns and tool calls.
package team

import (
	"context"
	"fmt"
	"math"
	"strconv"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Team is an agent made of agents. Safe for concurrent use; runs share nothing.
type Team struct{ *Loop }

var (
	_ agent.Moded      = (*Team)(nil)
	_ agent.Rememberer = (*Team)(nil)
	_ agent.Describer  = (*Team)(nil)
)

// New returns a team. The error lists every fault of the configuration.
func New(c Config) (*Team, error) {
	l, err := NewLoop("team", c)
	if err != nil {
		return nil, err
	}
	return &Team{l}, nil
}

// Members returns the ids of the members' agents.
func (t *Team) Members() []string {
	ids := make([]string, len(t.cfg.Members))
	for i, m := range t.cfg.Members {
		ids[i] = m.Agent
	}
	return ids
}

// Modes implements agent.Moded.
func (t *Team) Modes() (input, output []string) { return t.cfg.InputModes, t.cfg.OutputModes }

// Info describes the team: configured id, name and description, and what its
// members can do. Members that are no agent.Describer are asked each time. A member that
// cannot be asked is logged and left out. Teams that contain each other are the
// error MAX_DEPTH_EXCEEDED. The result is shared: read only.
func (t *Team) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	ctx, err := agent.Enter(agent.WithDepthLimit(ctx, t.limits.maxDepth), t.cfg.ID)
	if err != nil {
		return nil, err
	}
	k, err := t.askInfo(ctx, agent.Depth(ctx))
	if err != nil {
		return nil, err
	}
	return t.describe(k), nil
}

// KnownInfo implements agent.Describer: it is known where that of all members is.
func (t *Team) KnownInfo() *teamv1.AgentInfo { return t.knownBelow(math.MaxInt) }

// describe returns the team's info: one for what is known of the members.
func (t *Team) describe(k *known) *teamv1.AgentInfo {
	if info := k.info.Load(); info != nil {
		return info
	}
	info := &teamv1.AgentInfo{
		Id: t.cfg.ID, Name: t.cfg.Name, Description: t.cfg.Description,
		Metadata: map[string]string{
			"type": "team", "mode": t.cfg.Mode, "member_count": strconv.Itoa(len(t.cfg.Members)),
		},
		InputModes: t.cfg.InputModes, OutputModes: t.cfg.OutputModes,
	}
	seen := map[string]bool{}
	lists := [][]*teamv1.Skill{agent.PublicSkills(t.cfg.Skills)}
	for _, m := range k.infos {
		lists = append(lists, m.GetSkills())
	}
	for _, list := range lists {
		for _, s := range list {
			if !seen[s.GetId()] {
				seen[s.GetId()] = true
				info.Capabilities = append(info.Capabilities, s.GetId())
				info.Skills = append(info.Skills, s)
			}
		}
	}
	k.info.CompareAndSwap(nil, info)
	return k.info.Load()
}

// HealthCheck asks every enabled member. The team is healthy when it can
// describe itself and all of them are registered and healthy, usable when one
// is.
func (t *Team) HealthCheck(ctx context.Context) (*teamv1.Health, error) {
	ctx, err := agent.Enter(agent.WithDepthLimit(ctx, t.limits.maxDepth), t.cfg.ID)
	if err != nil {
		return nil, err
	}
	h := &teamv1.Health{Healthy: true, Members: make([]*teamv1.MemberHealth, len(t.cfg.Members))}
	t.each(ctx, func(ctx context.Context, i int, m *Member) {
		h.Members[i] = t.memberHealth(ctx, m)
	})
	for _, m := range h.Members {
		switch {
		case m.GetDisabled():
		case m.GetHealthy():
			h.Usable = true
		default:
			h.Healthy = false
			if h.Detail == "" {
				h.Detail = fmt.Sprintf("member %s: %s", m.GetId(), m.GetDetail())
			}
		}
	}
	if len(t.cfg.Members) == 0 {
		h.Usable = true
	}
	return h, nil
}

// memberHealth asks one member how it is.
func (t *Team) memberHealth(ctx context.Context, m *Member) *teamv1.MemberHealth {
	mh := &teamv1.MemberHealth{Id: m.ID, Disabled: m.Disabled}
	if m.Disabled {
		mh.Detail = "disabled"
		return mh
	}
	a, err := t.cfg.Registry.Agent(m.Agent)
	if err != nil {
		mh.Detail = "not registered"
		return mh
	}
	h, err := t.askHealth(ctx, m, a)
	if err != nil {
		mh.Detail = agent.AsError(err).Message
		return mh
	}
	mh.Healthy, mh.Detail = h.GetHealthy(), h.GetDetail()
	if why := t.open(m); why != "" {
		mh.Healthy, mh.Detail = false, why
	}
	if !mh.Healthy && mh.Detail == "" {
		mh.Detail = "unhealthy"
	}
	return mh
}

func (t *Team) askHealth(ctx context.Context, m *Member, a agent.Agent) (h *teamv1.Health, err error) {
	defer t.guard(m.ID, &err)
	return a.HealthCheck(ctx)
}
