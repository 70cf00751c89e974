package workflow

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// node is a Step with its position in the graph of steps.
type node struct {
	Step
	path      string       // path of the step in the configuration
	from      *node        // node whose After applies: the node itself, or the nearest group that sets one
	place     int          // index in Workflow.nodes
	after     []int        // places of the direct predecessors
	before    []int        // places of the direct successors
	readers   []int        // places of the other nodes that read its result
	ancestors map[int]bool // places of all nodes that run before it
	wave      int          // number of steps on the longest path before it
	need      int          // how many of after have to succeed; 0 means all
	max       int          // maximum number of rounds, if it repeats

	when, until    *expr.Expr
	task, question *expr.Template
}

// step returns the fields of the step that are the same in each round.
func (n *node) step() *teamv1.Step {
	s := &teamv1.Step{Kind: teamv1.Step_KIND_STEP, Member: n.Member, Name: n.ID, Async: true}
	if n.Human != nil {
		s.Kind = teamv1.Step_KIND_HUMAN
	}
	if n.Timeout > 0 {
		s.Timeout = durationpb.New(n.Timeout)
	}
	s.Retry, s.Required, s.Output = n.Retry, n.Required, n.Output
	return s
}

func (n *node) subject() string {
	if n.ID == "" {
		return n.path
	}
	return fmt.Sprintf("step %q", agent.Quote(n.ID))
}

var stepID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$`)

// compiler turns the steps of a configuration into nodes.
type compiler struct {
	*Workflow
	planned bool // the steps are those of a plan
	faults  team.Faults
	sorted  []string            // the ids of all steps
	groups  map[string][]string // ids of the steps in a group, by the group's id
	paths   map[string]string   // path of the first step or group with an id
	named   expr.Names
	outputs map[string][]string // ids of the steps whose result has a name, by the name
}

// New returns a workflow. The error joins a *team.Fault for each fault of the configuration:
// invalid and unknown ids, cycles, invalid conditions and templates, and references to steps that
// may not have run.
func New(c Config) (*Workflow, error) {
	w, faults := compile(c, false)
	return w, faults.Err()
}

// compile returns a workflow, or its faults. In the tasks of a plan only the placeholders of the
// message and of results have a meaning, and of its faults it finds only the first ones.
func compile(c Config, planned bool) (*Workflow, team.Faults) {
	p := &compiler{planned: planned, Workflow: &Workflow{index: map[string]int{}}, groups: map[string][]string{}, paths: map[string]string{}, outputs: map[string][]string{}}
	if len(c.Steps) == 0 {
		p.faults.Addf("steps", "workflow", "has no steps; add one")
	}
	p.flatten("steps", c.Steps, nil)
	p.link()
	if cycle := p.order(); cycle != nil {
		p.faults.Addf(p.nodes[p.index[cycle[0]]].path+".after", "workflow",
			"steps form a cycle: %s; break it by removing one after", strings.Join(cycle, " -> "))
		return nil, p.faults
	}
	var err error
	p.sorted = slices.Sorted(maps.Keys(p.index))
	for _, n := range p.nodes {
		if n.Output != "" {
			p.outputs[n.Output] = append(p.outputs[n.Output], n.ID)
		}
	}
	p.named = expr.Names{Inputs: c.Inputs, Outputs: slices.Sorted(maps.Keys(p.outputs))}
	if p.lang, err = expr.ForSteps(p.sorted, p.named); err != nil {
		return nil, team.Faults{err}
	}
	for _, n := range p.nodes {
		if p.full() {
			break
		}
		p.check(n)
		p.compile(n)
	}
	p.lookBack()
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	return p.Workflow, nil
}

// full reports whether no more faults are of use: those of a plan are not shown in full.
func (p *compiler) full() bool { return p.planned && len(p.faults) > maxFaults }

// flatten adds a node for each step and replaces groups by their steps. It returns the ids of the
// steps. Steps without After use that of from, which is nil outside of groups.
func (p *compiler) flatten(path string, steps []Step, from *node) []string {
	var ids []string
	for i, s := range steps {
		n := &node{Step: s, path: fmt.Sprintf("%s[%d]", path, i), from: from, place: len(p.nodes)}
		p.register(n)
		if from == nil || len(s.After) > 0 {
			n.from = n
		}
		n.After = n.from.After
		if len(s.Parallel) > 0 {
			ids = append(ids, p.group(n)...)
			continue
		}
		p.nodes = append(p.nodes, n)
		ids = append(ids, s.ID)
	}
	return ids
}

// group adds the steps of a group.
func (p *compiler) group(n *node) []string {
	own := n.Step
	if own.Member != "" || own.Task != "" || own.Results || own.Join != "" || own.Quorum != 0 || own.When != "" || own.Repeat != nil || own.Human != nil || own.Timeout != 0 || own.Retry != nil || own.Required || own.Output != "" {
		p.faults.Addf(n.path, n.subject(), "is a group: besides parallel it can only have id and after; move the rest to its steps")
	}
	ids := p.flatten(n.path+".parallel", own.Parallel, n.from)
	if own.ID != "" {
		p.groups[own.ID] = ids
	}
	return ids
}

// register checks an id and stores where it is used.
func (p *compiler) register(n *node) {
	group := len(n.Parallel) > 0
	switch first, used := p.paths[n.ID]; {
	case n.ID == "" && group:
		return
	case n.ID == "":
		p.faults.Addf(n.path+".id", n.subject(), "has no id; add one")
		return
	case !stepID.MatchString(n.ID):
		p.faults.Addf(n.path+".id", n.subject(), "the id must be 1 to 63 letters, digits, _ and -, and must not begin with -")
	case used:
		p.faults.Addf(n.path+".id", n.subject(), "this id is used twice, first in %s; ids of steps must be unique", first)
		return
	}
	p.paths[n.ID] = n.path
	if !group {
		p.index[n.ID] = n.place
	}
}

// link finds the predecessors and successors of each step.
func (p *compiler) link() {
	reported := map[string]bool{} // paths with a fault: all steps of a group share its after
	for _, n := range p.nodes {
		n.ancestors = map[int]bool{}
		for i, id := range n.After {
			ids := p.groups[id]
			if _, ok := p.index[id]; ok {
				ids = []string{id}
			}
			if ids == nil {
				p.unknownAfter(n.from, fmt.Sprintf("%s.after[%d]", n.from.path, i), id, reported)
			}
			for _, id := range ids {
				if at, ok := p.index[id]; ok && !slices.Contains(n.after, at) {
					n.after = append(n.after, at)
				}
			}
		}
		slices.Sort(n.after)
	}
	for _, n := range p.nodes {
		for _, i := range n.after {
			p.nodes[i].before = append(p.nodes[i].before, n.place)
		}
	}
}

// unknownAfter adds the fault of an unknown id in after, once for each path.
func (p *compiler) unknownAfter(n *node, place, id string, reported map[string]bool) {
	if reported[place] || p.full() {
		return
	}
	reported[place] = true
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(p.paths)), func(other string) bool {
		return p.paths[other] == n.path || strings.HasPrefix(p.paths[other], n.path+".")
	})
	p.faults.Add(place, n.subject(), expr.Unknown(0, id, known, "runs after %q, which is not a step", agent.Quote(id)))
}

// order computes waves and ancestors. It returns the ids of a cycle if there is one, with the first
// id repeated at the end; nil if there is none.
func (p *compiler) order() []string {
	state := make([]int, len(p.nodes)) // 0 not visited, 1 on the current path, 2 done
	var way []string
	var visit func(n *node) []string
	visit = func(n *node) []string {
		if state[n.place] == 1 {
			return append(way[slices.Index(way, n.ID):], n.ID)
		}
		if state[n.place] == 2 {
			return nil
		}
		state[n.place] = 1
		way = append(way, n.ID)
		for _, i := range n.after {
			if cycle := visit(p.nodes[i]); cycle != nil {
				return cycle
			}
			n.wave = max(n.wave, p.nodes[i].wave+1)
			n.ancestors[i] = true
			for a := range p.nodes[i].ancestors {
				n.ancestors[a] = true
			}
		}
		way = way[:len(way)-1]
		state[n.place] = 2
		return nil
	}
	for _, n := range p.nodes {
		if cycle := visit(n); cycle != nil {
			slices.Reverse(cycle) // in the order in which the steps would run
			return cycle
		}
	}
	return nil
}

// check adds the faults that can be found without compiling expressions.
func (p *compiler) check(n *node) {
	fault := func(field, format string, args ...any) { p.faults.Addf(n.path+field, n.subject(), format, args...) }
	switch {
	case n.Member == "" && n.Human == nil:
		fault("", "has neither a member nor a question to people; set member or human")
	case n.Member != "" && n.Human != nil:
		fault(".human", "has both a member and a question to people; remove member or human")
	case n.Human != nil && strings.TrimSpace(n.Human.Question) == "":
		fault(".human.question", "is empty; write the question")
	case n.Human != nil && (n.Task != "" || n.Repeat != nil || n.Retry != nil):
		fault(".human", "a question to people cannot have task, repeat or retry; remove them")
	}
	if n.Timeout < 0 {
		fault(".timeout", "is negative; it must be more than 0, or left out")
	}
	p.checkRetry(n, fault)
	p.checkJoin(n, fault)
	if n.Repeat != nil {
		n.max = n.Repeat.Max
		switch {
		case n.max < 0:
			fault(".repeat.max", "is %d; it must be at least 1, or left out for %d", n.max, defaultRounds)
		case n.max == 0:
			n.max = defaultRounds
		}
		if n.Repeat.Until == "" {
			fault(".repeat.until", "is missing; add the condition that ends the repetition")
		}
	}
}

// checkRetry adds the faults of a retry policy.
func (p *compiler) checkRetry(n *node, fault func(field, format string, args ...any)) {
	if r := n.Retry; r != nil && r.Attempts != nil && r.GetAttempts() < 1 { //nolint:protogetter // set or not matters
		fault(".retry.attempts", "attempts is %d; it must be at least 1, or left out for the member's", r.GetAttempts())
	}
	if n.Retry.GetBackoff().AsDuration() < 0 {
		fault(".retry.backoff", "backoff is negative; use a pause such as 1s")
	}
}

// checkJoin computes how many predecessors have to succeed, and adds the faults of the join.
func (p *compiler) checkJoin(n *node, fault func(field, format string, args ...any)) {
	switch n.Join {
	case "", JoinAll:
	case JoinAny:
		n.need = 1
	case JoinQuorum:
		n.need = n.Quorum
		if len(n.after) > 0 && (n.Quorum < 1 || n.Quorum > len(n.after)) {
			fault(".quorum", "the quorum is %d, but it must be 1 to %d, the number of steps before this one", n.Quorum, len(n.after))
		}
	default:
		fault(".join", "is %q; it must be %s, %s or %s", n.Join, JoinAll, JoinAny, JoinQuorum)
	}
	if n.Quorum != 0 && n.Join != JoinQuorum {
		fault(".quorum", "quorum needs join: %s; add that, or remove quorum", JoinQuorum)
	}
	if n.Join != "" && len(n.After) == 0 {
		fault(".join", "has no effect, because no step comes before it; remove it, or add after")
	}
}

// compile compiles the conditions and templates of a step.
func (p *compiler) compile(n *node) {
	n.when = p.condition(n, ".when", n.When, false)
	if n.Repeat != nil {
		n.until = p.condition(n, ".repeat.until", n.Repeat.Until, true)
	}
	if n.Task != "" {
		n.task = p.template(n, ".task", n.Task)
	}
	if n.Human != nil {
		n.question = p.template(n, ".human.question", n.Human.Question)
	}
}

// condition compiles a condition; nil if source is empty or has faults. If own is true, the
// condition may read the step's own result.
func (p *compiler) condition(n *node, field, source string, own bool) *expr.Expr {
	if source == "" {
		return nil
	}
	e, err := p.lang.Compile(source)
	if err != nil {
		p.faults.Add(n.path+field, n.subject(), err)
		return nil
	}
	for _, name := range e.Names() {
		p.faults.Add(n.path+field, n.subject(), p.mustRunBefore(n, name, own))
	}
	return e
}

// template compiles a template; nil if it has faults.
func (p *compiler) template(n *node, field, source string) *expr.Template {
	t, err := expr.CompileTemplate(source, p.sorted, p.named)
	if p.planned {
		t, err = expr.CompilePlanned(source, p.sorted)
	}
	if err != nil {
		p.faults.Add(n.path+field, n.subject(), err)
		return nil
	}
	for _, name := range t.Names() {
		p.faults.Add(n.path+field, n.subject(), p.mustRunBefore(n, name, n.Repeat != nil))
	}
	return t
}

// lookBack finds the readers of each step's result, and the order in which steps are processed so
// that successors come before predecessors.
func (p *compiler) lookBack() {
	for _, n := range p.nodes {
		p.backwards = append(p.backwards, n.place)
		for _, name := range p.reads(n) {
			if at := p.nodes[p.index[name]]; at != n && !slices.Contains(at.readers, n.place) {
				at.readers = append(at.readers, n.place)
			}
		}
	}
	slices.SortStableFunc(p.backwards, func(a, b int) int { return p.nodes[b].wave - p.nodes[a].wave })
}

// reads returns the ids of the steps whose results a step reads when it starts.
func (p *compiler) reads(n *node) []string {
	var names []expr.Name
	if n.when != nil {
		names = n.when.Names()
	}
	for _, t := range []*expr.Template{n.task, n.question} {
		if t != nil {
			names = append(names, t.Names()...)
		}
	}
	var ids []string
	for _, name := range names {
		switch name.Of {
		case "steps":
			ids = append(ids, name.ID)
		case "outputs":
			ids = append(ids, slices.DeleteFunc(slices.Clone(p.outputs[name.ID]), func(id string) bool { return !n.ancestors[p.index[id]] })...)
		}
	}
	return ids
}

// mustRunBefore returns the fault of a reference to a step that may not have run, or to an output that no step before has;
// nil if it is valid.
func (p *compiler) mustRunBefore(n *node, name expr.Name, own bool) error {
	i := p.index[name.ID]
	switch {
	case name.Of == "inputs":
		return nil
	case name.Of == "outputs":
		if slices.ContainsFunc(p.outputs[name.ID], func(id string) bool { i := p.index[id]; return n.ancestors[i] || own && i == n.place }) {
			return nil
		}
		return &expr.Error{Message: fmt.Sprintf("reads output %q, which no step before it has; name such a step in after", name.ID), Offset: name.Offset}
	case n.ancestors[i] || own && i == n.place:
		return nil
	case i == n.place:
		return &expr.Error{Message: "reads its own result, which it does not have yet", Offset: name.Offset}
	}
	return &expr.Error{Message: fmt.Sprintf("reads step %q, which does not run before it; name it in after", name.ID), Offset: name.Offset}
}
