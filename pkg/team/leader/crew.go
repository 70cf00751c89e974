package leader

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Names of the tools by which a model gives work to members.
const (
	delegatePrefix = "delegate_to_"
	delegateTool   = "delegate_task_to_member"
)

// maxTask is how many bytes a task and its context may have together.
const maxTask = 64 << 10

// maxToolName is how long the name of a tool may be.
const maxToolName = 64

// crew are the members of a team as its leader's tools. It never changes.
type crew struct {
	style   ToolStyle
	async   bool
	members []crewMember   // as the leader sees them: the highest priority first
	places  map[string]int // in members, by id and by tool
}

// crewMember is a member and the tool that stands for it.
type crewMember struct {
	*team.Member
	tool string
}

// ToolStyle is how members look to a leader.
type ToolStyle string

// The styles; empty is PerMember.
const (
	// PerMember: a tool delegate_to_ID for each member.
	PerMember ToolStyle = "PER_MEMBER"
	// Single: one tool for all, delegate_task_to_member.
	Single ToolStyle = "SINGLE"
)

// newCrew names the members' tools. The error joins a fault for each pair of
// tools that would have the same name.
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
		k.places[team.MemberID(k.members[i].Member)] = i // the id wins over another one's tool
	}
	for i, t := range c.Tools {
		name := t.Spec().Name
		if other, ok := taken[name]; ok {
			fs.Addf(fmt.Sprintf("leader.tools[%d]", i), "coordinator",
				"tool %s has the name of the tool that stands for member %q; rename one of them", name, other)
		}
		if name == delegateTool || name == checkTool {
			fs.Addf(fmt.Sprintf("leader.tools[%d]", i), "coordinator", "tool %s has the name of a tool that leaders have; rename it", name)
		}
	}
	return k, fs.Err()
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// delegateName is the name of the tool that stands for a member: what providers
// do not take is replaced, what is too long is cut behind a hash.
func delegateName(id string) string {
	name := delegatePrefix + unfit.ReplaceAllString(id, "_")
	if len(name) <= maxToolName {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return fmt.Sprintf("%s_%08x", name[:maxToolName-9], h.Sum32())
}

// find returns the member with an id, or whose tool has that name; nil is none.
func (k *crew) find(name string) *crewMember {
	if k == nil {
		return nil
	}
	if i, ok := k.places[name]; ok {
		return &k.members[i]
	}
	return nil
}

// enabled are the ids of the members that can be called.
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

// delegates reports whether a call is one of a member, in any of the spellings
// that models use. own are the names of other tools.
func (k *crew) delegates(call *teamv1.ToolCall, own []agent.ToolSpec) bool {
	name := call.GetName()
	switch {
	case k == nil || slices.ContainsFunc(own, func(t agent.ToolSpec) bool { return t.Name == name }):
		return false
	case name == delegateTool, strings.HasPrefix(name, delegatePrefix):
		return true
	}
	return k.find(name) != nil
}

// delegation is a call of a member as it was meant.
type delegation struct {
	member *crewMember
	task   string // with its context: what is handed over
}

// read makes a delegation of a call. The error tells the leader what to change.
func (k *crew) read(call *teamv1.ToolCall) (*delegation, *agent.Error) {
	args, argErr := prompt.Arguments(call.GetArguments())
	id, err := k.called(call.GetName(), args, argErr)
	if err != nil {
		return nil, refused(agent.ReasonInvalidRequest, err)
	}
	d := &delegation{member: k.find(id)}
	switch {
	case d.member == nil:
		return nil, refused(agent.ReasonMemberNotFound, fmt.Errorf("there is no member %q; %s", agent.Quote(id), k.listed()))
	case d.member.Disabled:
		id = team.MemberID(d.member.Member)
		return d, refused(agent.ReasonDisabled, fmt.Errorf("member %q is disabled; %s", id, k.others(nil)))
	case argErr != nil:
		return d, refused(agent.ReasonInvalidRequest, argErr)
	}
	if d.task, err = taskOf(args); err != nil {
		return d, refused(agent.ReasonInvalidRequest, err)
	}
	return d, nil
}

func refused(reason string, err error) *agent.Error {
	return agent.Errorf(agent.CodeInvalidArgument, reason, "%s", err)
}

// listed says who can be called.
func (k *crew) listed() string {
	if on := k.enabled(); len(on) > 0 {
		return "the members are " + strings.Join(on, ", ")
	}
	return "no member is enabled: answer yourself"
}

// others says who can be called instead of those that cannot.
func (k *crew) others(absent []string) string {
	on := slices.DeleteFunc(k.enabled(), func(id string) bool { return slices.Contains(absent, id) })
	if len(on) == 0 {
		return "no other member is enabled: answer yourself"
	}
	return "use another one: " + strings.Join(on, ", ")
}

// warnings name the members whose tools could not have their ids.
func (k *crew) warnings() []string {
	var texts []string
	for _, m := range k.members {
		if id := team.MemberID(m.Member); m.tool != delegatePrefix+id {
			texts = append(texts, fmt.Sprintf("the id of member %q does not fit into the name of a tool: the tool is named %s", id, m.tool))
		}
	}
	return texts
}

// tools are the names of the tools by which a leader gives work to members and looks
// after it.
func (k *crew) tools() []string {
	names := []string{delegateTool, checkTool}
	for _, m := range k.members {
		names = append(names, m.tool)
	}
	return names
}

// called is the member that a call names: by its tool, or in member_id.
func (k *crew) called(tool string, args map[string]json.RawMessage, argErr error) (string, error) {
	if tool != delegateTool {
		for _, m := range k.members {
			if m.tool == tool { // what is on offer wins over the id of another one
				return team.MemberID(m.Member), nil
			}
		}
		if k.find(tool) != nil {
			return tool, nil
		}
		return strings.TrimPrefix(tool, delegatePrefix), nil
	}
	if argErr != nil {
		return "", argErr
	}
	return prompt.String(args, "member_id", true)
}

// taskOf is the task of a call with its context.
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

// specs are the tools that stand for the enabled members.
func (k *crew) specs(s *team.State) []agent.ToolSpec {
	if k.style == Single {
		return []agent.ToolSpec{{
			Name: delegateTool, Description: "Gives a task to a member of the team and returns its result." + k.note(k.async),
			Parameters: delegateSchema(k.enabled()),
		}}
	}
	specs := make([]agent.ToolSpec, 0, len(k.members))
	known := s.Infos()
	schema := delegateSchema(nil)
	for i := range k.members {
		if m := &k.members[i]; !m.Disabled {
			specs = append(specs, agent.ToolSpec{
				Name: m.tool, Description: "Gives a task to " + describedAs(m.Member, known.Of(m.Member)) + k.note(k.isAsync(m)), Parameters: schema,
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

// isAsync reports whether the leader goes on while the member works.
func (k *crew) isAsync(m *crewMember) bool {
	if m.Async != nil {
		return *m.Async
	}
	return k.async
}

// anyAsync reports whether the leader can have work done meanwhile.
func (k *crew) anyAsync() bool {
	return k != nil && slices.ContainsFunc(k.members, func(m crewMember) bool { return k.isAsync(&m) && !m.Disabled })
}

// describedAs is a member in one line: id and what it does.
func describedAs(m *team.Member, info *teamv1.AgentInfo) string {
	if what := strings.TrimRight(team.DescriptionOf(m, info), "."); what != "" {
		return "member " + team.MemberID(m) + ": " + what + "."
	}
	return "member " + team.MemberID(m) + "."
}

// delegateSchema is the JSON Schema of a delegation; with members it also chooses one.
func delegateSchema(members []string) json.RawMessage {
	properties := map[string]any{
		"task":    map[string]any{"type": "string", "description": "What is to be done, complete: the member does not see your conversation with the user as you do."},
		"context": map[string]any{"type": "string", "description": "What the member has to know for it."},
	}
	required := []string{"task"}
	if members != nil {
		properties["member_id"] = map[string]any{"type": "string", "enum": members}
		required = []string{"member_id", "task"}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required})
	if err != nil {
		return nil // strings and maps can be encoded
	}
	return schema
}
