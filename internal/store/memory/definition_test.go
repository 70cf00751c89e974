package memory

import (
	"errors"
	"fmt"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// TestDefinitions has definitions as long as runs are tied to them, and those
// that nobody uses for an hour.
func TestDefinitions(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := New(Config{Clock: func() time.Time { return now }, MaxFinished: 1})
	put := func(name, body string) {
		t.Helper()
		if err := s.PutDefinition(t.Context(), name, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name, body string) {
		t.Helper()
		got, err := s.Definition(t.Context(), name)
		if string(got) != body || (body == "") != errors.Is(err, a2a.ErrNotFound) {
			t.Errorf("%s is %q, %v; want %q", name, got, err, body)
		}
	}
	want("one", "")
	put("one", "first")
	put("one", "other") // the name is that of the content
	put("two", "second")
	want("one", "first")
	begin := func(id string) {
		t.Helper()
		acc := &teamv1.Accepted{TaskId: id, Agent: "a", Pins: &teamv1.Pins{Revisions: map[string]string{"a": "one", "b": "two"}}}
		if _, _, err := s.Create(t.Context(), a2a.New{Owner: "o", Accepted: acc}); err != nil {
			t.Fatal(err)
		}
	}
	begin("1")
	now = now.Add(spareDefinition)
	put("three", "third")
	want("one", "first")
	want("two", "")
	for i := range 3 { // the run ends, and is dropped as others do
		if i > 0 {
			begin(fmt.Sprint(i + 1))
		}
		claims, _, err := s.Claim(t.Context(), "r", a2a.NewRoom(1, nil))
		if err != nil || len(claims) != 1 {
			t.Fatalf("claimed %v, %v", claims, err)
		}
		end := &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{}}}
		if err := claims[0].Journal.Append(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.definitions["one"].runs; n != 1 {
		t.Errorf("%d runs are tied to it, want 1", n)
	}
}
