package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/memory"
	"github.com/agentteams/team-server/internal/store/storetest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, clock func() time.Time) store.Store {
		return memory.New(memory.Config{Clock: clock})
	})
}

func TestKeep(t *testing.T) {
	storetest.RunKeep(t, func(_ testing.TB, clock func() time.Time, keep store.Keep) storetest.Sweeper {
		return memory.New(memory.Config{Clock: clock, Keep: keep})
	})
}

const me = "acme/ann"

func newTask(i int) a2a.New {
	id := fmt.Sprintf("t%07d", i)
	return a2a.New{Owner: me, MessageID: "m-" + id, Accepted: &teamv1.Accepted{
		TaskId: id, Agent: "a", Owner: me, Message: &a2av1.Message{MessageId: "m-" + id, ContextId: fmt.Sprint("c", i%1000), Parts: agent.TextParts("do it")},
	}}
}

func note() *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: "PHASE", Text: "x"}}}
}

func end() *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}}}
}

// claimed makes a task and claims it.
func claimed(t testing.TB, s *memory.Store, i int) a2a.Claim {
	t.Helper()
	if _, _, err := s.Create(t.Context(), newTask(i)); err != nil {
		t.Fatal(err)
	}
	claims, _, err := s.Claim(t.Context(), "r", a2a.NewRoom(1, nil))
	if err != nil || len(claims) != 1 {
		t.Fatalf("Claim = %v, %v", claims, err)
	}
	return claims[0]
}

func TestMemory_keeps_the_last_finished_runs(t *testing.T) {
	s := memory.New(memory.Config{MaxFinished: 2})
	claimed(t, s, 99) // goes on, and stays
	for i := range 3 {
		if err := claimed(t, s, i).Journal.Append(t.Context(), end()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.List(t.Context(), me, a2a.Filter{})
	if err != nil || page.Total != 3 {
		t.Fatalf("List = %v, %v, want 3 tasks", page, err)
	}
	key := a2a.Key{Owner: me, ID: newTask(0).Accepted.GetTaskId()}
	if _, _, err := s.Task(t.Context(), key); !errors.Is(err, a2a.ErrNotFound) {
		t.Fatalf("Task of the oldest: %v, want ErrNotFound", err)
	}
	if _, err := s.Events(t.Context(), key, 0, 1); !errors.Is(err, a2a.ErrNotFound) {
		t.Fatalf("Events of the oldest: %v, want ErrNotFound", err)
	}
	if _, existed, err := s.Create(t.Context(), newTask(0)); existed || err != nil {
		t.Fatalf("Create again = %v, %v, want a new task", existed, err)
	}
}

func TestMemory_refuses_claims_of_another_store(t *testing.T) {
	s, other := memory.New(memory.Config{}), memory.New(memory.Config{})
	if err := s.Park(t.Context(), claimed(t, other, 0), a2a.Park{}); err == nil {
		t.Fatal("parked")
	}
}

func TestMemory_append_without_watchers_allocates_little(t *testing.T) {
	s := memory.New(memory.Config{})
	j := claimed(t, s, 0).Journal
	ev := make([]*teamv1.Event, 2000)
	for i := range ev {
		ev[i] = note()
	}
	i := 0
	n := testing.AllocsPerRun(len(ev)-1, func() {
		if err := j.Append(context.Background(), ev[i]); err != nil {
			t.Fatal(err)
		}
		i++
	})
	if n > 2 { // the time, and the slice of one event
		t.Fatalf("%v allocations an append", n)
	}
}

func FuzzP17_PageToken(f *testing.F) {
	s := memory.New(memory.Config{})
	for i := range 3 {
		if _, _, err := s.Create(context.Background(), newTask(i)); err != nil {
			f.Fatal(err)
		}
	}
	page, err := s.List(context.Background(), me, a2a.Filter{PageSize: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page.NextToken)
	f.Add("!")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := s.List(t.Context(), me, a2a.Filter{PageSize: 1, PageToken: token})
		if token == page.NextToken || token == "" {
			if err != nil || len(got.Tasks) != 1 || got.Total != 3 {
				t.Fatalf("List = %v, %v", got, err)
			}
			return
		}
		if !errors.Is(err, a2a.ErrPageToken) {
			t.Fatalf("%q: %v, want ErrPageToken", token, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	s := memory.New(memory.Config{})
	var j a2a.Journal
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%50_000 == 0 {
			j = claimed(b, s, i).Journal
		}
		if err := j.Append(b.Context(), note()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPut is a task's way from Created to Ended.
func BenchmarkPut(b *testing.B) {
	s := memory.New(memory.Config{MaxFinished: 1 << 30})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := claimed(b, s, i)
		if err := c.Journal.Append(b.Context(), end()); err != nil {
			b.Fatal(err)
		}
		if err := s.Park(b.Context(), c, a2a.Park{Done: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{1e3, 1e5} {
		s := memory.New(memory.Config{MaxFinished: 1 << 30})
		for i := range n {
			if _, _, err := s.Create(b.Context(), newTask(i)); err != nil {
				b.Fatal(err)
			}
		}
		for name, f := range map[string]a2a.Filter{
			"all": {}, "context": {ContextID: "c7"}, "state": {State: a2av1.TaskState_TASK_STATE_SUBMITTED},
			"agent and state": {Agent: "a", State: a2av1.TaskState_TASK_STATE_SUBMITTED},
		} {
			f.PageSize = 50
			first, err := s.List(b.Context(), me, f)
			if err != nil {
				b.Fatal(err)
			}
			f.PageToken = first.NextToken
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.List(b.Context(), me, f); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// What is beyond a number of entries is forgotten: whole conversations, the ones
// that nothing was added to for longest.
func TestMemory_keeps_the_conversations_used_last(t *testing.T) {
	s := memory.New(memory.Config{MaxFinished: 2}) // 8 entries
	remember := func(context string, n int) {
		t.Helper()
		e := a2a.Exchange{Task: fmt.Sprint(context, n), By: []a2a.Contribution{{Path: "a", Messages: []*a2av1.Message{agent.NewMessage("x"), agent.NewMessage("y")}}}}
		if err := s.Remember(t.Context(), a2a.Thread{Owner: me, ContextID: context}, e); err != nil {
			t.Fatal(err)
		}
	}
	remember("first", 1)
	remember("second", 1)
	remember("first", 2)
	remember("third", 1)
	remember("third", 2) // 10 entries
	for context, want := range map[string]int64{"first": 4, "second": 0, "third": 4} {
		if n, err := s.Position(t.Context(), a2a.Thread{Owner: me, ContextID: context}); n != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", context, n, err, want)
		}
	}
	for n := range 10 {
		remember("third", 10+n) // alone it may have more
	}
	if n, err := s.Position(t.Context(), a2a.Thread{Owner: me, ContextID: "third"}); n != 24 || err != nil {
		t.Errorf("third: %d, %v", n, err)
	}
}
