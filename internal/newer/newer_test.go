package newer_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/newer"
)

// with returns a message with one more field.
func with[M proto.Message](m M, number protowire.Number) M {
	r := m.ProtoReflect()
	r.SetUnknown(protowire.AppendVarint(protowire.AppendTag(r.GetUnknown(), number, protowire.VarintType), 1))
	return m
}

func TestP19_Has(t *testing.T) {
	agents := func(a *teamv1.AgentConfig) proto.Message {
		return &teamv1.Definition{Config: &teamv1.ServerConfig{Agents: map[string]*teamv1.AgentConfig{"parrot": {}, "writer": a}}}
	}
	for name, c := range map[string]struct {
		m    proto.Message
		want bool
	}{
		"known":             {agents(&teamv1.AgentConfig{Description: "Writes."}), false},
		"in a map":          {agents(with(&teamv1.AgentConfig{}, 1000)), true},
		"at the top":        {with(&teamv1.Event{}, 1000), true},
		"in a list":         {&teamv1.TeamConfig{Members: []*teamv1.MemberConfig{{}, with(&teamv1.MemberConfig{}, 1000)}}, true},
		"of the past":       {with(&teamv1.Event{}, 41), false},
		"in a field":        {&teamv1.Event{Kind: &teamv1.Event_Ended{Ended: with(&teamv1.Ended{}, 1000)}}, true},
		"lists of texts":    {&teamv1.TeamConfig{Members: []*teamv1.MemberConfig{{Agent: "a"}, {Agent: "b"}}}, false},
		"an empty message":  {&teamv1.Event{}, false},
		"two, one reserved": {with(with(&teamv1.Event{}, 41), 1000), true},
	} {
		if got := newer.Has(c.m); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
