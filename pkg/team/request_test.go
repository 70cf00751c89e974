package team_test

import (
	"context"
	"iter"
	"slices"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// twice gives work to two members at the same time.
type twice struct{ team.Base }

func (twice) Next(s *team.State) (team.Decision, error) {
	if s.Last != nil {
		return team.Decision{Reply: s.Last.Message}, nil
	}
	return team.Decision{Steps: []*teamv1.Step{
		{Kind: teamv1.Step_KIND_DELEGATE, Member: "one"}, {Kind: teamv1.Step_KIND_DELEGATE, Member: "two"},
	}}, nil
}

// below is an agent that appends its id to the path of its request, as who has members
// does.
type below struct {
	*agent.Func
	path []string
}

func (b *below) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	b.path = append(req.GetPath(), b.ID)
	return b.Func.Process(ctx, req)
}

func newBelow(id string) *below {
	return &below{Func: &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage("done"), nil
	}}}
}

// TestTeam_MembersDoNotShareTheRoomBehindTheirPath: two members that append to the path of
// their requests do not write to the same place.
func TestTeam_MembersDoNotShareTheRoomBehindTheirPath(t *testing.T) {
	one, two := newBelow("one"), newBelow("two")
	c := &changing{agents: map[string]agent.Agent{"one": one, "two": two}, health: agent.Healthy()}
	tm, err := team.New(team.Config{ID: "top", Scheduler: twice{}, Members: []team.Member{{ID: "one", Agent: "one"}, {ID: "two", Agent: "two"}}, Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	req := &teamv1.ProcessRequest{AgentId: "top", Path: []string{"a", "b"}, Depth: 2, Message: agent.UserMessage("m", "x")}
	for _, err := range tm.Process(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []*below{one, two} {
		if want := []string{"a", "b", "top", b.ID}; !slices.Equal(b.path, want) {
			t.Errorf("path %v, want %v", b.path, want)
		}
	}
}
