package warnings

import (
	"fmt"
	"maps"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/supervisor"
)

// ofSteps returns warnings about teams whose members work until a limit ends the run, ordered by team id.
func ofSteps(c *teamv1.ServerConfig) []Warning {
	var all []Warning
	for _, id := range slices.Sorted(maps.Keys(c.GetTeams())) {
		t := c.GetTeams()[id]
		if w := overSteps(t); w.Message != "" {
			all = append(all, Warning{"teams." + id + w.Path, w.Message})
		}
		if l := t.GetLoop(); l != nil && l.GetExitWhen() == "" && l.GetMaxRounds() == 0 {
			all = append(all, Warning{"teams." + id + ".loop", fmt.Sprintf("nothing ends it before %d rounds; add exit_when: CONDITION, or max_rounds for as many rounds as you mean", supervisor.DefaultRounds)})
		}
	}
	return all
}

// overSteps returns a warning about rounds that have more steps than a run may have.
func overSteps(t *teamv1.TeamConfig) Warning {
	most, name := or(t.GetLimits().GetMaxSteps(), team.DefaultSteps), "limits.max_steps"
	if t.GetLimits().GetMaxSteps() == 0 {
		name = "the default of " + name
	}
	if rounds, members := loopOf(t); rounds*members > most {
		return Warning{".loop", fmt.Sprintf("%d rounds of %d members are %d steps, but a run has at most %d (%s), so it fails before the last round; lower max_rounds, or set limits.max_steps: %d", rounds, members, rounds*members, most, name, rounds*members)}
	}
	var steps int64
	modes.Walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) {
		if s.GetAgent() != "" {
			steps += or(s.GetRepeat().GetMax(), 1)
		}
	})
	if steps > most {
		return Warning{".workflow.steps", fmt.Sprintf("with all repeats they are %d, but a run has at most %d (%s), so it can fail before the last step; lower repeat.max, or set limits.max_steps: %d", steps, most, name, steps)}
	}
	return Warning{}
}

// loopOf returns the number of rounds of a loop, and of the members that work in each.
func loopOf(t *teamv1.TeamConfig) (rounds, members int64) {
	if t.GetLoop() == nil {
		return 0, 0
	}
	for _, m := range modes.Members(t) {
		if !m.Disabled {
			members++
		}
	}
	return or(t.GetLoop().GetMaxRounds(), supervisor.DefaultRounds), members
}
