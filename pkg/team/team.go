// Package team composes agents: a Team is a loop that asks a Scheduler who is
// next and dispatches the answer, and is an agent itself. A
// model-backed agent is the same loop over model turns and tool calls.
package team

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Members finds agents by id; the agent manager is one.
type Members interface {
	// Agent returns the agent registered under id, or an *agent.Error.
	Agent(id string) (agent.Agent, error)
	// Health returns what is known of the agent's health, at most 5 s old. It never blocks.
	Health(id string) *teamv1.Health
}

// Staff is a Members that knows of changes since a run began. The run keeps the
// members that it began with for its choices; who was disabled or removed since is
// refused when it is to begin something, and goes on with what it has begun
// .
type Staff interface {
	Members
	// Gone says why the member of a team gets no more work; nil: it does.
	Gone(team, member string) *agent.Error
}

// Member is an agent's place in a team.
type Member struct {
	// ID of the member in the team; default: Agent.
	ID string
	// Agent is its id in Members. Required.
	Agent string
	// Role it plays, for people and models.
	Role string
	// Description overrides the agent's own for this team.
	Description string
	// Priority orders the roster, highest first.
	Priority int32
	// Disabled members get no work and do not count for health.
	Disabled bool
	// Timeout of one delegation with its retries; 0 is the team's member_timeout.
	Timeout time.Duration
	// Retry overrides the team's.
	Retry *teamv1.Retry
	// StreamInner shows what the member puts out to the readers of the team's task
	// as it comes, as an artifact named by its path.
	StreamInner bool
	// HideText leaves the texts out of that.
	HideText bool
	// History is what it sees of what was said before; default: the mode's.
	History HistoryScope
	// SkipSummarization makes its reply the team's: the leader is not asked again.
	SkipSummarization bool
	// Async overrides the coordinator's: the leader goes on while it works.
	Async *bool
	// Handoff are the members that it may hand over to in a swarm; none is all others.
	Handoff []string
	// HandoffAfter is the member of a swarm that takes over after its reply; empty:
	// its reply is the swarm's.
	HandoffAfter string
}

// Config is what a Team is made of.
type Config struct {
	// ID of the team. Required.
	ID string
	// Name for people; default: the ID.
	Name string
	// Description says what the team does.
	Description string
	// InputModes are the media types that it takes; nil takes everything.
	InputModes []string
	// OutputModes are the media types that it answers with; nil says nothing.
	OutputModes []string
	// Mode is shown in the team's metadata: supervisor, workflow, or a name of your own.
	Mode string
	// Scheduler decides. Required.
	Scheduler Scheduler
	// Members of the team, each id once.
	Members []Member
	// Registry finds the members' agents at dispatch. Required with members.
	Registry Members
	// Model answers the MODEL steps of a scheduler that has some; members without
	// a model take it, too.
	Model agent.Model
	// Tools that the model of a coordinator may call besides its members, each name once.
	Tools []agent.Tool
	// ToolSets hold tools besides Tools whose lists are not known beforehand.
	ToolSets []agent.ToolSet
	// MemberTools are the tools that somebody has by working in the team: a member with
	// a model by its id, the leader by the team's. nil is none.
	MemberTools func(id string) agent.ToolSet
	// Skills of the leader itself; its Info lists them before the members'.
	Skills []*teamv1.Skill
	// Limits of a run; unset ones take their defaults.
	Limits *teamv1.Limits
	// Review has a judge look at every result of a run; nil: none does, unless the
	// brief of a run asks for it.
	Review *Review
	// Memory: the team remembers the conversation that a context id names: as a root,
	// and as a member under its path. Unset: each run begins from nothing.
	Memory bool
	// Revision of the definition, for the record.
	Revision string
	// ReportErrors leaves failed members to the scheduler. Not set: the first
	// failure ends the run with the member's own error.
	ReportErrors bool
	// Guards look at the messages of the team and of its members; none.
	Guards agent.Guards
	// Upstreams knows how calls went of late; nil: every call is made.
	Upstreams Upstreams
	// Log gets warnings; nil is none.
	Log *zap.Logger
}

// infoTimeout bounds how long a member is waited for when it is asked for its
// info or health.
const infoTimeout = 2 * time.Second

// Team is an agent made of agents. Safe for concurrent use; runs share nothing.
type Team struct{ *Loop }

var (
	_ agent.Moded      = (*Team)(nil)
	_ agent.Rememberer = (*Team)(nil)
)

// New returns a team. The error lists every fault of the configuration.
func New(c Config) (*Team, error) {
	l, err := NewLoop("team", c)
	if err != nil {
		return nil, err
	}
	return &Team{l}, nil
}

// validate returns every fault of the configuration.
func (c *Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, format, args...))
	}
	if !agent.ValidID(c.ID) {
		fault("team id %q: must match %s and be no reserved word", c.ID, agent.IDPattern)
	}
	if c.Scheduler == nil {
		fault("team %q has no scheduler; give it one", c.ID)
	}
	if len(c.Members) > 0 && c.Registry == nil {
		fault("team %q has members and no registry to find them in; give it one", c.ID)
	}
	seen := map[string]bool{}
	for i, m := range c.Members {
		switch {
		case m.Agent == "":
			fault("team %q: members[%d] names no agent; name one", c.ID, i)
		case seen[m.ID]:
			fault("team %q: member id %q is used twice; give one of them an id of its own", c.ID, m.ID)
		}
		seen[m.ID] = true
	}
	faults = append(faults, checkGuards(c)...)
	faults = append(faults, checkLimits(c.ID, c.Limits)...)
	faults = append(faults, c.Review.faults(c)...)
	return errors.Join(faults...)
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
// members can do, asked anew each time. A member that
// cannot be asked is logged and left out. Teams that contain each other are the
// error MAX_DEPTH_EXCEEDED.
func (t *Team) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	ctx, err := agent.Enter(agent.WithDepthLimit(ctx, t.limits.maxDepth), t.cfg.ID)
	if err != nil {
		return nil, err
	}
	info := &teamv1.AgentInfo{
		Id: t.cfg.ID, Name: t.cfg.Name, Description: t.cfg.Description,
		Metadata: map[string]string{
			"type": "team", "mode": t.cfg.Mode, "member_count": strconv.Itoa(len(t.cfg.Members)),
		},
		InputModes: t.cfg.InputModes, OutputModes: t.cfg.OutputModes,
	}
	seen := map[string]bool{}
	roster, err := t.askInfo(ctx)
	if err != nil {
		return nil, err
	}
	lists := [][]*teamv1.Skill{agent.PublicSkills(t.cfg.Skills)}
	for _, m := range roster {
		lists = append(lists, m.GetInfo().GetSkills())
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
	return info, nil
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

// askInfo asks all enabled members for their info at the same time. The error is
// that of a circle; the roster is whole all the same.
func (l *Loop) askInfo(ctx context.Context) ([]*teamv1.Observed_Member, error) {
	circles := make([]error, len(l.cfg.Members))
	roster := make([]*teamv1.Observed_Member, len(l.cfg.Members))
	l.each(ctx, func(ctx context.Context, i int, m *Member) {
		roster[i] = &teamv1.Observed_Member{Id: m.ID}
		if m.Disabled {
			return
		}
		info, err := l.memberInfo(ctx, m)
		if err != nil {
			if agent.AsError(err).Reason == agent.ReasonMaxDepth {
				circles[i] = err
			}
			l.cfg.Log.Warn("member unavailable", zap.String("team", l.cfg.ID), zap.String("member", m.ID), zap.Error(err))
			return
		}
		roster[i].Info = info
	})
	return roster, errors.Join(circles...)
}

func (l *Loop) memberInfo(ctx context.Context, m *Member) (info *teamv1.AgentInfo, err error) {
	a, err := l.cfg.Registry.Agent(m.Agent)
	if err != nil {
		return nil, err
	}
	defer l.guard(m.ID, &err)
	return a.Info(ctx)
}

// guard turns a panic of a member into an error.
func (l *Loop) guard(member string, err *error) {
	if r := recover(); r != nil {
		*err = agent.Panicked(l.cfg.Log, member, r)
	}
}

// each calls f for every member at the same time, for at most infoTimeout; f
// must end with its context.
func (l *Loop) each(ctx context.Context, f func(ctx context.Context, i int, m *Member)) {
	if len(l.cfg.Members) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, infoTimeout, agent.ErrTimeout)
	defer cancel()
	var wg sync.WaitGroup
	last := len(l.cfg.Members) - 1
	for i := range last {
		wg.Go(func() { f(ctx, i, &l.cfg.Members[i]) })
	}
	f(ctx, last, &l.cfg.Members[last]) // right here: it is waited for anyway
	wg.Wait()
}
