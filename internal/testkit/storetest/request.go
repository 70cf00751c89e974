package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

func requests(t *testing.T, open Open) {
	t.Run("A-15 a repeated send is the same task", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		again := task("two")
		again.MessageID = "m-one"
		root, existed, err := r.Create(r.ctx(), again)
		if root != "one" || !existed || err != nil {
			t.Fatalf("Create = %q, %v, %v, want the first task", root, existed, err)
		}
		r.claim("one")
		if _, _, err := r.Task(r.ctx(), key("two")); !errors.Is(err, runs.ErrNotFound) {
			t.Fatalf("Task of the repetition: %v, want ErrNotFound", err)
		}
	})
	t.Run("A-15 other content under the same message id is refused", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		other := task("two")
		other.MessageID, other.Digest = "m-one", []byte("other")
		if _, existed, err := r.Create(r.ctx(), other); existed || !errors.Is(err, runs.ErrReused) {
			t.Fatalf("Create = %v, %v, want ErrReused", existed, err)
		}
	})
	t.Run("A-15 message ids are each owner's own", func(t *testing.T) {
		r := newRig(t, open)
		theirs := task("two")
		theirs.Owner, theirs.MessageID = "acme/bob", "m-one"
		r.create(task("one"), theirs)
	})
	t.Run("A-15 a message id is known for 24 hours", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		again := task("two")
		again.MessageID = "m-one"
		r.clock.Move(24*time.Hour - time.Second)
		if root, existed, err := r.Create(r.ctx(), again); root != "one" || !existed || err != nil {
			t.Fatalf("Create within the window = %q, %v, %v", root, existed, err)
		}
		r.clock.Move(time.Second)
		r.create(again)
		r.clock.Move(23 * time.Hour)
		again.Accepted.TaskId = "three"
		if root, existed, err := r.Create(r.ctx(), again); root != "two" || !existed || err != nil {
			t.Fatalf("Create within the second window = %q, %v, %v", root, existed, err)
		}
	})
	t.Run("A-15 a message leads to its task", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		r.put("one", followUp("f"))
		for _, message := range []string{"m-one", "f"} {
			if root, err := r.Sent(r.ctx(), me, "a", message); root != "one" || err != nil {
				t.Errorf("Sent(%s) = %q, %v", message, root, err)
			}
		}
		_, other := r.Sent(r.ctx(), "acme/bob", "a", "m-one")
		_, none := r.Sent(r.ctx(), me, "a", "none")
		r.clock.Move(24 * time.Hour)
		_, late := r.Sent(r.ctx(), me, "a", "m-one")
		for name, err := range map[string]error{"other owner": other, "unknown": none, "late": late} {
			if !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", name, err)
			}
		}
	})
	t.Run("A-15 a task id is used once", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		n := task("one")
		n.MessageID = "other"
		if _, existed, err := r.Create(r.ctx(), n); existed || err == nil {
			t.Fatalf("Create with an id that is taken = %v, %v", existed, err)
		}
	})
	t.Run("A-15 of sends at the same time one makes the task", func(t *testing.T) {
		r := newRig(t, open)
		var wg sync.WaitGroup
		got := make(chan string, 16)
		for i := range cap(got) {
			wg.Go(func() {
				n := task(id(i))
				n.MessageID = "same"
				root, existed, err := r.Create(r.ctx(), n)
				if err != nil || existed == (root == id(i)) {
					root = "wrong"
				}
				got <- root
			})
		}
		wg.Wait()
		first := <-got
		for range cap(got) - 1 {
			if root := <-got; root != first {
				t.Fatalf("tasks %s and %s for one message", first, root)
			}
		}
		r.claim(first)
	})
}

// inputs tests requests for an existing task.
func inputs(t *testing.T, open Open) {
	t.Run("A-15 message ids are each agent's own", func(t *testing.T) {
		r := newRig(t, open)
		other := task("two")
		other.Accepted.Agent, other.MessageID, other.Digest = "b", "m-one", []byte("other")
		r.create(task("one"), other)
		for agent, want := range map[string]string{"a": "one", "b": "two"} {
			if root, err := r.Sent(r.ctx(), me, agent, "m-one"); root != want || err != nil {
				t.Errorf("Sent to %s = %q, %v, want %q", agent, root, err, want)
			}
		}
		again := task("three")
		again.Accepted.Agent, again.MessageID, again.Digest = "b", "m-one", []byte("other")
		if root, existed, err := r.Create(r.ctx(), again); root != "two" || !existed || err != nil {
			t.Errorf("Create again = %q, %v, %v, want the task of the same agent", root, existed, err)
		}
		r.put("one", followUp("f"))
		r.put("two", followUp("f"))
		if _, existed, err := r.Put(r.ctx(), key("two"), followUp("m-one"), []byte("m-one"), nil); existed || !errors.Is(err, runs.ErrReused) {
			t.Errorf("Put of an id that began a task of the agent = %v, %v, want ErrReused", existed, err)
		}
	})
	t.Run("A-15 a repeated input is taken once", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		n := r.put("one", followUp("f"))
		again, existed, err := r.Put(r.ctx(), key("one"), followUp("f"), []byte("f"), nil)
		if again != n || !existed || err != nil {
			t.Fatalf("Put = %d, %v, %v, want %d again", again, existed, err, n)
		}
		if _, existed, err := r.Put(r.ctx(), key("one"), followUp("f"), []byte("other"), nil); existed || !errors.Is(err, runs.ErrReused) {
			t.Fatalf("Put of other content = %v, %v, want ErrReused", existed, err)
		}
		if rows := r.inbound(c); len(rows) != 1 {
			t.Fatalf("%d rows, want 1", len(rows))
		}
		r.append(c, taken(r.inbound(c)[0]), succeeded())
		if again, existed, err := r.Put(r.ctx(), key("one"), followUp("f"), []byte("f"), nil); again != n || !existed || err != nil {
			t.Fatalf("Put after the end = %d, %v, %v, want %d again", again, existed, err, n)
		}
	})
	t.Run("A-15 a message for one task is not another task's", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"), task("two"))
		r.put("one", followUp("f"))
		if _, existed, err := r.Put(r.ctx(), key("two"), followUp("f"), []byte("f"), nil); existed || !errors.Is(err, runs.ErrReused) {
			t.Fatalf("Put = %v, %v, want ErrReused", existed, err)
		}
	})
	t.Run("A-15 commands are each task's own", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"), task("two"))
		for _, root := range []string{"one", "two"} {
			for i := range 2 {
				n, existed, err := r.Put(r.ctx(), key(root), cancel("c"), nil, nil)
				if n != 1 || existed != (i == 1) || err != nil {
					t.Fatalf("Put %d to %s = %d, %v, %v", i, root, n, existed, err)
				}
			}
		}
	})
}
