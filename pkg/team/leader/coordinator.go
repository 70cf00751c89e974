package leader

import (
	"errors"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// CoordinatorConfig is the configuration of a Coordinator.
type CoordinatorConfig struct {
	// Instructions of the leader. The prompt adds the members and how to delegate.
	Instructions string
	// Skills of the leader. Their instructions become part of its system prompt.
	Skills []*teamv1.Skill
	// Members of the team, the same as in the team's Config.
	Members []team.Member
	// Tools of the leader itself, the same as in the team's Config.
	Tools []agent.Tool
	// AllowParallel runs the calls of one turn at the same time, at most max_parallel members. If
	// it is not set, calls run one after the other, and each member is given the results of those
	// before.
	AllowParallel bool
	// ToolStyle says how members appear as tools; empty means PerMember.
	ToolStyle ToolStyle
	// Async lets the leader continue while members work. Member.Async overrides it.
	Async bool
	// OpenDelegations says what happens to open work when the leader answers; empty means WaitOpen.
	OpenDelegations OpenDelegations
	// Wake starts a run of the team in the same conversation when a detached task ends, with its
	// result as input. It requires DetachOpen.
	Wake bool
	// StrictCycles ends the run at the first repeated delegation. If it is not set, the first
	// repeat is only reported to the leader.
	StrictCycles bool
	// OnLimit says what happens at max_delegations, max_turns, max_steps, or the end of the budget;
	// empty means FailRun.
	OnLimit OnLimit
	// StickyOwner gives the next message of a conversation to the member that answered the last one,
	// without a turn of the leader, if it was the only one that answered. The member may hand the
	// message back to the leader. It requires a team with memory.
	StickyOwner bool
	// Limits of a run. The coordinator itself reads max_turns and max_delegations.
	Limits *teamv1.Limits
}

// OpenDelegations says what happens to open work when a leader answers.
type OpenDelegations string

// The policies; empty is WaitOpen.
const (
	// WaitOpen waits for the work, and asks the leader again with its results.
	WaitOpen OpenDelegations = "WAIT"
	// CancelOpen cancels the work.
	CancelOpen OpenDelegations = "CANCEL"
	// DetachOpen makes all asynchronous work a task of its own, which outlives the run.
	DetachOpen OpenDelegations = "DETACH"
)

// OnLimit says what happens to a run at a limit.
type OnLimit string

// The policies; empty is FailRun.
const (
	// FailRun ends the run with the error of the limit.
	FailRun OnLimit = "FAIL"
	// Finalize gives the leader one turn without tools to answer with what it has.
	Finalize OnLimit = "FINALIZE"
)

// Default limits.
const (
	// DefaultTurns is the maximum number of turns of a model in one call of an agent or in a run of a leader.
	DefaultTurns = 100
	// DefaultDelegations is the maximum number of delegations in a run of a coordinator team.
	DefaultDelegations = 10
)

// limit returns set if it is positive, else byDefault.
func limit(set int32, byDefault int) int {
	if set > 0 {
		return int(set)
	}
	return byDefault
}

// onLimit returns what happens at a limit. Limits may set it as well.
func onLimit(l *teamv1.Limits, set OnLimit) OnLimit {
	if l.GetOnLimit() == teamv1.OnLimit_FINALIZE {
		return Finalize
	}
	return set
}

// Coordinator is the scheduler of teams in which a model, the leader, calls the members as tools
// and writes the answer. Set ReportErrors in [team.Config], so that failures are reported to the
// leader. Safe for concurrent use.
type Coordinator struct{ *leader }

var _ team.Scheduler = Coordinator{}

// NewCoordinator returns a coordinator. The error joins a *team.Fault for each fault of the
// configuration.
func NewCoordinator(c CoordinatorConfig) (*Coordinator, error) {
	k, err := newCrew(&c)
	if err != nil {
		return nil, err
	}
	l := &leader{
		instructions: withSkills(c.Instructions, c.Skills), crew: k, parallel: c.AllowParallel, open: c.OpenDelegations, onLimit: onLimit(c.Limits, c.OnLimit),
		wake: c.Wake, strict: c.StrictCycles, sticky: c.StickyOwner, maxTurns: limit(c.Limits.GetMaxTurns(), DefaultTurns), maxDelegated: limit(c.Limits.GetMaxDelegations(), DefaultDelegations),
		maxRepeated: repeatedLimit(c.Limits),
	}
	if l.tools, err = specsOf(c.Tools); err != nil {
		return nil, err
	}
	return &Coordinator{l}, nil
}

// specsOf returns the specs of tools, whose names must be unique.
func specsOf(tools []agent.Tool) ([]agent.ToolSpec, error) {
	specs := make([]agent.ToolSpec, len(tools))
	seen := map[string]bool{}
	var faults []error
	for i, t := range tools {
		specs[i] = t.Spec()
		specs[i].Parameters = agent.ToolParameters(specs[i].Parameters)
		if specs[i].Name == team.TransferTool || specs[i].Name == prompt.ReadTool {
			faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "tool %s has the name of a built-in tool; rename it", specs[i].Name))
		}
		if seen[specs[i].Name] {
			faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "two tools are named %q; rename one of them", specs[i].Name))
		}
		seen[specs[i].Name] = true
	}
	return specs, errors.Join(faults...)
}

// withSkills returns a system prompt followed by the instructions of the skills.
func withSkills(instructions string, skills []*teamv1.Skill) string {
	var b strings.Builder
	b.WriteString(instructions)
	for _, s := range skills {
		if s.GetInstructions() == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		name := s.GetName()
		if name == "" {
			name = s.GetId()
		}
		b.WriteString("Skill " + name + ":\n" + s.GetInstructions())
	}
	return b.String()
}
