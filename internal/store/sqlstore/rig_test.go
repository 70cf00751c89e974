package sqlstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
)

const me = "acme/ann"

func key(id string) runs.Key { return runs.Key{Owner: me, ID: id} }

func task(id string) runs.New {
	m := agent.UserMessage("m-"+id, "do it")
	m.ContextId = "c"
	return runs.New{Owner: me, MessageID: "m-" + id, Digest: []byte("d"), Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Owner: me, Message: m}}
}

func create(t testing.TB, s *sqlstore.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if root, existed, err := s.Create(context.Background(), task(id)); err != nil || existed || root != id {
			t.Fatalf("Create(%s) = %q, %v, %v", id, root, existed, err)
		}
	}
}

// claim takes the one run that is due.
func claim(t testing.TB, s *sqlstore.Store, replica string) runs.Claim {
	t.Helper()
	claims, _, err := s.Claim(context.Background(), replica, engine.NewRoom(10, nil))
	if err != nil || len(claims) != 1 {
		t.Fatalf("Claim = %d of them, %v, want one", len(claims), err)
	}
	return claims[0]
}

func note(text string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: "PHASE", Text: text}}}
}

func delta(text string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "x", Text: text}}}
}

func end() *teamv1.Event {
	e := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")}}
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Ended{Ended: e}}
}

// record puts events on record.
func record(t testing.TB, c runs.Claim, events ...*teamv1.Event) {
	t.Helper()
	if err := c.Journal.Append(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
	if err := c.Journal.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// finish makes a task, and ends it.
func finish(t testing.TB, s *sqlstore.Store, id string, events ...*teamv1.Event) {
	t.Helper()
	create(t, s, id)
	c := claim(t, s, "r")
	record(t, c, append(events, end())...)
	if _, err := s.Park(context.Background(), c, runs.Park{Done: true}); err != nil {
		t.Fatal(err)
	}
}

// texts are the notes on record of a task.
func texts(t testing.TB, s runs.Store, id string) []string {
	t.Helper()
	records, err := s.Events(context.Background(), key(id), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, r := range records {
		if n := r.Event.GetNoted(); n != nil {
			list = append(list, n.GetText())
		}
	}
	return list
}

// until waits for something that another goroutine or process brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
		<-tick.C
	}
}

func id(i int) string { return fmt.Sprintf("t%05d", i) }

func followUp(id string) *teamv1.Inbound {
	return &teamv1.Inbound{Key: id, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage(id, "and this")}}}
}
