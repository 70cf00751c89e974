package warnings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// ofNames returns warnings about inputs and outputs that are never read, or never set, ordered by team id.
func ofNames(c *teamv1.ServerConfig) []Warning {
	var all []Warning
	for _, id := range slices.Sorted(maps.Keys(c.GetTeams())) {
		n := &names{all: c, id: id, team: c.GetTeams()[id], read: map[string]bool{}}
		n.readBy()
		n.unset()
		n.unread()
		all = append(all, n.found...)
	}
	return all
}

// names looks at the names of one team.
type names struct {
	all   *teamv1.ServerConfig
	id    string
	team  *teamv1.TeamConfig
	read  map[string]bool // what is read, such as inputs.NAME; names that members ask for are both inputs and outputs
	found []Warning
}

func (n *names) warn(path, format string, args ...any) {
	n.found = append(n.found, Warning{"teams." + n.id + path, fmt.Sprintf(format, args...)})
}

// named matches a name in a template or an expression.
var named = regexp.MustCompile(`\b(inputs|outputs)(?:\.|\[["'])([A-Za-z_][A-Za-z0-9_]*)`)

// readBy notes what the texts of the team read, and what its members ask for.
func (n *names) readBy() {
	var texts []string
	for _, t := range textsOf(n.team) {
		texts = append(texts, t.text)
	}
	for _, m := range named.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		n.read[m[1]+"."+m[2]] = true
	}
	for _, m := range modes.Members(n.team) {
		for name := range n.askedBy(m.Agent) {
			n.read["inputs."+name], n.read["outputs."+name] = true, true
		}
	}
}

// askedBy returns the inputs of an agent or team.
func (n *names) askedBy(id string) map[string]*structpb.Struct {
	if a := n.all.GetAgents()[id]; a != nil {
		return a.GetInputs()
	}
	return n.all.GetTeams()[id].GetInputs()
}

// unset warns about what members ask for and the team does not have. A leader can give it.
func (n *names) unset() {
	if modes.Leader(n.team) != nil {
		return
	}
	has := append(modes.InputNames(n.team.GetInputs()), modes.OutputNames(n.team)...)
	for _, m := range modes.Members(n.team) {
		asked := n.askedBy(m.Agent)
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			if asked[name].GetFields()["default"] == nil && !slices.Contains(has, name) {
				n.warn("", "%q asks for the input %q, which is neither an input of this team nor the output of a member or step, so its work is rejected; add it to inputs, or name an output so", m.Agent, name)
			}
		}
	}
}

// unread warns about outputs that nothing reads, and about inputs that no member can see.
func (n *names) unread() {
	for _, name := range modes.OutputNames(n.team) {
		if !n.read["outputs."+name] {
			n.warn("", "nothing reads the output %q; write {{outputs.%s}} in a later task or message, have a member ask for the input %q, or remove it", name, name, name)
		}
	}
	if n.passesMessage() {
		return
	}
	for _, name := range modes.InputNames(n.team.GetInputs()) {
		if !n.read["inputs."+name] {
			n.warn(".inputs."+name, "nothing reads it; write {{inputs.%s}} in a task or question, have a member ask for it, or remove it", name)
		}
	}
}

// passesMessage reports whether a member or model may be given the message itself, with the inputs in it.
func (n *names) passesMessage() bool {
	if len(n.team.GetWorkflow().GetSteps()) == 0 {
		return true
	}
	w, err := workflow.New(modes.Workflow(n.team))
	return err != nil || len(w.Traits().Entry.Members) > 0
}
