package workflow

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Limits of plans.
const (
	maxPlan    = 256 << 10 // bytes of a plan as JSON
	maxFaults  = 20        // faults that an error about a plan has
	maxFault   = 500       // bytes of each of these faults
	maxSummary = 1000      // bytes of a list of steps on one line
	maxTask    = 500       // bytes of a task in a question
	maxShown   = 16000     // bytes of the steps in a question
)

// planForm shows how a plan is written.
const planForm = `{"steps": [{"id": "…", "member": "…", "task": "…", "after": ["…"]}]}`

// planStep is a step of a plan, in the form in which models and people write it, and in which it is
// recorded.
type planStep struct {
	ID     string   `json:"id"`
	Member string   `json:"member"`
	Task   string   `json:"task"`
	After  []string `json:"after,omitempty"`
	When   string   `json:"when,omitempty"`
}

// planSteps are the steps of a plan.
type planSteps struct {
	Steps []planStep `json:"steps"`
}

// plan is a plan that complies with its rules.
type plan struct {
	planSteps           // the steps to run
	all       planSteps // those that have finished before, and the steps to run
	flow      *Workflow // of all
}

// CheckPlan returns an error if a plan, which is JSON, does not comply with the rules. The error names
// its faults, at most maxFaults of them, in words for the model or the person who wrote the plan.
func CheckPlan(rules *teamv1.PlanRules, text string) error {
	_, err := readPlan(rules, text)
	return err
}

// readPlan parses a plan. The error is that of CheckPlan.
func readPlan(rules *teamv1.PlanRules, text string) (*plan, error) {
	p := &plan{all: stepsOf(rules.GetFinished())}
	var faults team.Faults
	if err := p.parse(rules, text, &faults); err != nil {
		return nil, err
	}
	p.check(rules, &faults)
	p.all.Steps = append(p.all.Steps, p.Steps...)
	flow, more := p.all.compile()
	if err := shown(append(faults, more...)); err != nil {
		return nil, err
	}
	p.flow = flow
	return p, nil
}

// shown returns faults as one error on one line, as far as they are of use; nil if there are none.
func shown(faults team.Faults) error {
	if len(faults) == 0 {
		return nil
	}
	var texts []string
	for _, fault := range faults[:min(len(faults), maxFaults)] {
		texts = append(texts, cut(strings.ReplaceAll(fault.Error(), "\n", "; "), maxFault))
	}
	if len(faults) > maxFaults {
		texts = append(texts, "and more")
	}
	return errors.New(strings.Join(texts, "; "))
}

// cut returns the first n bytes of a text, and an ellipsis if that is not all of it.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return agent.Excerpt(text, n) + "…"
}

// parse reads the steps. It adds the faults of single steps to faults, and returns an error if the
// text is no list of steps at all, or has more than are allowed. The list may be empty if steps have
// finished before.
func (p *plan) parse(rules *teamv1.PlanRules, text string, faults *team.Faults) error {
	if len(text) > maxPlan {
		return fmt.Errorf("the plan has %d bytes, but at most %d are allowed", len(text), maxPlan)
	}
	if inner, ok := prompt.Unwrap(text); ok {
		text = inner
	}
	var top map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &top) != nil || top == nil {
		return errors.New("the plan is not a JSON object; write " + planForm)
	}
	var list []map[string]json.RawMessage
	if raw, ok := top["steps"]; ok && json.Unmarshal(raw, &list) != nil {
		return errors.New("steps is not a list of objects; write " + planForm)
	}
	if _, ok := top["steps"]; !ok || len(list)+len(p.all.Steps) == 0 {
		return errors.New("the plan has no steps; add one")
	}
	if len(list) > int(rules.GetMaxSteps()) {
		return fmt.Errorf("the plan has %d steps, but at most %d are allowed", len(list), rules.GetMaxSteps())
	}
	for _, name := range slices.Sorted(maps.Keys(top)) {
		if name != "steps" {
			faults.Addf("", "the plan", "has the unknown field %q; it has only steps", agent.Quote(name))
		}
	}
	for i, fields := range list {
		p.Steps = append(p.Steps, readStep(i, fields, faults))
	}
	return nil
}

// stepReader reads the fields of a step.
type stepReader struct {
	fields  map[string]json.RawMessage
	subject string
	faults  *team.Faults
}

// readStep reads the i-th step.
func readStep(i int, fields map[string]json.RawMessage, faults *team.Faults) planStep {
	r := &stepReader{fields: fields, subject: fmt.Sprintf("steps[%d]", i), faults: faults}
	var s planStep
	if s.ID = r.text("id"); s.ID != "" {
		r.subject = fmt.Sprintf("step %q", agent.Quote(s.ID))
	}
	s.Member, s.Task, s.When, s.After = r.text("member"), r.text("task"), r.text("when"), r.list("after")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch name {
		case "id", "member", "task", "after", "when":
		default:
			faults.Addf("", r.subject, "has the unknown field %q; the fields are id, member, task, after and when", agent.Quote(name))
		}
	}
	return s
}

// text returns a field that is a string; empty if it is missing.
func (r *stepReader) text(name string) (text string) {
	if raw, ok := r.fields[name]; ok && json.Unmarshal(raw, &text) != nil {
		r.faults.Addf("", r.subject, "%s must be a string, got %s", name, prompt.Kind(raw))
	}
	return strings.TrimSpace(text)
}

// list returns a field that is a list of strings, without repetitions. It accepts a single string,
// because models write those.
func (r *stepReader) list(name string) (list []string) {
	raw, ok := r.fields[name]
	var one string
	switch {
	case !ok || json.Unmarshal(raw, &list) == nil:
	case json.Unmarshal(raw, &one) == nil:
		list = []string{one}
	default:
		r.faults.Addf("", r.subject, "%s must be a list of strings, got %s", name, prompt.Kind(raw))
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(text string) bool {
		again := seen[text]
		seen[text] = true
		return again
	})
}

// check adds the faults that the compilation of the steps does not find.
func (p *plan) check(rules *teamv1.PlanRules, faults *team.Faults) {
	most := len(p.all.Steps) + int(rules.GetMaxSteps())
	known := slices.Sorted(slices.Values(rules.GetMembers()))
	for i := range p.Steps {
		s := &p.Steps[i]
		if id, ok := prompt.Named(s.Member, known); ok {
			s.Member = id
		}
		subject := fmt.Sprintf("step %q", agent.Quote(s.ID))
		switch {
		case s.Member == "":
			faults.Addf("", subject, "names no member; the members are %s", strings.Join(known, ", "))
		case !slices.Contains(known, s.Member):
			faults.Add("", subject, expr.Unknown(0, s.Member, known, "there is no member %q", agent.Quote(s.Member)))
		}
		if s.Task == "" {
			faults.Addf("", subject, "has no task; write what the member is to do")
		}
		if slices.ContainsFunc(p.all.Steps, func(finished planStep) bool { return finished.ID == s.ID }) {
			faults.Addf("", subject, "has the id of a step that has finished; give it another one")
		}
		if n := len(s.After); n > most {
			faults.Addf("", subject, "runs after %d steps, but there are at most %d; name only those whose results it needs", n, most)
			s.After = nil
		}
	}
	for _, id := range rules.GetRequired() {
		if !slices.ContainsFunc(p.Steps, func(s planStep) bool { return s.Member == id && s.When == "" }) {
			faults.Addf("", "the plan", "has no step of member %q, whose work is required; add one without when", id)
		}
	}
}

// compile returns the workflow of the steps, or the first of their faults.
func (p *planSteps) compile() (*Workflow, team.Faults) {
	c := Config{Steps: make([]Step, len(p.Steps))}
	for i, s := range p.Steps {
		c.Steps[i] = Step{ID: s.ID, Member: cmp.Or(s.Member, "?"), Task: s.Task, Results: true, After: s.After, When: s.When}
	}
	return compile(c, true)
}

// json returns the steps as JSON for people, a line for each.
func (p *planSteps) json() string {
	if len(p.Steps) == 0 {
		return `{"steps": []}`
	}
	lines := make([]string, len(p.Steps))
	for i, s := range p.Steps {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(s) // cannot fail for strings
		lines[i] = "  " + strings.TrimSpace(b.String())
	}
	return "{\"steps\": [\n" + strings.Join(lines, ",\n") + "\n]}"
}

// record returns the steps as they are recorded.
func (p *planSteps) record() *structpb.Struct {
	s := &structpb.Struct{}
	_ = s.UnmarshalJSON([]byte(p.json())) // JSON of an object is valid
	return s
}

// stepsOf returns the steps of a recorded plan; none for nil.
func stepsOf(record *structpb.Struct) (p planSteps) {
	if b, err := record.MarshalJSON(); err == nil {
		_ = json.Unmarshal(b, &p) // the record was made by record
	}
	return p
}

// String lists the steps on one line. A long list is cut.
func (p *planSteps) String() string {
	if len(p.Steps) == 0 {
		return "no more steps"
	}
	steps := make([]string, len(p.Steps))
	for i := range p.Steps {
		steps[i] = p.Steps[i].String()
	}
	return cut(strings.Join(steps, "; "), maxSummary)
}

// String returns the step without its task, on one line.
func (s *planStep) String() string {
	text := s.ID + " (" + s.Member + ")"
	if len(s.After) > 0 {
		text += " after " + strings.Join(s.After, ", ")
	}
	if s.When != "" {
		text += " if " + strconv.Quote(s.When)
	}
	return text
}

// lines lists the steps with their tasks, a line for each. What is cut ends with an ellipsis; whole
// reports whether nothing is.
func (p *planSteps) lines() (text string, whole bool) {
	if len(p.Steps) == 0 {
		return "no more steps\n", true
	}
	var b strings.Builder
	whole = true
	for i := range p.Steps {
		step, task := p.Steps[i].String(), p.Steps[i].Task
		line := fmt.Sprintf("%d. %s: %s\n", i+1, cut(step, maxSummary), strconv.Quote(cut(task, maxTask)))
		if b.Len()+len(line) > maxShown {
			fmt.Fprintf(&b, "… and %d more steps\n", len(p.Steps)-i)
			return b.String(), false
		}
		whole = whole && len(step) <= maxSummary && len(task) <= maxTask
		b.WriteString(line)
	}
	return b.String(), whole
}

// maxFlows is the maximum number of workflows that flows keeps.
const maxFlows = 64

// flows keeps the workflows of recorded plans by their content, because a decision needs the whole
// workflow. The zero value is ready to use. Safe for concurrent use.
type flows struct {
	mu   sync.Mutex
	kept map[string]*Workflow // guarded by mu
	ids  []string             // keys of kept, oldest first; guarded by mu
}

// of returns the workflow of a recorded plan.
func (f *flows) of(record *structpb.Struct) (*Workflow, error) {
	steps := stepsOf(record)
	key := steps.json()
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.kept[key]; w != nil {
		return w, nil
	}
	w, faults := steps.compile()
	if len(faults) > 0 {
		return nil, shown(faults)
	}
	if f.kept == nil {
		f.kept = map[string]*Workflow{}
	}
	if len(f.ids) == maxFlows {
		delete(f.kept, f.ids[0])
		f.ids = f.ids[1:]
	}
	f.kept[key], f.ids = w, append(f.ids, key)
	return w, nil
}
