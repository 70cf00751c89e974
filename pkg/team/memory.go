package team

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Remembers implements agent.Rememberer.
func (l *Loop) Remembers() bool { return l.cfg.Memory }

// RemembersTools implements agent.ToolRememberer.
func (l *Loop) RemembersTools() int { return l.cfg.toolMemory() }

// toolMemory returns how many tool calls of a conversation the agent remembers.
func (c *Config) toolMemory() int {
	if c.ToolMemory == nil {
		return agent.DefaultToolCalls
	}
	return *c.ToolMemory
}

// PastCalls returns, for each message of a history that is an answer, a text about the tool calls behind it;
// nil for all others. Only the last calls that the agent remembers are named.
func PastCalls(c *Config, history []*a2av1.Message) []string {
	texts := make([]string, len(history))
	left := c.toolMemory()
	for i, m := range slices.Backward(history) {
		calls := m.GetMetadata().GetFields()[agent.ToolCallsKey].GetListValue().GetValues()
		calls = calls[max(len(calls)-left, 0):]
		left -= len(calls)
		for _, v := range calls {
			f := v.GetStructValue().GetFields()
			by := ""
			if of := f["agent"].GetStringValue(); of != "" {
				by = word(of) + " called "
			}
			failed := ""
			if f["error"].GetBoolValue() {
				failed = prompt.FailedCall
			}
			texts[i] += fmt.Sprintf("\n- %s%s %s: %s%s", by, word(f["tool"].GetStringValue()), f["arguments"].GetStringValue(), failed, f["result"].GetStringValue())
		}
	}
	return texts
}

// recall adds the agent's memory of the conversation to the state: the history of its own path,
// before the history that its caller passed for the present run, and the keys that it has set. If
// the caller passed a history and the field branch of the request is not set, that history replaces
// the agent's own. An agent without members remembers only as the root of a run: inside a team, the
// conversation is the team's.
func (f *fold) recall(req *teamv1.ProcessRequest, m agent.Memory) {
	if m == nil || !f.Team.Memory || f.Scope != "" && len(f.Team.Members) == 0 {
		return
	}
	if len(f.History) == 0 || req.GetBranch() {
		f.History = slices.Concat(m.History(f.Path), f.History)
	}
	if f.Context == nil {
		f.Context = map[string]*structpb.Value{}
	}
	maps.Copy(f.Context, m.State(f.Path))
}

// recordPrepared emits the note TEAM_PREPARED, and before it a note on the delegations that were
// left out of the history because they are damaged. It emits nothing if TEAM_PREPARED is on record.
// It must be called before the event with the info and health of the members is emitted: a run
// that has that event does not call it again, so a crash between the two would lose the notes.
func (p *process) recordPrepared() error {
	for _, ev := range p.req.GetRecorded() {
		if ev.GetScope() == p.Scope && ev.GetNoted().GetCode() == agent.NoteTeamPrepared {
			return nil
		}
	}
	if n := damagedDelegations(p.History); n > 0 {
		if err := p.note(agent.NoteStorage, strconv.Itoa(n)+" earlier delegations are damaged and left out of the history"); err != nil {
			return err
		}
	}
	return p.emit("", &teamv1.Event{Kind: p.startNote})
}

// preparedNote returns the note that every run of a team begins with.
func preparedNote(c *Config) *teamv1.Noted {
	n := len(c.Members)
	return &teamv1.Noted{
		Code: agent.NoteTeamPrepared, Text: fmt.Sprintf("team %s has %d members", c.ID, n),
		Details: &structpb.Struct{Fields: map[string]*structpb.Value{
			"members": structpb.NewNumberValue(float64(n)), "mode": structpb.NewStringValue(c.Mode), "memory": structpb.NewBoolValue(c.Memory),
			"tools": structpb.NewNumberValue(float64(c.toolMemory())),
		}},
	}
}

// PastDelegations returns a line for each delegation of earlier turns in a conversation, oldest
// first: the member, its task and the outcome. Entries that cannot be parsed are left out.
func PastDelegations(history []*a2av1.Message) []string {
	var lines []string
	eachDelegation(history, func(member, task, outcome string) {
		lines = append(lines, fmt.Sprintf("%s was asked %q: %s", word(member), task, word(outcome)))
	}, func() {})
	return lines
}

// notEnded is the outcome of a delegation without one.
const notEnded = "not ended"

// oneWord matches what every id and outcome looks like.
var oneWord = regexp.MustCompile(`^([A-Za-z0-9._~-]{1,128}|` + notEnded + `)$`)

// word returns a text of the history for a prompt: in quotes unless it is one word, because callers can
// write the history of another server.
func word(s string) string {
	if oneWord.MatchString(s) {
		return s
	}
	return Quoted(s)
}

// damagedDelegations counts the entries that PastDelegations leaves out.
func damagedDelegations(history []*a2av1.Message) (n int) {
	eachDelegation(history, func(string, string, string) {}, func() { n++ })
	return n
}

// eachDelegation calls found for each delegation in the metadata of a history's messages, and
// damaged for each entry that cannot be parsed.
func eachDelegation(history []*a2av1.Message, found func(member, task, outcome string), damaged func()) {
	for _, m := range history {
		v, ok := m.GetMetadata().GetFields()[agent.DelegationsKey]
		if !ok {
			continue
		}
		if _, list := v.GetKind().(*structpb.Value_ListValue); !list {
			damaged()
			continue
		}
		for _, d := range v.GetListValue().GetValues() {
			f := d.GetStructValue().GetFields()
			member, outcome := f["member"].GetStringValue(), f["outcome"].GetStringValue()
			if member == "" {
				damaged()
				continue
			}
			if outcome == "" {
				outcome = notEnded
			}
			found(member, f["task"].GetStringValue(), outcome)
		}
	}
}
