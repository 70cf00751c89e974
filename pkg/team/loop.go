package team

import (
	"errors"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Loop asks a scheduler who is next and dispatches the answer until it replies, asks, or
// hits a limit. It implements all of an agent.Agent but Info and HealthCheck: teams and
// agents with a model embed it. Safe for concurrent use; runs share nothing.
type Loop struct {
	cfg       *Config
	noun      string // what people call what runs: agent or team
	traits    Traits
	limits    limits
	tools     map[string]agent.Tool
	places    map[string]int         // of members in cfg.Members, by id
	last      *atomic.Pointer[known] // what is known of the members since they were asked last
	startNote *teamv1.Event_Noted    // what each run notes when it begins; nil without members
}

// NewLoop returns the loop of what c describes. noun is what people call it in messages:
// "team", "agent". c and its members are copied; what is not set takes its default. The
// error lists every fault of the configuration.
func NewLoop(noun string, c Config) (*Loop, error) {
	c.Members = slices.Clone(c.Members)
	for i := range c.Members {
		if c.Members[i].ID == "" {
			c.Members[i].ID = c.Members[i].Agent
		}
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.Members, func(a, b Member) int { return int(b.Priority) - int(a.Priority) })
	if c.Name == "" {
		c.Name = c.ID
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	l := &Loop{cfg: &c, noun: noun, traits: c.Scheduler.Traits(), tools: make(map[string]agent.Tool, len(c.Tools)), places: make(map[string]int, len(c.Members)), last: &atomic.Pointer[known]{}}
	for i := range c.Members {
		l.places[c.Members[i].ID] = i
	}
	if len(c.Members) > 0 {
		l.startNote = &teamv1.Event_Noted{Noted: preparedNote(&c)}
	}
	for _, t := range c.Tools {
		l.tools[t.Spec().Name] = t
	}
	l.limit(c.Limits)
	for _, w := range l.traits.Warnings {
		c.Log.Warn(w, zap.String(noun, c.ID))
	}
	return l, nil
}

// member returns the member with an id; nil: there is none.
func (l *Loop) member(id string) *Member {
	if i, ok := l.places[id]; ok {
		return &l.cfg.Members[i]
	}
	return nil
}

func (l *Loop) limit(by *teamv1.Limits) {
	l.limits = effective(by)
	if l.traits.SetsTimeouts {
		l.limits.memberTimeout = 0
	}
}

// within is the loop as a call bounds it besides: by the time of its brief where its
// own is not set, and by what its caller lets run at once.
func (l *Loop) within(req *teamv1.ProcessRequest) *Loop {
	most, parallel := req.GetBrief().GetMaxDuration(), req.GetEnvelope().GetMaxParallel()
	if own := l.cfg.Limits.GetTimeout(); own != nil {
		most = own
	}
	if most == l.cfg.Limits.GetTimeout() && parallel == 0 {
		return l
	}
	c := *l
	setDuration(&c.limits.timeout, most) // members have deadlines of their own, which keep advancing while the run is paused
	if parallel > 0 {
		c.limits.maxParallel = min(c.limits.maxParallel, int(parallel))
	}
	return &c
}

// steps marks the agents that are loops: they are never called again as a
// whole, only the leaves below them are retried.
func (*Loop) steps() {}

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

// checkGuards returns what is wrong with lists of middlewares.
func checkGuards(cfg *Config) []error {
	id, g := cfg.ID, &cfg.Guards
	var faults []error
	if cfg.Scheduler != nil && cfg.Scheduler.Traits().Detaches && len(g.Result) > 0 {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
			"team %q: guards.result cannot look at work that is a task of its own; use WAIT or CANCEL for open delegations", id))
	}
	for _, l := range []struct {
		name   string
		guards []agent.Guard
	}{{"input", g.Input}, {"output", g.Output}, {"delegation", g.Delegation}, {"result", g.Result}} {
		for i := range l.guards {
			if m := l.guards[i].Middleware; m == nil || m.Name() == "" {
				faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
					"%q: guards.%s[%d] has no middleware with a name; give it one", id, l.name, i))
			}
		}
	}
	return faults
}

// silent reports whether text of the scope's own models is held back until it
// has been looked at as a whole.
func (l *Loop) silent() bool { return len(l.cfg.Guards.Output) > 0 || l.traits.WithholdsText }

// withholds reports whether readers of the team see nothing that members say but
// what is in the answer, which is looked at.
func (l *Loop) withholds() bool { return len(l.cfg.Guards.Output) > 0 }
