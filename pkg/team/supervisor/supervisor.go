// Package supervisor has the scheduler of teams in which rules, or a model, choose the next
// members.
package supervisor

import (
	"fmt"
	"slices"
	"strconv"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/facts"
)

// Values that end a run and are not member ids.
const (
	// FinishLast ends the run with the last response.
	FinishLast = "last"
	// finishWord is what the router answers to end the run.
	finishWord = "finish"
)

// Config is the configuration of a Supervisor: rules, a router, or both.
type Config struct {
	// Rules are tried in order in each turn. The first one that is true decides.
	Rules []Rule
	// Members of the team, the same as in the team's Config.
	Members []team.Member
	// Router asks the team's model when no rule is true; nil means that there is no router.
	Router *Router
	// Loop has the members work in turn; nil means that they do not. It excludes rules and a router.
	Loop *Loop
	// Inputs are the names of the team's inputs.
	Inputs []string
}

// Rule chooses the next members, or ends the run. Either Next or Finish must be set.
type Rule struct {
	// ID of the rule, for the record; empty means its position in the list, from 1.
	ID string
	// When is the rule's condition in CEL (see [expr.Expr]); empty is always true.
	When string
	// Next are the ids of the members that work next, at the same time.
	Next []string
	// Finish ends the run with the last reply of the member that it names, or with the last
	// response if it is FinishLast.
	Finish string
	// Message is an [expr.Template] that is given to the next members in place of the last response.
	Message string
}

// Router has the team's model choose the next members.
type Router struct {
	// Instructions for the model. The prompt adds the members of the team.
	Instructions string
}

// Supervisor is the scheduler of teams in which each turn a rule or the router names the next
// members, or returns the last response to the user unchanged. Safe for concurrent use.
type Supervisor struct {
	team.Base
	rules  []rule
	router *Router
	loop   *loop
	lang   *expr.Language
	named  expr.Names
}

var _ team.Scheduler = (*Supervisor)(nil)

// rule is a Rule with its compiled condition.
type rule struct {
	Rule
	when    *expr.Expr
	message *expr.Template // nil without one
}

// New returns a supervisor. The error joins a *team.Fault for each fault of the configuration.
func New(c Config) (*Supervisor, error) {
	ids := make([]string, len(c.Members))
	for i, m := range c.Members {
		ids[i] = team.MemberID(&m)
	}
	named := expr.Names{Inputs: c.Inputs, Outputs: outputs(c.Members)}
	lang, err := expr.ForRules(ids, named)
	if err != nil {
		return nil, err
	}
	v := &Supervisor{router: c.Router, lang: lang, named: named}
	var fs team.Faults
	if c.Loop != nil {
		v.loop = v.compileLoop(&fs, &c, ids)
		return v, fs.Err()
	}
	if len(c.Rules) == 0 && c.Router == nil {
		fs.Addf("", "supervisor", "has neither rules nor a router; add rules or a router")
	}
	if c.Router != nil && slices.Contains(ids, finishWord) {
		fs.Addf("router", "supervisor", "member id %q is reserved: the router uses it to end the run; give that member another id", finishWord)
	}
	used := map[string]bool{}
	for i, r := range c.Rules {
		path := fmt.Sprintf("rules[%d]", i)
		if r.ID == "" {
			r.ID = strconv.Itoa(i + 1)
		}
		subject := fmt.Sprintf("rule %q", r.ID)
		if used[r.ID] {
			fs.Addf(path+".id", subject, "this id is used twice; ids of rules must be unique")
		}
		used[r.ID] = true
		v.rules = append(v.rules, v.compile(&fs, path, subject, r, ids))
	}
	return v, fs.Err()
}

// outputs returns the names of the results of members.
func outputs(members []team.Member) []string {
	var names []string
	for _, m := range members {
		if m.Output != "" {
			names = append(names, m.Output)
		}
	}
	return names
}

// compile returns a compiled rule and adds its faults to fs.
func (v *Supervisor) compile(fs *team.Faults, path, subject string, r Rule, ids []string) rule {
	if (len(r.Next) == 0) == (r.Finish == "") {
		fs.Addf(path, subject, "needs either next or finish")
	}
	known := slices.Sorted(slices.Values(ids))
	for i, id := range r.Next {
		switch at := fmt.Sprintf("%s.next[%d]", path, i); {
		case !slices.Contains(ids, id):
			fs.Add(at, subject, expr.Unknown(0, id, known, "no such member %q", id))
		case slices.Index(r.Next, id) < i:
			fs.Addf(at, subject, "names member %q twice", id)
		}
	}
	v.checkFinish(fs, path+".finish", subject, r.Finish, ids)
	if r.Message != "" && r.Finish != "" {
		fs.Addf(path+".message", subject, "has a message but no next members: finish returns the answer unchanged; remove message")
	}
	compiled := rule{Rule: r}
	if r.When != "" {
		var err error
		compiled.when, err = v.lang.Compile(r.When)
		fs.Add(path+".when", subject, err)
	}
	if r.Message != "" {
		var err error
		compiled.message, err = expr.CompileTemplate(r.Message, nil, v.named)
		fs.Add(path+".message", subject, err)
	}
	return compiled
}

// checkFinish adds the fault of a name that is neither that of a member nor FinishLast.
func (v *Supervisor) checkFinish(fs *team.Faults, path, subject, name string, ids []string) {
	if name != "" && name != FinishLast && !slices.Contains(ids, name) {
		choices := slices.Sorted(slices.Values(append(ids[:len(ids):len(ids)], FinishLast)))
		fs.Add(path, subject, expr.Unknown(0, name, choices, "no such member %q", name))
	}
}

// Traits implements [team.Scheduler]. Members see the branch, so that one that is asked again has what it
// wrote before. A loop bounds repetitions itself.
func (v *Supervisor) Traits() team.Traits {
	return team.Traits{History: team.HistoryParent, DetectsCycles: v.loop != nil}
}

// Next implements [team.Scheduler].
func (v *Supervisor) Next(s *team.State) (team.Decision, error) {
	if err := team.Staffed(s); err != nil {
		return team.Decision{}, err
	}
	if turns := routes(s); len(turns) > 0 {
		return v.routed(s, turns)
	}
	known := facts.Of(s)
	if v.loop != nil {
		return v.loop.next(s, known)
	}
	for i := range v.rules {
		d, matched, err := v.rules[i].try(s, known)
		if matched || err != nil {
			return d, err
		}
	}
	if v.router == nil {
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError,
			"team %q: no rule is true in turn %d; add one that is, for example with finish: %s, or a router",
			s.Team.ID, s.Rounds+1, FinishLast)
	}
	return askRouter("no rule is true"), nil
}

// try returns the decision of the rule if its condition is true.
func (r *rule) try(s *team.State, f *facts.Facts) (team.Decision, bool, error) {
	d := team.Decision{Rule: r.ID, Reason: "always"}
	if r.when != nil {
		matched, values, err := r.when.Eval(f.Value)
		if err != nil {
			return d, false, facts.Failed(fmt.Sprintf("team %q: rule %q", s.Team.ID, r.ID), err)
		}
		if !matched {
			return d, false, nil
		}
		d.Reason, d.Values = r.When, values
	}
	if r.Finish == "" {
		message, err := r.input(s, f)
		d.Steps = delegate(r.Next, message)
		return d, true, err
	}
	d.Reply = response(s, r.Finish)
	if d.Reply == nil {
		return d, false, agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
			"team %q: rule %q ends the run with the reply of %q, but there is none; let that member work first", s.Team.ID, r.ID, r.Finish)
	}
	return d, true, nil
}

// input returns what the next members are given; nil stands for the last of the current messages.
func (r *rule) input(s *team.State, f *facts.Facts) (*a2av1.Message, error) {
	if r.message == nil {
		return nil, nil //nolint:nilnil // as it says
	}
	return r.message.Message(fmt.Sprintf("team %q: the message of rule %q", s.Team.ID, r.ID), f.Given(nil))
}

// response returns the message that a run finishes with; nil if there is none yet.
func response(s *team.State, finish string) *a2av1.Message {
	if finish == FinishLast {
		if s.Last == nil {
			return nil
		}
		return s.Last.Message
	}
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if st := s.Steps[i]; st.Done && st.Message != nil && st.ByMember() && st.Step.GetMember() == finish {
			return st.Message
		}
	}
	return nil
}

// delegate returns a step for each member. nil stands for the last of the current messages.
func delegate(members []string, message *a2av1.Message) []*teamv1.Step {
	steps := make([]*teamv1.Step, len(members))
	for i, id := range members {
		steps[i] = &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: id}
		if message != nil {
			steps[i].Input = &teamv1.Input{Message: message}
		}
	}
	return steps
}
