package supervisor

import (
	"cmp"
	"fmt"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/facts"
)

// DefaultRounds is the default of Loop.MaxRounds.
const DefaultRounds = 10

// Loop has the members that are not disabled work in the order of the list, again and again.
type Loop struct {
	// ExitWhen is a condition in CEL as in rules. The loop ends after a reply for which it is true. Empty means that the
	// loop ends after MaxRounds.
	ExitWhen string
	// MaxRounds is the maximum number of rounds, in which each member works once; 0 means 10. If ExitWhen is set and
	// still not true, the run fails with MAX_ROUNDS_EXCEEDED.
	MaxRounds int
	// Answer is the member whose last reply is the answer; empty means the last response.
	Answer string
}

// loop is a Loop with its compiled condition.
type loop struct {
	exit    rule
	members []string
	rounds  int
}

// compileLoop returns the loop of a configuration and adds its faults to fs.
func (v *Supervisor) compileLoop(fs *team.Faults, c *Config, ids []string) *loop {
	l := &loop{rounds: cmp.Or(c.Loop.MaxRounds, DefaultRounds), exit: rule{Rule: Rule{ID: "exit", When: c.Loop.ExitWhen, Finish: cmp.Or(c.Loop.Answer, FinishLast)}}}
	if len(c.Rules) > 0 || c.Router != nil {
		fs.Addf("", "loop", "excludes rules and a router; remove them, or the loop")
	}
	if l.rounds < 0 {
		fs.Addf("max_rounds", "loop", "max_rounds is %d; it must be at least 1, or left out for %d", l.rounds, DefaultRounds)
	}
	for i := range c.Members {
		if !c.Members[i].Disabled {
			l.members = append(l.members, ids[i])
		}
	}
	v.checkFinish(fs, "answer", "loop", c.Loop.Answer, ids)
	if c.Loop.ExitWhen != "" {
		var err error
		l.exit.when, err = v.lang.Compile(c.Loop.ExitWhen)
		fs.Add("exit_when", "loop", err)
	}
	return l
}

// next ends the run, or has the next member work.
func (l *loop) next(s *team.State, f *facts.Facts) (team.Decision, error) {
	if s.Rounds > 0 && l.exit.when != nil {
		if d, matched, err := l.exit.try(s, f); matched || err != nil {
			return d, err
		}
	}
	round, place := s.Rounds/len(l.members), s.Rounds%len(l.members)
	switch {
	case round < l.rounds:
		return team.Decision{Rule: "loop", Reason: fmt.Sprintf("round %d of at most %d", round+1, l.rounds), Steps: delegate(l.members[place:place+1], nil)}, nil
	case l.exit.when != nil:
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonMaxRounds,
			"team %q: the loop ran %d rounds, the most it may (loop.max_rounds), and %q is still not true; allow more, or ask for less", s.Team.ID, l.rounds, agent.Quote(l.exit.When))
	}
	d, _, err := l.exit.try(s, f)
	d.Reason = fmt.Sprintf("the loop ran %d rounds", l.rounds)
	return d, err
}
