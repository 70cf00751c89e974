package team

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Remembers implements agent.Rememberer.
func (l *Loop) Remembers() bool { return l.cfg.Memory }

// recall begins a state with what its run knows of the conversation: the history
// of the agent's own path, before what its caller shows it of the present run,
// and the keys that it has set. Any other history that a caller gives stands instead of
// its own. An agent without members remembers only as a root: what a team gives it to do
// is the team's conversation.
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

// prepared puts on record that the team's members are, and what of its history is
// left out. It comes before the roster, so that a crash in
// between does not lose it.
func (p *process) prepared() error {
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

// preparedNote is the note that a run of a team begins with.
func preparedNote(c *Config) *teamv1.Noted {
	n := len(c.Members)
	return &teamv1.Noted{
		Code: agent.NoteTeamPrepared, Text: fmt.Sprintf("team %s has %d members", c.ID, n),
		Details: &structpb.Struct{Fields: map[string]*structpb.Value{
			"members": structpb.NewNumberValue(float64(n)), "mode": structpb.NewStringValue(c.Mode), "memory": structpb.NewBoolValue(c.Memory),
		}},
	}
}

// PastDelegations tells in a line each who did what in earlier turns, oldest
// first, from the history of a conversation. Entries that cannot be
// read are left out.
func PastDelegations(history []*a2av1.Message) []string {
	var lines []string
	eachDelegation(history, func(member, task, outcome string) {
		lines = append(lines, fmt.Sprintf("%s was asked %q: %s", member, task, outcome))
	}, func() {})
	return lines
}

// damagedDelegations counts those that cannot be read.
func damagedDelegations(history []*a2av1.Message) (n int) {
	eachDelegation(history, func(string, string, string) {}, func() { n++ })
	return n
}

// eachDelegation reads the delegations behind the answers of a history.
func eachDelegation(history []*a2av1.Message, take func(member, task, outcome string), damaged func()) {
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
				outcome = "not ended"
			}
			take(member, f["task"].GetStringValue(), outcome)
		}
	}
}
