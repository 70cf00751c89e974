package sqlstore_test

import (
	"fmt"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
)

func asksBoss(question string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: question, Message: agent.NewMessage("go?"), Roles: []string{"boss"}}}}
}

// bosses lists what the role may answer, page by page.
func bosses(t *testing.T, s *sqlstore.Store, size int) string {
	t.Helper()
	f := runs.QuestionFilter{Account: "acme", Roles: []string{"boss"}, Limit: size}
	var all []string
	for more, pages := true, 0; more; pages++ {
		list, next, err := s.Questions(t.Context(), f)
		if err != nil || pages > 10 || next && len(list) != size {
			t.Fatalf("page %d: %v, %v, %v", pages, list, next, err)
		}
		for _, q := range list {
			all = append(all, q.Task.ID+"/"+q.Asked.GetAsked().GetQuestion())
			f.After, f.AfterSeq = q.Task.ID, q.Asked.GetSeq()
		}
		more = next
	}
	return strings.Join(all, " ")
}

// TestP15_S_51_DamagedQuestions: the others are listed, on whole pages.
func TestP15_S_51_DamagedQuestions(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("P15 S-51 "+name, func(t *testing.T) {
			s := open(t, url(t), sqlstore.Config{})
			for _, id := range []string{"one", "three", "two"} {
				create(t, s, id)
				record(t, claim(t, s, "r"), asksBoss("q1"), asksBoss("q2"))
			}
			s.Exec(t.Context(), t, `UPDATE event SET sum = sum + 1 WHERE id = 'one' OR id = 'three' AND seq = 2`)
			for size := 1; size < 5; size++ {
				if got := bosses(t, s, size); got != "three/q2 two/q1 two/q2" {
					t.Errorf("pages of %d: %q", size, got)
				}
			}
		})
	}
}

// TestS_51_CopyOfQuestions: they are copied, and closed where they came to.
func TestS_51_CopyOfQuestions(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("S-51 from SQLite to "+name, func(t *testing.T) {
			from, to := open(t, sqliteURL(t), sqlstore.Config{}), open(t, url(t), sqlstore.Config{})
			create(t, from, "one")
			c := claim(t, from, "r")
			record(t, c, asksBoss("q1"), asksBoss("q2"))
			if _, err := from.Park(t.Context(), c, runs.Park{}); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlstore.Copy(t.Context(), from, to); err != nil {
				t.Fatal(err)
			}
			if got := bosses(t, to, 9); got != "one/q1 one/q2" {
				t.Fatalf("copied are %q", got)
			}
			if _, _, err := to.Put(t.Context(), key("one"), followUp("f"), []byte("d"), nil); err != nil {
				t.Fatal(err)
			}
			record(t, claim(t, to, "r"), end())
			if got := bosses(t, to, 9); got != "" {
				t.Errorf("still open are %q", got)
			}
		})
	}
}

// TestPostgres_S_51_AnotherReplica: what one replica puts on record another one finds
// at once, also when it has driven the run before.
func TestPostgres_S_51_AnotherReplica(t *testing.T) {
	t.Parallel()
	a, b := pair(t, sqlstore.Config{})
	create(t, a, "one")
	stores := []*sqlstore.Store{a, b}
	for i := range 6 {
		here := stores[i%2]
		c := claim(t, here, fmt.Sprint("r", i%2))
		record(t, c, asksBoss(fmt.Sprint("q", i)), &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: fmt.Sprint("q", i-1)}}})
		if _, err := here.Park(t.Context(), c, runs.Park{}); err != nil {
			t.Fatal(err)
		}
		for _, s := range stores {
			if got, want := bosses(t, s, 1), fmt.Sprint("one/q", i); got != want {
				t.Errorf("%d: %q, want %q", i, got, want)
			}
		}
		if _, _, err := stores[1-i%2].Put(t.Context(), key("one"), followUp(fmt.Sprint("f", i)), []byte("d"), nil); err != nil {
			t.Fatal(err)
		}
	}
}
