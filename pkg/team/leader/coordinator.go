package leader

import (
	"errors"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// CoordinatorConfig is what a Coordinator is made of.
type CoordinatorConfig struct {
	// Instructions of the leader, in addition to the members and how to delegate.
	Instructions string
	// Skills of the leader: their instructions are part of its system text.
	Skills []*teamv1.Skill
	// Members that can be called; what team.State.Team holds at run time.
	Members []team.Member
	// Tools of the leader's own; the team's Config.Tools holds them too.
	Tools []agent.Tool
	// AllowParallel runs the calls of one turn at the same time, at most
	// max_parallel members. Not set: one after the other, each with the results of
	// those before.
	AllowParallel bool
	// ToolStyle is how members look to the leader; default PerMember.
	ToolStyle ToolStyle
	// Async lets the leader go on while members work; a member's own setting wins.
	Async bool
	// OpenDelegations is what becomes of open work when the leader answers; default WaitOpen.
	OpenDelegations OpenDelegations
	// Wake has a task of its own that ends begin a run of the team in the same
	// conversation, with its result. Only with DetachOpen.
	Wake bool
	// StrictCycles ends the run with the first repeated delegation, instead of
	// telling the leader.
	StrictCycles bool
	// OnLimit is what becomes of the run at max_delegations, max_turns or the
	// end of its budget; default FailRun.
	OnLimit OnLimit
	// Limits: max_turns and max_delegations count here.
	Limits *teamv1.Limits
}

// OpenDelegations is what becomes of work that is open when a leader answers.
type OpenDelegations string

// The policies; empty is WaitOpen.
const (
	// WaitOpen: the run waits, and the leader is asked once more with the results.
	WaitOpen OpenDelegations = "WAIT"
	// CancelOpen: it is canceled.
	CancelOpen OpenDelegations = "CANCEL"
	// DetachOpen: asynchronous work is a task of its own from the start, and goes on.
	DetachOpen OpenDelegations = "DETACH"
)

// OnLimit is what becomes of a run at a limit.
type OnLimit string

// The policies; empty is FailRun.
const (
	// FailRun: the run fails with the limit's reason.
	FailRun OnLimit = "FAIL"
	// Finalize: the leader gets one turn without tools to answer with what there is.
	Finalize OnLimit = "FINALIZE"
)

// The limits of runs that do not set their own.
const (
	defaultTurns       = 100
	defaultDelegations = 10
)

// limit is a limit as it is set, else its default.
func limit(set int32, byDefault int) int {
	if set > 0 {
		return int(set)
	}
	return byDefault
}

// Coordinator is the scheduler of teams in which a model, the leader, calls the
// members as tools and writes the answer. The leader's text is the answer
// . Set Config.ReportErrors, so that failures go to the leader. Safe
// for concurrent use.
type Coordinator struct{ *leader }

var _ team.Scheduler = Coordinator{}

// NewCoordinator returns a coordinator. The error joins a *team.Fault for everything
// that is wrong with the configuration.
func NewCoordinator(c CoordinatorConfig) (*Coordinator, error) {
	k, err := newCrew(&c)
	if err != nil {
		return nil, err
	}
	l := &leader{
		instructions: withSkills(c.Instructions, c.Skills), crew: k, parallel: c.AllowParallel, open: c.OpenDelegations, onLimit: c.OnLimit,
		wake: c.Wake, strict: c.StrictCycles, maxTurns: limit(c.Limits.GetMaxTurns(), defaultTurns), maxDelegated: limit(c.Limits.GetMaxDelegations(), defaultDelegations),
	}
	if l.tools, err = specsOf(c.Tools); err != nil {
		return nil, err
	}
	return &Coordinator{l}, nil
}

// specsOf are what models see of tools, each name once.
func specsOf(tools []agent.Tool) ([]agent.ToolSpec, error) {
	specs := make([]agent.ToolSpec, len(tools))
	seen := map[string]bool{}
	var faults []error
	for i, t := range tools {
		specs[i] = t.Spec()
		if specs[i].Name == team.TransferTool || specs[i].Name == prompt.ReadTool {
			faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "tool %s has the name of a tool that agents have; rename it", specs[i].Name))
		}
		if seen[specs[i].Name] {
			faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "two tools are named %q; rename one of them", specs[i].Name))
		}
		seen[specs[i].Name] = true
	}
	return specs, errors.Join(faults...)
}

// withSkills is a system text with the instructions of skills behind it.
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
