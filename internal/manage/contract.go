package manage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"buf.build/go/protoyaml"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/askuser"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Bounds on the values of a contract.
const (
	maxTeamName        = 100 // characters
	minRoles, maxRoles = 2, 5
	maxRounds          = 100 // a round takes at least one step, and a run has at most 100
	maxMinutes         = 60 * 24 * 365
)

var (
	// teamTypes are the valid types of a team in a contract, workflowTypes those of its workflow.
	teamTypes     = []string{"research", "content_creation", "problem_solving"}
	workflowTypes = []string{"sequential", "parallel", "hybrid"}
)

// instructions are the default instructions of well-known roles, by lower-case name.
var instructions = map[string]string{
	"researcher": "You are the researcher of a team. Gather the facts that the task needs, say where each comes from, and name what you could not find out.",
	"analyst":    "You are the analyst of a team. Work out what the facts mean for the task: compare, weigh and conclude, and give the reasons.",
	"writer":     "You are the writer of a team. Write the text that the task asks for, complete and clear, from what the others have found.",
	"editor":     "You are the editor of a team. Correct and tighten the text, check it against the task, and answer with the final version.",
}

// contract is the body of a create_team contract call (docs/collaborations.md), with what is needed
// to check it and to convert it to a workflow team.
type contract struct {
	*teamv1.ContractTeam

	models map[string]*teamv1.ModelConfig
	tools  map[string]*teamv1.ToolConfig
	faults a2aerror.Faults
}

// contractDocument returns the document of the team that a contract describes.
func (m *Manager) contractDocument(team *teamv1.ContractTeam, id string) (document, error) {
	file := m.reg.state().file.Server
	c := &contract{ContractTeam: team, models: file.GetModels(), tools: file.GetTools()}
	if !agent.ValidID(id) {
		c.faults.Add("teamId", "%.64q cannot be the id of a team; use 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit, and not a reserved word", id)
	}
	c.check()
	if len(c.faults) > 0 {
		return document{}, invalid(c.faults)
	}
	def, ids := c.definition(id)
	data, err := protoyaml.MarshalOptions{UseProtoNames: true}.Marshal(def)
	if err == nil && len(data) > maxDocument {
		err = tooLarge("contract")
	}
	return document{id: id, data: data, ids: ids, rendered: true, idField: "teamId", named: func(path []any) string { return c.field(ids[1:], path) }}, err
}

func (c *contract) check() {
	switch n := utf8.RuneCountInString(c.GetTeamName()); {
	case n < 1 || n > maxTeamName:
		c.faults.Add("team_name", "has %d characters; it must have 1 to %d", n, maxTeamName)
	case strings.TrimSpace(c.GetTeamName()) == "":
		c.faults.Add("team_name", "must not be blank")
	}
	if !slices.Contains(teamTypes, c.GetTeamType()) {
		c.faults.Add("team_type", "%.64q is unknown; use %s", c.GetTeamType(), strings.Join(teamTypes, ", "))
	}
	if n := len(c.GetAgentRoles()); n < minRoles || n > maxRoles {
		c.faults.Add("agent_roles", "has %d roles; it must have %d to %d", n, minRoles, maxRoles)
	}
	seen := map[string]bool{} // lower-case names: ids and well-known roles ignore case
	for i, r := range c.GetAgentRoles() {
		at := "agent_roles[" + strconv.Itoa(i) + "]"
		switch name := strings.TrimSpace(r.GetRoleName()); {
		case name == "" || utf8.RuneCountInString(name) > maxTeamName:
			c.faults.Add(at+".role_name", "must have 1 to %d characters", maxTeamName)
		case seen[strings.ToLower(name)]:
			c.faults.Add(at+".role_name", "%q is listed twice; role names must be unique, ignoring case", name)
		default:
			seen[strings.ToLower(name)] = true
		}
		c.agent(r, at+".agent_config")
	}
	c.workflow()
}

func (c *contract) agent(r *teamv1.ContractRole, at string) {
	a := r.GetAgentConfig()
	if a == nil {
		c.faults.Add(at, "is required")
		return
	}
	switch model := a.GetModel(); {
	case model == "":
		c.faults.Add(at+".model", "is required")
	case c.model(model) == "":
		c.faults.Add(at+".model", "%.64q is not a model of this server; known models: %s", model, strings.Join(slices.Sorted(maps.Keys(c.models)), ", "))
	}
	for i, name := range a.GetTools() {
		field := at + ".tools[" + strconv.Itoa(i) + "]"
		switch {
		case c.tools[name] == nil && name != askuser.Name:
			c.faults.Add(field, "%.64q is not a tool of this server", name)
		case slices.Contains(a.GetTools()[:i], name):
			c.faults.Add(field, "%q is listed twice", name)
		}
	}
	if strings.TrimSpace(a.GetInstructions()) == "" && instructions[wellKnown(r)] == "" {
		c.faults.Add(at+".instructions", "is required, because the role %.64q has no default instructions", r.GetRoleName())
	}
}

func (c *contract) workflow() {
	w := c.GetWorkflowConfig()
	if !slices.Contains(workflowTypes, w.GetType()) {
		c.faults.Add("workflow_config.type", "%.64q is unknown; use %s", w.GetType(), strings.Join(workflowTypes, ", "))
	}
	if n := w.GetMaxIterations(); w != nil && w.MaxIterations != nil && (n < 1 || n > maxRounds) {
		c.faults.Add("workflow_config.max_iterations", "is %d; it must be 1 to %d", n, maxRounds)
	}
	if n := w.GetTimeoutMinutes(); w != nil && w.TimeoutMinutes != nil && (n < 1 || n > maxMinutes) {
		c.faults.Add("workflow_config.timeout_minutes", "is %d; it must be 1 to %d", n, maxMinutes)
	}
}

// wellKnown returns the key of a role in instructions.
func wellKnown(r *teamv1.ContractRole) string {
	return strings.ToLower(strings.TrimSpace(r.GetRoleName()))
}

// model returns the configured name of a model that is given by that name, or by the provider's
// name for it, with or without the provider: gpt-4o, openai/gpt-4o, openai:gpt-4o. It returns "" if
// there is no such model.
func (c *contract) model(name string) string {
	if c.models[name] != nil {
		return name
	}
	for _, key := range slices.Sorted(maps.Keys(c.models)) {
		m := c.models[key]
		if m.GetName() != "" && (name == m.GetName() || name == m.GetProvider()+"/"+m.GetName() || name == m.GetProvider()+":"+m.GetName()) {
			return key
		}
	}
	return ""
}

// definition returns the workflow team with an agent for each role, and the ids of the team and the
// agents.
func (c *contract) definition(id string) (*teamv1.ServerConfig, []string) {
	def, ids := &teamv1.ServerConfig{Agents: map[string]*teamv1.AgentConfig{}}, []string{id}
	team := &teamv1.TeamConfig{
		Name: c.GetTeamName(), Description: "A team for " + strings.ReplaceAll(c.GetTeamType(), "_", " ") + ".", Workflow: &teamv1.WorkflowConfig{},
	}
	if n := c.GetWorkflowConfig().GetTimeoutMinutes(); n > 0 {
		limit := durationpb.New(time.Duration(n) * time.Minute)
		team.Limits = &teamv1.Limits{Timeout: limit, MemberTimeout: limit}
	}
	roles := c.GetAgentRoles()
	team.Review = &teamv1.ReviewConfig{ // a contract names no judge, so the model of the last role judges
		Judge: &teamv1.JudgeConfig{Model: c.model(roles[len(roles)-1].GetAgentConfig().GetModel())}, MaxRounds: c.GetWorkflowConfig().MaxIterations, //nolint:protogetter // unset is the default
	}
	members := c.memberIDs()
	for i, r := range c.GetAgentRoles() {
		a := r.GetAgentConfig()
		says := a.GetInstructions()
		if strings.TrimSpace(says) == "" {
			says = instructions[wellKnown(r)]
		}
		of := agentID(id, i, members[i])
		def.Agents[of] = &teamv1.AgentConfig{Name: r.GetRoleName(), Model: c.model(a.GetModel()), Tools: a.GetTools(), Instructions: says}
		ids = append(ids, of)
		team.Members = append(team.Members, &teamv1.MemberConfig{Agent: of, Id: members[i], Role: r.GetRoleName()})
		team.Workflow.Steps = append(team.Workflow.Steps, c.step(members, i))
	}
	if c.GetWorkflowConfig().GetType() == "parallel" {
		team.Workflow.Steps = []*teamv1.WorkflowStep{{Parallel: team.Workflow.Steps}}
	}
	def.Teams = map[string]*teamv1.TeamConfig{id: team}
	return def, ids
}

// step returns the workflow step of a role: its input is the task and the results of the steps it
// follows.
func (c *contract) step(members []string, i int) *teamv1.WorkflowStep {
	s := &teamv1.WorkflowStep{Id: members[i], Agent: members[i], Task: "{{input}}"}
	last := len(members) - 1
	switch c.GetWorkflowConfig().GetType() {
	case "sequential":
		if i > 0 {
			s.After = members[i-1 : i]
		}
	case "hybrid":
		switch {
		case i == last && last > 1:
			s.After = members[1:last]
		case i > 0:
			s.After = members[:1]
		}
	}
	for _, before := range s.GetAfter() {
		s.Task += "\n\nResult of " + before + ":\n\n{{steps." + before + ".text}}"
	}
	return s
}

// memberIDs returns a unique member id for each role.
func (c *contract) memberIDs() []string {
	var ids []string
	for i, r := range c.GetAgentRoles() {
		id := slug(r.GetRoleName())
		if id == "" || slices.Contains(ids, id) {
			id = strings.Trim(id+"-"+strconv.Itoa(i+1), "-")
		}
		ids = append(ids, id)
	}
	return ids
}

// maxID is the maximum length of an agent id.
const maxID = 63

// slug converts a name to an id of lower-case letters, digits, "_" and "-".
func slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	s := strings.TrimLeft(b.String(), "_-")
	return strings.TrimRight(s[:min(len(s), maxID-2)], "_-")
}

// agentID returns the id of the agent of a role, prefixed with the id of the team.
func agentID(team string, i int, member string) string {
	id := team + "-" + member
	if len(id) <= maxID {
		return id
	}
	tail := "-" + strconv.Itoa(i+1)
	return id[:maxID-len(tail)] + tail
}

// field returns the field of the contract that a path in the document was made from. agents are the
// ids of the roles' agents.
func (c *contract) field(agents []string, path []any) string {
	if len(path) > 2 && path[0] == "agents" {
		if i := slices.Index(agents, fmt.Sprint(path[1])); i >= 0 {
			return fmt.Sprintf("agent_roles[%d].agent_config.%v", i, path[2])
		}
	}
	if len(path) > 2 && path[0] == "teams" && path[2] == "limits" {
		return "workflow_config.timeout_minutes"
	}
	return "contract"
}

// roleErrors returns err with details by role, if it reports agents of a contract that cannot be
// set up.
func (m *Manager) roleErrors(team *teamv1.ContractTeam, id string, err error) error {
	var e *agent.Error
	if team == nil || !errors.As(err, &e) || e.Reason != agent.ReasonInitializationFailed {
		return err
	}
	file := m.reg.state().file.Server
	c := &contract{ContractTeam: team, models: file.GetModels()}
	failed := *e
	failed.Details = nil
	with := &failed
	members := c.memberIDs()
	for i, r := range team.GetAgentRoles() {
		if model := c.model(r.GetAgentConfig().GetModel()); !config.Connected(file.GetModels()[model]) {
			with = with.With(r.GetRoleName(), "model "+strconv.Quote(model)+" has no API key")
		} else if why := e.Details[agentID(id, i, members[i])]; why != "" {
			with = with.With(r.GetRoleName(), why)
		}
	}
	return with
}
