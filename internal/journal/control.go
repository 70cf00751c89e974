package journal

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Control is what the commands for a run have changed. The zero value is that of a run
// without commands.
type Control struct {
	// Paused reports that the run is paused. Switches counts its pauses and resumes.
	Paused   bool
	Switches int
	// Stop is the first command to stop the run, and StoppedAt its sequence; nil and 0
	// without one.
	Stop      *teamv1.Commanded
	StoppedAt int64

	canceled map[string]int64 // sequences of the first cancels, by scope; nil without one
}

// Apply takes the run's next event.
func (c *Control) Apply(ev *teamv1.Event) {
	k := ev.GetCommanded()
	switch k.GetCommand() {
	case teamv1.Commanded_COMMAND_PAUSE:
		c.Paused = true
		c.Switches++
	case teamv1.Commanded_COMMAND_RESUME:
		c.Paused = false
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
	}
}

// Cancels reports whether a command cancels at once: a cancel, or a stop that does not
// wait for what runs.
func Cancels(c *teamv1.Commanded) bool {
	return c.GetCommand() == teamv1.Commanded_COMMAND_CANCEL || c.GetCommand() == teamv1.Commanded_COMMAND_STOP && c.GetForce()
}

// Holds reports whether nothing begins in the run, because it is paused or stopped.
func (c *Control) Holds() bool { return c.Paused || c.Stop != nil }

// CanceledAt returns the sequence of the first command that has canceled exactly this
// scope at once, 0 without one.
func (c *Control) CanceledAt(scope string) int64 { return c.canceled[scope] }

// Canceled reports whether a scope, or one that it is part of, was canceled, or the run
// stopped.
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
