package sqlstore_test

import (
	"slices"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
)

// TestR_001_32_CollaborationsBeforeTheSchemaKnewBriefs: collaborations of the previous
// version are listed, and of tasks made since only those with a brief.
func TestR_001_32_CollaborationsBeforeTheSchemaKnewBriefs(t *testing.T) {
	for name, url := range map[string]string{"sqlite": sqliteURL(t), "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			begin := func(s *sqlstore.Store, id string) {
				n := task(id)
				n.Accepted.Collaboration = &teamv1.Brief{TaskDescription: "do it"}
				if _, _, err := s.Create(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			begin(s, "1")
			create(t, s, "2")
			s.Downgrade(t.Context(), t, 12)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, url, sqlstore.Config{})
			begin(s, "3")
			create(t, s, "4")
			// "2" is told from a collaboration by its first event.
			ids, err := s.Collaborating(t.Context(), me, a2a.RootFilter{})
			if want := []string{"3", "2", "1"}; err != nil || !slices.Equal(ids, want) {
				t.Errorf("Collaborating = %v, %v, want %v", ids, err, want)
			}
		})
	}
}
