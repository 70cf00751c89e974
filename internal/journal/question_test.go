package journal_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestQuestions_Apply(t *testing.T) {
	asked := func(scope, id string) *teamv1.Event {
		return &teamv1.Event{Scope: scope, Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: id}}}
	}
	expired := func(scope, limit string) *teamv1.Event {
		return &teamv1.Event{Scope: scope, Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: limit}}}
	}
	for _, tt := range []struct {
		name string
		ev   *teamv1.Event
		want []string
	}{
		{"C-28 a question that lapsed is gone, those of others stand", expired("1.1", agent.LimitQuestion), []string{"two"}},
		{"C-28 another limit leaves them", expired("1.1", agent.LimitMemberTimeout), []string{"one", "two"}},
		{"C-28 one that was answered is gone", &teamv1.Event{Scope: "1.2", Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: "two"}}}, []string{"one"}},
		{"C-28 those of a step that ended are gone", &teamv1.Event{Scope: "1.2", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{}}}, []string{"one"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var q journal.Questions
			for _, ev := range []*teamv1.Event{asked("1.1", "one"), asked("1.2", "two"), tt.ev} {
				q.Apply(ev)
			}
			if diff := cmp.Diff(tt.want, q.IDs()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
