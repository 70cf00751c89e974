package sqlstore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

// What is old is deleted while a store is copied into another.
func TestCopy_KeepsDefinitionsThatRunsAreTiedTo(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	from := tidied(t, sqliteURL(t), sqlstore.Config{Clock: func() time.Time { return now }})
	if err := from.PutDefinition(t.Context(), "rev", []byte("body")); err != nil {
		t.Fatal(err)
	}
	for i := range 1200 {
		id := "t" + strconv.Itoa(i)
		acc := &teamv1.Accepted{TaskId: id, Agent: "a", Owner: "o", Message: agent.UserMessage("m-"+id, "x"), Pins: &teamv1.Pins{Revisions: map[string]string{"a": "rev"}}}
		if _, _, err := from.Create(t.Context(), runs.New{Owner: "o", Accepted: acc}); err != nil {
			t.Fatal(err)
		}
	}
	later := now.Add(2 * time.Hour)
	to := tidied(t, sqliteURL(t), sqlstore.Config{Clock: func() time.Time { return later }})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = to.Sweep(context.Background())
			}
		}
	}()
	_, err := sqlstore.Copy(t.Context(), from, to)
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Definition(t.Context(), "rev"); err != nil {
		t.Errorf("Definition of runs that go on: %v", err)
	}
}

// What nobody has committed when the store closes is refused afterwards, unless it
// was written before.
func TestA_16_AClosedStoreRefuses(t *testing.T) {
	for name, url := range map[string]string{"sqlite": sqliteURL(t), "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			s := tidied(t, url, sqlstore.Config{})
			create(t, s, "one")
			j := claim(t, s, "r").Journal
			if err := j.Append(t.Context(), &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: "x"}}}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			err := j.Commit(t.Context())
			records, rerr := tidied(t, url, sqlstore.Config{}).Events(t.Context(), key("one"), 0, 10)
			if rerr != nil || len(records) == 1 && !errors.Is(err, runs.ErrStorage) || len(records) > 1 && err != nil {
				t.Errorf("Commit to a closed store: %v; on record are %v, %v", err, records, rerr)
			}
		})
	}
}
