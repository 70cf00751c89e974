package upgrade

import (
	"fmt"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestP19_ViewsOfTheirJournals: at every event of every journal the tree of the run and
// its task agree, and an outline of it with the whole.
func TestP19_ViewsOfTheirJournals(t *testing.T) {
	for _, k := range kinds()[:1] { // the journals of the other one are alike
		at := k.load(t, k.file)
		k.change(t, at.URL, still)
		s, err := sqlstore.Open(t.Context(), at.URL, sqlstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		seen := 0
		for _, owner := range []string{"acme/ann", "acme/chief"} {
			marks, err := s.Runs(t.Context(), owner, runs.RunFilter{Ended: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range marks {
				page, err := s.Events(t.Context(), runs.Key{Owner: owner, ID: m.Root}, 0, 10_000)
				if err != nil {
					t.Fatal(err)
				}
				agree(t, m.Root, page)
				seen++
			}
		}
		if seen < 80 {
			t.Errorf("%d journals were read", seen)
		}
	}
}

// agree folds a journal.
func agree(t *testing.T, root string, page []runs.Record) {
	t.Helper()
	whole, outline, task := journal.New(root, journal.Whole), journal.New(root, journal.Outline), project.New(root, "")
	for _, rec := range page {
		whole.Apply(rec.Event)
		outline.Apply(rec.Event)
		task.Apply(rec.Event)
		want := fmt.Sprint("ended ", task.Terminal(), " asks")
		for _, q := range task.Questions() {
			want += " " + q.GetQuestion()
		}
		for _, v := range []*journal.View{whole, outline} {
			got := fmt.Sprint("ended ", !v.Top.Open(), " asks")
			for _, q := range v.Questions("") {
				got += " " + q.ID()
			}
			if got != want {
				t.Fatalf("%s at %d: %s, want %s", root, rec.Seq, got, want)
			}
		}
	}
	same(t, whole, outline, task.Ended())
}

// same compares the nodes of both details, and their cost with that of the end.
func same(t *testing.T, whole, outline *journal.View, end *teamv1.Ended) {
	t.Helper()
	whole.Top.Walk(func(n *journal.Node) {
		o := outline.Node(n.Scope)
		if o == nil || o.State != n.State || o.Outcome != n.Outcome || o.Path != n.Path || o.Dropped != n.Dropped || fmt.Sprint(o.Spent()) != fmt.Sprint(n.Spent()) {
			t.Errorf("%s~%s: the outline has %v, want %v", whole.Root, n.Scope, o, n)
		}
	})
	if end == nil {
		return
	}
	var sum *teamv1.Spent
	whole.Top.Walk(func(n *journal.Node) { sum = agent.AddSpent(sum, n.Own()) })
	if sum.GetModelCalls() != end.GetSpent().GetModelCalls() || sum.GetOutputTokens() != end.GetSpent().GetOutputTokens() {
		t.Errorf("%s: all nodes together cost %v, the run %v", whole.Root, sum, end.GetSpent())
	}
}
