package leader

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/inputs"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Names of the tools that a model calls to give work to members.
const (
	delegatePrefix = "delegate_to_"
	delegateTool   = "delegate_task_to_member"
)

// maxTask is the maximum size of a task and its context together, in bytes.
const maxTask = 64 << 10

// maxToolName is the maximum length of a tool's name, in bytes.
const maxToolName = 64

// crew is the members of a team as tools of its leader. It is immutable.
type crew struct {
	style   ToolStyle
	async   bool
	members []crewMember   // highest priority first
	places  map[string]int // index in members, by member id and by tool name
	names   []string       // the keys of places
}

// crewMember is a member and the name of its tool.
type crewMember struct {
	*team.Member
	tool string
}

// ToolStyle says how members appear as tools of a leader.
type ToolStyle string

// The styles; empty is PerMember.
const (
	// PerMember gives each member a tool delegate_to_ID.
	PerMember ToolStyle = "PER_MEMBER"
	// Single has one tool for all members, delegate_task_to_member.
	Single ToolStyle = "SINGLE"
)

// newCrew names the members' tools. The error joins a fault for each name that is used twice, and for
// each member that cannot be required.
func newCrew(c *CoordinatorConfig) (*crew, error) {
	var fs team.Faults
	k := &crew{style: c.ToolStyle, async: c.Async, places: map[string]int{}}
	taken := map[string]string{}
	for i := range c.Members {
		m := &c.Members[i]
		id, tool := team.MemberID(m), delegateName(team.MemberID(m))
		if other, ok := taken[tool]; ok {
			fs.Addf(fmt.Sprintf("members[%d].id", i), "coordinator",
				"members %q and %q would both be the tool %s; give one of them another id", other, id, tool)
		}
		taken[tool] = id
		k.members = append(k.members, crewMember{m, tool})
	}
	slices.SortStableFunc(k.members, func(a, b crewMember) int { return int(b.Priority) - int(a.Priority) })
	for i := range k.members {
		k.places[k.members[i].tool] = i
	}
	for i := range k.members {
		k.places[team.MemberID(k.members[i].Member)] = i // an id takes precedence over the tool of another member
	}
	k.names = slices.Sorted(maps.Keys(k.places))
	for i, t := range c.Tools {
		name := t.Spec().Name
		if other, ok := taken[name]; ok {
			fs.Addf(fmt.Sprintf("leader.tools[%d]", i), "coordinator",
				"tool %s has the name of the tool that stands for member %q; rename one of them", name, other)
		}
		if name == delegateTool || name == checkTool {
			fs.Addf(fmt.Sprintf("leader.tools[%d]", i), "coordinator", "tool %s has the name of a built-in tool of leaders; rename it", name)
		}
	}
	k.checkRequired(&fs, c)
	k.checkAccepted(&fs, c)
	return k, fs.Err()
}

// checkRequired adds the faults of required members: their work must be part of the run, and the run
// must be able to call all of them.
func (k *crew) checkRequired(fs *team.Faults, c *CoordinatorConfig) {
	required, most := 0, limit(c.Limits.GetMaxDelegations(), DefaultDelegations)
	for i := range c.Members {
		m := &c.Members[i]
		if !m.Required {
			continue
		}
		at := fmt.Sprintf("members[%d].required", i)
		if required++; required == most+1 {
			fs.Addf(at, "coordinator", "more members are required than the %d that a run may call (limits.max_delegations); raise it, or require fewer", most)
		}
		if c.OpenDelegations == DetachOpen && k.isAsync(&crewMember{Member: m}) {
			fs.Addf(at, "coordinator", "member %q is required, but its work becomes a task of its own, which no run waits for (on_open_delegations: detach); set async: false for it, or remove required", team.MemberID(m))
		}
	}
}

// checkAccepted adds the faults of members whose results have to be accepted, but whose work becomes a
// task of its own.
func (k *crew) checkAccepted(fs *team.Faults, c *CoordinatorConfig) {
	for i := range c.Members {
		if m := &c.Members[i]; m.Accept != nil && c.OpenDelegations == DetachOpen && k.isAsync(&crewMember{Member: m}) {
			fs.Addf(fmt.Sprintf("members[%d].accept", i), "coordinator",
				"the work of member %q becomes a task of its own (on_open_delegations: detach), whose result is not judged; set async: false for it, or remove accept", team.MemberID(m))
		}
	}
}

// invalidToolChars matches characters that providers do not accept in the name of a tool.
var invalidToolChars = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// delegateName returns the name of a member's tool. Invalid characters are replaced; a long name is
// cut and ends with a hash of the id.
func delegateName(id string) string {
	name := delegatePrefix + invalidToolChars.ReplaceAllString(id, "_")
	if len(name) <= maxToolName {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return fmt.Sprintf("%s_%08x", name[:maxToolName-9], h.Sum32())
}

// find returns the member with an id or a tool of that name, see [prompt.Named]; nil if there is none.
func (k *crew) find(name string) *crewMember {
	if k == nil {
		return nil
	}
	if i, ok := k.places[name]; ok {
		return &k.members[i]
	}
	if name, ok := prompt.Named(name, k.names); ok {
		return &k.members[k.places[name]]
	}
	return nil
}

// enabled returns the ids of the members that can be called.
func (k *crew) enabled() []string {
	var ids []string
	for _, m := range k.members {
		if !m.Disabled {
			ids = append(ids, team.MemberID(m.Member))
		}
	}
	return ids
}

func (k *crew) anyEnabled() bool {
	return slices.ContainsFunc(k.members, func(m crewMember) bool { return !m.Disabled })
}

// delegates reports whether a call addresses a member, in any of the spellings that models use. own
// are the leader's other tools.
func (k *crew) delegates(call *teamv1.ToolCall, own []agent.ToolSpec) bool {
	name := call.GetName()
	switch {
	case k == nil || slices.ContainsFunc(own, func(t agent.ToolSpec) bool { return t.Name == name }):
		return false
	case name == delegateTool, hasDelegatePrefix(name):
		return true
	}
	return k.find(name) != nil
}

func hasDelegatePrefix(name string) bool {
	return len(name) >= len(delegatePrefix) && strings.EqualFold(name[:len(delegatePrefix)], delegatePrefix)
}

// delegation is a parsed call of a member.
type delegation struct {
	member *crewMember
	task   string                     // task and context
	inputs map[string]*structpb.Value // what the leader gives by name
}

// read parses a call of a member. The error tells the leader what to change; the delegation then
// has as much as was read, and may be nil.
func (k *crew) read(call *teamv1.ToolCall) (*delegation, *agent.Error) {
	args, argErr := prompt.Arguments(call.GetArguments())
	id, err := k.called(call.GetName(), args, argErr)
	if err != nil {
		return nil, refusedCall(agent.ReasonInvalidRequest, err)
	}
	d := &delegation{member: k.find(id)}
	switch {
	case d.member == nil:
		return nil, refusedCall(agent.ReasonMemberNotFound, fmt.Errorf("there is no member %q; %s", agent.Quote(id), k.listed()))
	case d.member.Disabled:
		id = team.MemberID(d.member.Member)
		return d, refusedCall(agent.ReasonDisabled, fmt.Errorf("member %q is disabled; %s", id, k.others(nil)))
	case argErr != nil:
		return d, refusedCall(agent.ReasonInvalidRequest, argErr)
	}
	if d.task, err = taskOf(args); err != nil {
		return d, refusedCall(agent.ReasonInvalidRequest, err)
	}
	if given := args["inputs"]; len(given) > 0 {
		s := &structpb.Struct{}
		if err := s.UnmarshalJSON(given); err != nil {
			return d, refusedCall(agent.ReasonInvalidRequest, errors.New("inputs is not a JSON object; write an object with a value for each name"))
		}
		d.inputs = s.GetFields()
	}
	return d, nil
}

// message returns what the member is given.
func (d *delegation) message() *a2av1.Message {
	m := agent.UserMessage("", d.task)
	if len(d.inputs) > 0 {
		m.Parts = append(m.Parts, inputs.Part(d.inputs))
	}
	return m
}

// refusedCall returns the error of a call that is refused.
func refusedCall(reason string, err error) *agent.Error {
	return agent.Errorf(agent.CodeInvalidArgument, reason, "%s", err)
}

// listed returns a text that lists the members that can be called.
func (k *crew) listed() string {
	if on := k.enabled(); len(on) > 0 {
		return "the members are " + strings.Join(on, ", ")
	}
	return "no member is enabled: answer yourself"
}

// others returns a text that lists the members that can be called, except those that are absent.
func (k *crew) others(absent []string) string {
	on := slices.DeleteFunc(k.enabled(), func(id string) bool { return slices.Contains(absent, id) })
	if len(on) == 0 {
		return "no other member is enabled: answer yourself"
	}
	return "use another one: " + strings.Join(on, ", ")
}

// warnings returns a text for each member whose tool name is not built from its id unchanged.
func (k *crew) warnings() []string {
	var texts []string
	for _, m := range k.members {
		if id := team.MemberID(m.Member); m.tool != delegatePrefix+id {
			texts = append(texts, fmt.Sprintf("the id of member %q does not fit into the name of a tool: the tool is named %s", id, m.tool))
		}
	}
	return texts
}

// tools returns the names of all tools that a leader has because of its members.
func (k *crew) tools() []string {
	names := []string{delegateTool, checkTool}
	for _, m := range k.members {
		names = append(names, m.tool)
	}
	return names
}

// called returns the id of the member that a call addresses, by the name of its tool or in
// member_id.
func (k *crew) called(tool string, args map[string]json.RawMessage, argErr error) (string, error) {
	if tool != delegateTool {
		for _, m := range k.members {
			if m.tool == tool { // a tool takes precedence over the id of another member
				return team.MemberID(m.Member), nil
			}
		}
		switch {
		case k.find(tool) != nil:
			return tool, nil
		case hasDelegatePrefix(tool):
			return tool[len(delegatePrefix):], nil
		}
		return tool, nil
	}
	if argErr != nil {
		return "", argErr
	}
	return prompt.String(args, "member_id", true)
}

// taskOf returns the task of a call, with its context.
func taskOf(args map[string]json.RawMessage) (string, error) {
	task, err := prompt.String(args, "task", true)
	if err != nil {
		return "", err
	}
	extra, err := prompt.String(args, "context", false)
	if err != nil {
		return "", err
	}
	if extra != "" {
		task += "\n\nContext:\n" + extra
	}
	if len(task) > maxTask {
		return "", fmt.Errorf("task and context have %d bytes together, the most is %d; shorten them", len(task), maxTask)
	}
	return task, nil
}

// specs returns the tools of the enabled members.
func (k *crew) specs(s *team.State) []agent.ToolSpec {
	if k.style == Single {
		return []agent.ToolSpec{{
			Name: delegateTool, Description: "Gives a task to a member of the team and returns its result." + k.note(k.async),
			Parameters: delegateSchema(k.enabled(), k.asked(s)),
		}}
	}
	specs := make([]agent.ToolSpec, 0, len(k.members))
	known := s.Infos()
	for i := range k.members {
		if m := &k.members[i]; !m.Disabled {
			specs = append(specs, agent.ToolSpec{
				Name: m.tool, Description: "Gives a task to " + describedAs(m.Member, known.Of(m.Member)) + k.note(k.isAsync(m)), Parameters: delegateSchema(nil, lacking(s, known.Of(m.Member))),
			})
		}
	}
	return specs
}

func (k *crew) note(async bool) string {
	if async {
		return " It works while you go on: the call returns a ticket, " + checkTool + " tells how it stands."
	}
	return ""
}

// isAsync reports whether the leader continues while the member works.
func (k *crew) isAsync(m *crewMember) bool {
	if m.Async != nil {
		return *m.Async
	}
	return k.async
}

// anyAsync reports whether some enabled member works asynchronously. It is false for a nil crew.
func (k *crew) anyAsync() bool {
	return k != nil && slices.ContainsFunc(k.members, func(m crewMember) bool { return k.isAsync(&m) && !m.Disabled })
}

// describedAs returns a member's id and description in one line.
func describedAs(m *team.Member, info *teamv1.AgentInfo) string {
	if what := strings.TrimRight(team.DescriptionOf(m, info), "."); what != "" {
		return "member " + team.MemberID(m) + ": " + what + "."
	}
	return "member " + team.MemberID(m) + "."
}

// lacking returns the schema of what a member wants by name and the team has not got, so that its leader has to give it; nil
// if there is nothing.
func lacking(s *team.State, info *teamv1.AgentInfo) map[string]any {
	schema := info.GetInputs().AsMap()
	asked, _ := schema["properties"].(map[string]any)
	maps.DeleteFunc(asked, func(name string, _ any) bool { return s.Inputs[name] != nil })
	if len(asked) == 0 {
		return nil
	}
	if required, _ := schema["required"].([]any); required != nil {
		schema["required"] = slices.DeleteFunc(required, func(name any) bool { return asked[fmt.Sprint(name)] == nil })
	}
	return schema
}

// asked returns the schema of what the leader gives to members by name through one tool for all of them; nil if none of
// them wants anything.
func (k *crew) asked(s *team.State) map[string]any {
	properties, known := map[string]any{}, s.Infos()
	for i := range k.members {
		if of := lacking(s, known.Of(k.members[i].Member)); of != nil {
			properties[team.MemberID(k.members[i].Member)] = of
		}
	}
	if len(properties) == 0 {
		return nil
	}
	text, _ := json.Marshal(properties) // cannot fail for what was decoded
	return map[string]any{"type": "object", "description": "What members want by name, by member: " + string(text)}
}

// delegateSchema returns the JSON Schema of a delegation's arguments. If members is not nil, the
// arguments include member_id. inputs is the schema of what the member wants by name; nil if that is nothing.
func delegateSchema(members []string, inputs map[string]any) json.RawMessage {
	properties := map[string]any{
		"task":    map[string]any{"type": "string", "description": "What is to be done, complete: the member does not see your conversation with the user as you do."},
		"context": map[string]any{"type": "string", "description": "What the member has to know for it."},
	}
	required := []string{"task"}
	if members != nil {
		properties["member_id"] = map[string]any{"type": "string", "enum": members}
		required = []string{"member_id", "task"}
	}
	if inputs != nil {
		properties["inputs"] = inputs
	}
	if names, _ := inputs["required"].([]any); len(names) > 0 {
		required = append(required, "inputs")
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required})
	if err != nil {
		return nil // not reached: strings and maps can always be encoded
	}
	return schema
}
