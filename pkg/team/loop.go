package team

import (
	"errors"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Loop runs a scheduler: it asks for a decision and dispatches its steps until the scheduler
// replies, asks the user, or hits a limit. It implements agent.Agent except Info and HealthCheck;
// teams and model-backed agents embed it. Safe for concurrent use; runs share no state.
type Loop struct {
	cfg       *Config
	noun      string // "agent" or "team", for messages to people
	traits    Traits
	limits    limits
	tools     map[string]agent.Tool
	places    map[string]int                // index of each member in cfg.Members, by id
	last      *atomic.Pointer[infoSnapshot] // what the members said about themselves when they were last asked
	startNote *teamv1.Event_Noted           // first note of every run; nil without members
	// acceptances judge the results of the members that have Accept, by the id of the member.
	acceptances map[string]*Team
}

// NewLoop returns a loop for the configuration c. noun names it in messages to people: "team" or
// "agent". The loop uses copies of c and its members; unset fields take their defaults. The error
// joins all faults of the configuration.
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
	l := &Loop{cfg: &c, noun: noun, traits: c.Scheduler.Traits(), tools: make(map[string]agent.Tool, len(c.Tools)), places: make(map[string]int, len(c.Members)), last: &atomic.Pointer[infoSnapshot]{}}
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
	if err := l.addAcceptances(); err != nil {
		return nil, err
	}
	for _, w := range l.traits.Warnings {
		c.Log.Warn(w, zap.String(noun, c.ID))
	}
	return l, nil
}

// member returns the member with an id; nil if there is none.
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

// InputFaults returns what is wrong with the inputs in a message that a run would begin with. Each fault continues a
// sentence about the message.
func (l *Loop) InputFaults(m *a2av1.Message) []string {
	_, faults := l.cfg.Inputs.Read(m)
	return faults
}

// boundedBy returns the loop with the limits of a call: the duration of the brief, if the loop has
// no timeout of its own, and the caller's max_parallel. It returns l itself if the call sets
// neither.
func (l *Loop) boundedBy(req *teamv1.ProcessRequest) *Loop {
	most, parallel := req.GetBrief().GetMaxDuration(), req.GetEnvelope().GetMaxParallel()
	if own := l.cfg.Limits.GetTimeout(); own != nil {
		most = own
	}
	if most == l.cfg.Limits.GetTimeout() && parallel == 0 {
		return l
	}
	c := *l
	setDuration(&c.limits.timeout, most) // memberTimeout is not reduced: members' deadlines are extended for pauses on their own
	if parallel > 0 {
		c.limits.maxParallel = min(c.limits.maxParallel, int(parallel))
	}
	return &c
}

// isLoop marks agents that have steps of their own. Such an agent is never retried as a whole; only
// the leaves below it are.
func (*Loop) isLoop() {}

// validate returns all faults of the configuration, joined.
func (c *Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, format, args...))
	}
	if _, accepts := c.Scheduler.(acceptance); !accepts && !agent.ValidID(c.ID) { // the id of an acceptance is that of its member
		fault("team id %q: must match %s and must not be a reserved word", c.ID, agent.IDPattern)
	}
	if c.Scheduler == nil {
		fault("team %q has no scheduler; set Scheduler", c.ID)
	}
	if len(c.Members) > 0 && c.Registry == nil {
		fault("team %q has members but no registry; set Registry", c.ID)
	}
	seen := map[string]bool{}
	for i, m := range c.Members {
		switch {
		case m.Agent == "":
			fault("team %q: members[%d] names no agent; name one", c.ID, i)
		case seen[m.ID]:
			fault("team %q: member id %q is used twice; give one of them another id", c.ID, m.ID)
		case m.Required && m.Disabled:
			fault("team %q: member %q is required, but disabled; enable it, or do not require it", c.ID, m.ID)
		}
		seen[m.ID] = true
		faults = append(faults, m.acceptanceFaults(c, i)...)
	}
	faults = append(faults, checkGuards(c)...)
	faults = append(faults, checkLimits(c.ID, c.Limits)...)
	faults = append(faults, c.Review.faults(c, "review")...)
	return errors.Join(faults...)
}

// checkGuards returns the faults of the lists of middlewares.
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
					"%q: guards.%s[%d] has no middleware, or one without a name; set both", id, l.name, i))
			}
		}
	}
	return faults
}

// withholdsModelText reports whether the streamed text of the scope's own model is withheld until
// the whole reply has been checked.
func (l *Loop) withholdsModelText() bool {
	return len(l.cfg.Guards.Output) > 0 || l.traits.WithholdsText
}

// withholdsMemberOutput reports whether readers of the team see nothing of what members say except
// the reply, which output middlewares check.
func (l *Loop) withholdsMemberOutput() bool { return len(l.cfg.Guards.Output) > 0 }
