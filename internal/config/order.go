package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// inListedOrder makes the order of a list of steps explicit, by setting after. A step without after
// follows the earlier steps that no other earlier step follows, except steps that depend on it.
// After the call, a step without after begins with the run, as in a stored definition. It returns
// the steps that now follow others but did not name any.
func inListedOrder(steps []*teamv1.WorkflowStep) []impliedOrder {
	l := &listing{named: map[string][]*leaf{}}
	var changed []impliedOrder
	for i, entry := range steps {
		l.add(entry, entry, i, []any{i})
	}
	for i, entry := range steps {
		if len(entry.GetAfter()) > 0 {
			continue
		}
		inherit := func(s *leaf) bool { return s.entry == i && s.from == entry }
		if entry.After = l.above(i, inherit); len(entry.GetAfter()) == 0 {
			continue
		}
		for _, s := range l.steps {
			if inherit(s) {
				changed = append(changed, impliedOrder{s.path, s.step.GetId(), entry.GetAfter()})
			}
		}
	}
	return changed
}

// impliedOrder is a step that follows others because of its position in the list.
type impliedOrder struct {
	path  []any // path of the step below steps
	id    string
	after []string
}

// listing holds the steps of a workflow; the steps of a group take the place of the
// group.
type listing struct {
	steps []*leaf
	named map[string][]*leaf // by the id of the step, or of the group that contains it
}

// leaf is a step that is not a group.
type leaf struct {
	step  *teamv1.WorkflowStep
	from  *teamv1.WorkflowStep // the step whose after applies: the step itself, or the nearest group with one
	entry int                  // index of the list entry that contains it
	path  []any
}

func (l *listing) add(s, from *teamv1.WorkflowStep, entry int, path []any) []*leaf {
	if len(s.GetAfter()) > 0 {
		from = s
	}
	var in []*leaf
	if len(s.GetParallel()) == 0 {
		one := &leaf{step: s, from: from, entry: entry, path: path}
		l.steps = append(l.steps, one)
		in = append(in, one)
	}
	for i, p := range s.GetParallel() {
		in = append(in, l.add(p, from, entry, append(slices.Clone(path), "parallel", i))...)
	}
	if s.GetId() != "" {
		l.named[s.GetId()] = in
	}
	return in
}

// before returns the direct predecessors of a step.
func (l *listing) before(s *leaf) []*leaf {
	var all []*leaf
	for _, id := range s.from.GetAfter() {
		all = append(all, l.named[id]...)
	}
	return all
}

// above returns the ids that an entry follows because of its position; inherit reports whether a
// step belongs to the entry and would follow them.
func (l *listing) above(entry int, inherit func(*leaf) bool) []string {
	waits := map[*leaf]bool{} // whether a step depends on a step of the entry
	var visit func(s *leaf) bool
	visit = func(s *leaf) bool {
		if is, seen := waits[s]; seen {
			return is
		}
		waits[s] = inherit(s)
		for _, b := range l.before(s) {
			if visit(b) {
				waits[s] = true
			}
		}
		return waits[s]
	}
	var candidates []*leaf
	followed := map[*leaf]bool{}
	for _, s := range l.steps {
		if s.entry < entry && s.step.GetId() != "" && !visit(s) {
			candidates = append(candidates, s)
			for _, b := range l.before(s) {
				followed[b] = true
			}
		}
	}
	var ids []string
	for _, s := range candidates {
		if !followed[s] {
			ids = append(ids, s.step.GetId())
		}
	}
	return ids
}

// Reordered is a step that begins later than in versions of the server in which a step without
// after began with the run.
type Reordered struct {
	Line int    `json:"line"`
	Col  int    `json:"col"`
	Team string `json:"team"`
	Step string `json:"step"`
	// After lists the steps that it now follows.
	After []string `json:"after"`
}

// String says which step it is, when it begins, and when it began before.
func (r Reordered) String() string {
	return fmt.Sprintf("step %q of team %q begins after %s; in the previous version it began with the run", r.Step, r.Team, strings.Join(r.After, ", "))
}

// KeepOrder tells the user what to write if Reordered reports steps.
const KeepOrder = "To keep the old order, put the steps into a group: steps: [{parallel: [...]}]. Where the new order is right, write version: v2."

// Reordered returns the steps of a version v1 file that begin later than in previous versions of
// the server. A version v2 file has none.
func (c *Config) Reordered() []Reordered {
	return slices.DeleteFunc(slices.Clone(c.reordered), func(r Reordered) bool {
		return c.Server.GetVersion() != "v1" || c.Addition(r.Team) != ""
	})
}

// ReorderedOf returns the steps of a team that follow others because of their position in the list,
// with their line numbers in the original document.
func (c *Config) ReorderedOf(team string) []Reordered {
	return slices.DeleteFunc(slices.Clone(c.reordered), func(r Reordered) bool { return r.Team != team })
}

// order makes the order of the steps of all workflows explicit.
func (d *document) order(server *teamv1.ServerConfig) (reordered []Reordered) {
	for _, id := range sorted(server.GetTeams()) {
		path := []any{"teams", id, "workflow", "steps"}
		if countSteps(server.GetTeams()[id].GetWorkflow().GetSteps()) > maxSteps {
			continue // a fault
		}
		for _, s := range inListedOrder(server.GetTeams()[id].GetWorkflow().GetSteps()) {
			n, _ := d.at(append(slices.Clone(path), s.path...)...)
			reordered = append(reordered, Reordered{Line: d.line(n), Col: n.Column, Team: id, Step: s.id, After: s.after})
		}
	}
	return reordered
}

// DependsOnOrder reports whether the document has a workflow in which a step other than the first
// has no after, so that its order depends on its position.
func (a Addition) DependsOnOrder() bool {
	o, err := a.Outline()
	return err == nil && len(o.ordered()) > 0
}

// SideBySide rewrites a document that was written for a version of the server in which a step
// without after began with the run, so that it keeps that meaning: it puts the steps of each
// workflow that DependsOnOrder into a group. Other documents are returned unchanged.
func (a Addition) SideBySide() []byte {
	o, err := a.Outline()
	if err != nil {
		return a.Data
	}
	lists := o.ordered()
	if len(lists) == 0 {
		return a.Data
	}
	for _, steps := range lists {
		group := &yaml.Node{Kind: yaml.SequenceNode, Style: steps.Style, Content: steps.Content}
		steps.Content = []*yaml.Node{{Kind: yaml.MappingNode, Style: steps.Style, Content: []*yaml.Node{scalar("parallel"), group}}}
	}
	data, err := encode(o.root)
	if err != nil {
		return a.Data
	}
	return data
}

// Version returns the version key of the document, or "" if the document has no such key.
func (o *Outline) Version() string {
	if _, v := child(o.root, "version"); v != nil {
		return v.Value
	}
	return ""
}

// ordered returns the lists of steps in which any entry but the first has no after.
func (o *Outline) ordered() []*yaml.Node {
	var lists []*yaml.Node
	for _, id := range o.Teams {
		steps := o.root
		for _, key := range []string{"teams", id, "workflow", "steps"} {
			if steps != nil {
				_, steps = child(steps, key)
			}
		}
		if steps == nil || steps.Kind != yaml.SequenceNode || len(steps.Content) == 0 {
			continue
		}
		if slices.ContainsFunc(steps.Content[1:], func(s *yaml.Node) bool {
			_, after := child(s, "after")
			return after == nil || len(after.Content) == 0
		}) {
			lists = append(lists, steps)
		}
	}
	return lists
}

// encode encodes nodes as a YAML document.
func encode(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(root), enc.Close())
	return b.Bytes(), err
}
