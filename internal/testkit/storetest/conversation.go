package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

var mine = runs.Thread{Owner: me, ContextID: "c"}

// said returns an exchange of one question and its answer.
func said(task, path, text string) runs.Exchange {
	return runs.Exchange{Task: task, By: []runs.Contribution{saidBy(path, text)}}
}

func saidBy(path, text string) runs.Contribution {
	return runs.Contribution{Path: path, Messages: []*a2av1.Message{agent.UserMessage("q", text+"?"), agent.NewMessage(text + "!")}}
}

func set(task, path, key string, v *structpb.Value) runs.Exchange {
	e := said(task, path, key)
	e.By[0].State = map[string]*structpb.Value{key: v}
	return e
}

func (r *rig) remember(t runs.Thread, e runs.Exchange) {
	r.Helper()
	if err := r.Remember(r.ctx(), t, e); err != nil {
		r.Fatalf("Remember(%v, %s): %v", t, e.Task, err)
	}
}

func (r *rig) position(t runs.Thread) int64 {
	r.Helper()
	n, err := r.Position(r.ctx(), t)
	if err != nil {
		r.Fatalf("Position(%v): %v", t, err)
	}
	return n
}

func (r *rig) recall(t runs.Thread, path string, upTo int64) runs.Recollection {
	r.Helper()
	got, err := r.Recall(r.ctx(), t, path, upTo)
	if err != nil {
		r.Fatalf("Recall(%v, %s): %v", t, path, err)
	}
	return got
}

// history returns the texts of the recalled history.
func (r *rig) history(t runs.Thread, path string, upTo int64) []string {
	r.Helper()
	list := []string{}
	for _, m := range r.recall(t, path, upTo).History {
		list = append(list, agent.Text(m))
	}
	return list
}

func (r *rig) wantHistory(t runs.Thread, path string, upTo int64, want ...string) {
	r.Helper()
	if diff := cmp.Diff(append([]string{}, want...), r.history(t, path, upTo)); diff != "" {
		r.Fatalf("history of %v, %s, up to %d (-want +got):\n%s", t, path, upTo, diff)
	}
}

func conversations(t *testing.T, open Open) {
	t.Run("R-002-29 the last 20 entries up to a place, in order", func(t *testing.T) {
		r := newRig(t, open)
		for i := range 25 {
			e := said(id(i), "lead", fmt.Sprint(i))
			e.By[0].Messages = e.By[0].Messages[:1]
			r.remember(mine, e)
		}
		var want []string
		for i := 5; i < 25; i++ {
			want = append(want, fmt.Sprint(i)+"?")
		}
		r.wantHistory(mine, "lead", r.position(mine), want...)
		r.wantHistory(mine, "lead", 3, "0?", "1?", "2?")
		r.wantHistory(mine, "lead", 0)
	})
	t.Run("R-002-4.3 an unknown conversation is empty", func(t *testing.T) {
		r := newRig(t, open)
		if n := r.position(mine); n != 0 {
			t.Errorf("Position = %d", n)
		}
		r.wantHistory(mine, "lead", 100)
		if got := r.recall(mine, "lead", 100).State; len(got) > 0 {
			t.Errorf("State = %v", got)
		}
	})
	t.Run("R-002-29 what comes after a place is not seen from it", func(t *testing.T) {
		r := newRig(t, open)
		r.remember(mine, said("one", "lead", "a"))
		at := r.position(mine)
		r.remember(mine, said("two", "lead", "b"))
		r.wantHistory(mine, "lead", at, "a?", "a!")
		r.wantHistory(mine, "lead", r.position(mine), "a?", "a!", "b?", "b!")
	})
	t.Run("R-002-40 a task adds once", func(t *testing.T) {
		r := newRig(t, open)
		for range 3 {
			r.remember(mine, said("one", "lead", "a"))
		}
		r.wantHistory(mine, "lead", r.position(mine), "a?", "a!")
		if n := r.position(mine); n != 2 {
			t.Errorf("Position = %d, want 2", n)
		}
	})
	t.Run("S-39 each path has its own", func(t *testing.T) {
		r := newRig(t, open)
		r.remember(mine, runs.Exchange{Task: "one", By: []runs.Contribution{saidBy("top/low", "deep"), saidBy("top", "high"), saidBy("top/low", "again")}})
		at := r.position(mine)
		r.wantHistory(mine, "top", at, "high?", "high!")
		r.wantHistory(mine, "top/low", at, "deep?", "deep!", "again?", "again!")
		r.wantHistory(mine, "low", at)
	})
	t.Run("S-55 owners who use the same context have nothing in common", func(t *testing.T) {
		r := newRig(t, open)
		bob, elsewhere := runs.Thread{Owner: "acme/bob", ContextID: "c"}, runs.Thread{Owner: me, ContextID: "d"}
		r.remember(mine, said("one", "lead", "mine"))
		for _, other := range []runs.Thread{bob, elsewhere} {
			if n := r.position(other); n != 0 {
				t.Errorf("Position(%v) = %d", other, n)
			}
			r.wantHistory(other, "lead", 100)
		}
		r.remember(bob, said("two", "lead", "bob's"))
		r.wantHistory(mine, "lead", 100, "mine?", "mine!")
		r.wantHistory(bob, "lead", 100, "bob's?", "bob's!")
	})
	t.Run("R-002-27 50 runs at the same time: none is lost", func(t *testing.T) { together(newRig(t, open), 50) })
	t.Run("R-000-15 state is what was set last, up to a place", func(t *testing.T) { states(t, newRig(t, open)) })
	t.Run("the oldest entries of a path go first", func(t *testing.T) { oldest(t, newRig(t, open)) })
	t.Run("what is remembered is not the caller's any more", func(t *testing.T) {
		r := newRig(t, open)
		e := set("one", "lead", "conversation.k", structpb.NewStringValue("v"))
		r.remember(mine, e)
		e.By[0].Messages[0].Parts = nil
		e.By[0].State["conversation.k"].Kind = nil
		r.wantHistory(mine, "lead", 2, "conversation.k?", "conversation.k!")
		if got := r.recall(mine, "lead", 2).State["conversation.k"].GetStringValue(); got != "v" {
			t.Errorf("State = %q", got)
		}
	})
	t.Run("an exchange without an owner is refused", func(t *testing.T) {
		r := newRig(t, open)
		for _, bad := range []runs.Thread{{Owner: me}, {ContextID: "c"}} {
			if err := r.Remember(r.ctx(), bad, said("one", "lead", "x")); err == nil {
				t.Errorf("Remember(%v) was taken", bad)
			}
		}
		if err := r.Remember(r.ctx(), mine, said("", "lead", "x")); err == nil {
			t.Error("an exchange of no task was taken")
		}
	})
}

// together adds the entries of several runs to one conversation concurrently, and checks that all
// entries are stored and that those of each run are adjacent.
func together(r *rig, runs int) {
	r.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, runs)
	for i := range runs {
		wg.Go(func() {
			if err := r.Remember(r.ctx(), mine, said(id(i), "lead", fmt.Sprint(i))); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		r.Fatalf("Remember: %v", err)
	}
	if n := r.position(mine); n != int64(2*runs) {
		r.Fatalf("Position = %d, want %d", n, 2*runs)
	}
	seen := map[string]bool{}
	for at := int64(2 * runs); at > 0; at -= agent.HistoryLength {
		page := r.history(mine, "lead", at)
		if len(page) != agent.HistoryLength {
			r.Fatalf("%d entries up to %d", len(page), at)
		}
		for pair := range slices.Chunk(page, 2) {
			q := pair[0]
			if pair[1] != q[:len(q)-1]+"!" || seen[q] {
				r.Fatalf("%q stands behind %q, or was there before", pair[1], q)
			}
			seen[q] = true
		}
	}
	if len(seen) != runs {
		r.Fatalf("%d exchanges, want %d", len(seen), runs)
	}
}

func states(t *testing.T, r *rig) {
	r.remember(mine, set("one", "lead", "conversation.a", structpb.NewNumberValue(1)))
	first := r.position(mine)
	r.remember(mine, set("two", "lead", "conversation.b", structpb.NewBoolValue(true)))
	r.remember(mine, set("two", "lead", "conversation.b", structpb.NewBoolValue(false))) // again: nothing
	second := r.position(mine)
	r.remember(mine, set("three", "lead", "conversation.a", structpb.NewNullValue()))
	r.remember(mine, runs.Exchange{Task: "four", By: []runs.Contribution{saidBy("lead", "x"), {
		Path: "lead/low", State: map[string]*structpb.Value{"conversation.a": structpb.NewStringValue("low")},
	}}})
	last := r.position(mine)
	for _, want := range []struct {
		path  string
		at    int64
		state map[string]any
	}{
		{"lead", 0, nil},
		{"lead", first, map[string]any{"conversation.a": 1.0}},
		{"lead", second, map[string]any{"conversation.a": 1.0, "conversation.b": true}},
		{"lead", last, map[string]any{"conversation.b": true}},
		{"lead/low", last - 1, nil},
		{"lead/low", last, map[string]any{"conversation.a": "low"}},
	} {
		got := (&structpb.Struct{Fields: r.recall(mine, want.path, want.at).State}).AsMap()
		if want.state == nil {
			want.state = map[string]any{}
		}
		if diff := cmp.Diff(want.state, got); diff != "" {
			t.Errorf("state of %s at %d (-want +got):\n%s", want.path, want.at, diff)
		}
	}
}

// oldest adds more entries than are kept to one path, and a few to another.
func oldest(t *testing.T, r *rig) {
	r.remember(mine, said("first", "rare", "early"))
	const each = 100
	for i := range runs.KeptEntries/each + 1 {
		e := runs.Exchange{Task: id(i), By: []runs.Contribution{{Path: "lead"}}}
		for j := range each {
			e.By[0].Messages = append(e.By[0].Messages, agent.NewMessage(fmt.Sprint(i*each+j)))
		}
		r.remember(mine, e)
	}
	r.wantHistory(mine, "rare", 2, "early?", "early!")
	at := int64(2 + each) // the places of the first 100
	r.wantHistory(mine, "lead", at)
	if got := r.history(mine, "lead", at+5); len(got) != 5 || got[0] != fmt.Sprint(each) {
		t.Errorf("the oldest that are kept are %v", got)
	}
}
