package journal

import (
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Clock measures the time of a run, of a team in it, or of a step. It stops while its owner waits
// for people or is held by a pause of the run. The zero value is a running clock.
//
// Apply the owner's events with the method for its kind: ApplyToRun, ApplyToTeam or ApplyToStep.
type Clock struct {
	// Pauses holds the past periods in which the clock of a run or of a team was stopped. The clock
	// of a step does not keep them.
	Pauses agent.Pauses

	waits time.Time // since when the owner waits or, if it is a run, is parked; zero if neither
	held  time.Time // since when a pause holds a step; zero if none does
}

// Waits returns since when the owner has waited for people. A run that is parked because it is
// paused waits, too. The result is the zero time if the owner does not wait.
func (c *Clock) Waits() time.Time { return c.waits }

// ApplyToRun applies the next event of the run that the clock belongs to. If holds is true, the run
// is paused or stopped after the event, and a stopped clock remains stopped.
func (c *Clock) ApplyToRun(ev *teamv1.Event, holds bool) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Waiting:
		if ev.GetScope() == "" {
			c.waits = ev.GetTime().AsTime()
			return
		}
	case *teamv1.Event_Claimed, *teamv1.Event_Received:
		return
	case *teamv1.Event_Commanded:
		if k.Commanded.GetCommand() == teamv1.Commanded_COMMAND_RESUME || Cancels(k.Commanded) && ev.GetScope() != "" {
			c.start(ev, holds)
		}
		return
	case *teamv1.Event_Answered:
		c.start(ev, holds)
		return
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			c.start(ev, holds)
			return
		}
	default:
	}
	c.start(ev, false) // any other event shows that the run works
}

// start ends a wait and records its length. If holds is true, a new wait begins at once.
func (c *Clock) start(ev *teamv1.Event, holds bool) {
	if c.waits.IsZero() {
		return
	}
	now := ev.GetTime().AsTime()
	c.Pauses.Add(c.waits, now)
	c.waits = time.Time{}
	if holds {
		c.waits = now
	}
}

// ApplyToTeam applies an event of a team's scope or below it. last is the time of the event before
// it, zero for the first one. Events do not tell a team when its run began to wait; those that end
// a wait say how long it was.
func (c *Clock) ApplyToTeam(scope string, ev *teamv1.Event, last time.Time) {
	now := ev.GetTime().AsTime()
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion && agent.Within(ev.GetScope(), scope) {
			c.Pauses.Add(last, now) // a question expires while nothing runs
		}
	case *teamv1.Event_Commanded:
		if k.Commanded.GetCommand() != teamv1.Commanded_COMMAND_RESUME || !last.IsZero() {
			c.Pauses.Add(now.Add(-k.Commanded.GetWaited().AsDuration()), now)
		}
	case *teamv1.Event_Answered:
		if k.Answered.GetWaited() != nil && agent.Within(scope, k.Answered.GetWaiter()) {
			c.Pauses.Add(now.Add(-k.Answered.GetWaited().AsDuration()), now)
		}
	default:
	}
}

// ApplyToStep applies an event of a step's scope or below it. open holds the open questions of the
// step and below it, with the event applied. If the event ends a wait for people or a pause that
// held the step, ApplyToStep returns how long that was; otherwise it returns zeros.
func (c *Clock) ApplyToStep(scope string, ev *teamv1.Event, open *Questions) (waited, held time.Duration) {
	now := ev.GetTime().AsTime()
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Waiting:
		switch {
		case ev.GetScope() != scope:
		case k.Waiting.GetPaused():
			c.held = now
		case open.Hold(k.Waiting.GetQuestions()): // otherwise an answer was recorded before the wait
			c.waits = now
		}
		return 0, 0
	case *teamv1.Event_Received:
		return 0, 0
	case *teamv1.Event_Answered:
		return c.answered(now), 0
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			return c.answered(now), 0
		}
		return 0, 0
	case *teamv1.Event_Ended:
		if ev.GetScope() == scope {
			c.waits = time.Time{}
		}
	default:
	}
	return 0, c.Begin(now)
}

// answered ends the step's wait for people and returns how long it was, 0 if there was none.
func (c *Clock) answered(now time.Time) time.Duration {
	if c.waits.IsZero() {
		return 0
	}
	waited := now.Sub(c.waits)
	c.waits = time.Time{}
	return waited
}

// Begin ends the time for which a pause has held a step and returns how long it was, 0 if there was
// none.
func (c *Clock) Begin(now time.Time) time.Duration {
	if c.held.IsZero() {
		return 0
	}
	held := now.Sub(c.held)
	c.held = time.Time{}
	return held
}

// Resumed applies the end of a pause to a step that had begun, and returns how long the pause held
// it. It returns 0 for a step that waits for people, because the answer will include that time.
func (c *Clock) Resumed(ev *teamv1.Event) time.Duration {
	switch {
	case !c.waits.IsZero():
		return 0
	case c.held.IsZero():
		return ev.GetCommanded().GetWaited().AsDuration()
	}
	return c.Begin(ev.GetTime().AsTime())
}
