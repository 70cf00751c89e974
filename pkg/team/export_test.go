package team

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
	"github.com/agentteams/team-server/pkg/team/internal/step"
	"github.com/agentteams/team-server/pkg/team/internal/verdict"
)

// What the tests in package team_test see besides the exported API.

type (
	NoUpstreams = noUpstreams
	Fold        = fold
)

const (
	DefaultOutput   = step.DefaultOutput
	DefaultQuestion = step.QuestionExpiry
	DeltaAge        = step.DeltaAge
	DeltaBytes      = step.DeltaBytes
	InfoTimeout     = infoTimeout
	JudgeTool       = verdict.Tool
	LeastOutput     = step.LeastOutput
	OutcomeAgain    = step.OutcomeAgain
	OutcomeDone     = step.OutcomeDone
	OutcomeFail     = step.OutcomeFail
)

var (
	DamagedDelegations = damagedDelegations
	DetachedID         = step.DetachedID
	StageWord          = guards.StageWord
	VerdictOf          = verdict.Of
)

// Config is what the team or agent was made of.
func (l *Loop) Config() *Config { return l.cfg }

// MaxParallel is how many members of the team may work at the same time.
func (l *Loop) MaxParallel() int { return l.limits.maxParallel }

// MemberTimeoutOf is what limits leave of member_timeout.
func MemberTimeoutOf(l *teamv1.Limits) time.Duration { return effective(l).memberTimeout }

// AsTeam returns the team that a model-backed agent would be.
func AsTeam(l *Loop) *Team { return &Team{l} }

// Replay is a run of a team that is decided anew from a record.
type Replay struct{ *process }

// NewReplay returns the run at its beginning.
func NewReplay(ctx context.Context, t *Team, req *teamv1.ProcessRequest, root string) *Replay {
	return &Replay{newProcess(ctx, t.Loop, req, &agent.Run{Root: root})}
}

// Decide returns what is decided next.
func (r *Replay) Decide() (*teamv1.Decided, error) {
	d, err := r.choose()
	if err != nil {
		return nil, err
	}
	return r.newDecided(&d).GetDecided(), nil
}

func (f *fold) Apply(ev *teamv1.Event)     { f.apply(ev) }
func (f *fold) Observe(o *teamv1.Observed) { f.observe(o) }

// Closes reports whether a paused run has something of the step to close.
func (st *StepState) Closes(run *agent.Run) bool { return st.hasCanceled(run) }

// Recorded returns a step of which events are on record.
func Recorded(scope string, events []*teamv1.Event) *StepState {
	return &StepState{Scope: scope, past: step.Past{Recorded: events}}
}
