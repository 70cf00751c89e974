package journal

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Control is the effect of the commands for a run. The zero value is that of a run without
// commands. It is not safe for concurrent use.
type Control struct {
	// Paused reports whether the run is paused. Switches counts its pauses and resumes.
	Paused   bool
	Switches int
	// PausedBy is the halt that has paused the run, nil if it is not paused or a caller has paused it.
	PausedBy *teamv1.Halt
	// CanceledBy is the halt that has canceled the run, nil if none has.
	CanceledBy *teamv1.Halt
	// Stop is the first command that stops the run, nil without one, and StoppedAt is the sequence
	// number of its event, 0 without one.
	Stop      *teamv1.Commanded
	StoppedAt int64

	canceled map[string]int64 // sequence numbers of the first cancels, by scope; nil without one
}

// Apply applies the run's next event.
func (c *Control) Apply(ev *teamv1.Event) {
	k := ev.GetCommanded()
	switch k.GetCommand() {
	case teamv1.Commanded_COMMAND_PAUSE:
		if !c.Paused {
			c.PausedBy = k.GetHalt()
		}
		c.Paused = true
		c.Switches++
	case teamv1.Commanded_COMMAND_RESUME:
		c.Paused, c.PausedBy = false, nil
		c.Switches++
	case teamv1.Commanded_COMMAND_STOP:
		if c.Stop == nil {
			c.Stop, c.StoppedAt = k, ev.GetSeq()
		}
	case teamv1.Commanded_COMMAND_CANCEL, teamv1.Commanded_COMMAND_UNSPECIFIED:
	}
	if Cancels(k) && c.canceled[ev.GetScope()] == 0 {
		if c.canceled == nil {
			c.canceled = map[string]int64{}
		}
		c.canceled[ev.GetScope()] = ev.GetSeq()
		if ev.GetScope() == "" {
			c.CanceledBy = k.GetHalt()
		}
	}
}

// Cancels reports whether a command cancels at once. A cancel does, and a stop with force set;
// other stops wait for running work.
func Cancels(c *teamv1.Commanded) bool {
	return c.GetCommand() == teamv1.Commanded_COMMAND_CANCEL || c.GetCommand() == teamv1.Commanded_COMMAND_STOP && c.GetForce()
}

// Holds reports whether the run is paused or stopped, so that no new work begins in it.
func (c *Control) Holds() bool { return c.Paused || c.Stop != nil }

// CanceledAt returns the sequence number of the first command that canceled exactly this scope at
// once, 0 without one.
func (c *Control) CanceledAt(scope string) int64 { return c.canceled[scope] }

// Canceled reports whether a scope or one above it was canceled, or the run was stopped.
func (c *Control) Canceled(scope string) bool {
	if c.Stop != nil || c.canceled[""] > 0 {
		return true
	}
	for ; scope != ""; scope = agent.Parent(scope) {
		if c.canceled[scope] > 0 {
			return true
		}
	}
	return false
}
