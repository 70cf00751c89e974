// Package team composes agents. A [Team] is an agent that runs other agents, its members: a loop asks
// a [Scheduler] what to do next and dispatches the steps it returns. A model-backed agent is the same
// loop over model turns and tool calls.
//
// [New] makes a team of a [Config]: its members, where to find them, and a scheduler. Packages supervisor,
// workflow, broadcast, swarm and leader have schedulers. A scheduler of one's own embeds [Base] and
// implements Next, a function from the [State] of a run to a [Decision]. A program that needs no more than
// that scheduler loads the team from a file with package teamfile.
package team

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Team is an agent made of agents. It is safe for concurrent use; runs share no state.
type Team struct{ *Loop }

var (
	_ agent.Moded      = (*Team)(nil)
	_ agent.Rememberer = (*Team)(nil)
	_ agent.Describer  = (*Team)(nil)
)

// New returns a team. The error joins all faults of the configuration.
func New(c Config) (*Team, error) {
	l, err := NewLoop("team", c)
	if err != nil {
		return nil, err
	}
	return &Team{l}, nil
}

// Members returns the ids of the members' agents, in roster order.
func (t *Team) Members() []string {
	ids := make([]string, len(t.cfg.Members))
	for i, m := range t.cfg.Members {
		ids[i] = m.Agent
	}
	return ids
}

// Modes implements agent.Moded.
func (t *Team) Modes() *teamv1.AgentInfo { return t.modes(map[*Config]*teamv1.AgentInfo{}) }

// Info returns the configured id, name and description, and the skills of all members. Members that
// do not implement agent.Describer are asked on every call. A member that does not answer is logged
// and left out. The error is MAX_DEPTH_EXCEEDED for teams that contain each other. The result is
// shared and must not be modified.
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

// KnownInfo implements agent.Describer. It returns nil unless the info of every member is known.
func (t *Team) KnownInfo() *teamv1.AgentInfo { return t.knownBelow(math.MaxInt) }

// describe returns the team's info for one snapshot of its members' infos. It builds the info once
// and caches it in the snapshot.
func (t *Team) describe(k *infoSnapshot) *teamv1.AgentInfo {
	if info := k.info.Load(); info != nil {
		return info
	}
	info := &teamv1.AgentInfo{
		Id: t.cfg.ID, Name: t.cfg.Name, Description: t.cfg.Description,
		Metadata: map[string]string{
			"type": "team", "mode": t.cfg.Mode, "member_count": strconv.Itoa(len(t.cfg.Members)),
		},
		InputModes: t.cfg.InputModes, OutputModes: t.cfg.OutputModes, Inputs: t.cfg.Inputs.Schema(),
	}
	t.setFiles(info, func(i int) *teamv1.AgentInfo { return t.lent(i, k.infos[i]) })
	at := map[string]int{}
	for _, of := range append([]*teamv1.AgentInfo{{Skills: agent.PublicSkills(t.cfg.Skills)}}, k.infos...) {
		for _, s := range of.GetSkills() {
			i, known := at[s.GetId()]
			switch external := isExternal(of, s); {
			case !known:
				at[s.GetId()] = len(info.GetSkills())
				info.Capabilities = append(info.Capabilities, s.GetId())
				info.Skills = append(info.Skills, s)
				if external {
					info.ExternalSkills = append(info.ExternalSkills, s.GetId())
				}
			case !external && isExternal(info, info.GetSkills()[i]): // another server must not replace what the file says
				info.Skills[i] = s
				info.ExternalSkills = slices.DeleteFunc(info.GetExternalSkills(), func(id string) bool { return id == s.GetId() })
			}
		}
	}
	k.info.CompareAndSwap(nil, info)
	return k.info.Load()
}

// HealthCheck asks every enabled member at the same time. The team is healthy when all enabled
// members are registered and healthy, and usable when at least one is. A team without members is
// both.
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

// memberHealth returns the health of one member; errors become part of the result.
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
	if why := t.whyNotCalled(agent.From(ctx).Account(), m); why != "" {
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
