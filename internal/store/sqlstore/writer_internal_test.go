package sqlstore

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// plainOp is a change of an account with a size, which is its own source.
type plainOp struct{ *op }

func (o plainOp) take() *op { return o.op }

// slowWriter returns a writer whose changes take one millisecond, and large ones a hundred, and what it has written.
func slowWriter(t *testing.T) (w *writer, written func() []string) {
	var roots []string
	w = &writer{ctx: t.Context(), small: map[string]time.Time{}}
	w.write = func(_ context.Context, ops []*op) ([]*op, error) {
		for _, o := range ops {
			took := time.Millisecond
			if o.size >= largeChange || o.heavy {
				took = 100 * time.Millisecond
			}
			time.Sleep(took)
			roots = append(roots, o.root)
		}
		return nil, nil
	}
	return w, func() []string { w.close(); return roots }
}

func newOp(account, root string, size int) plainOp {
	return plainOp{&op{root: root, account: account, size: size}}
}

func TestSmallChangesAreWrittenBeforeLargeOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, written := slowWriter(t)
		_ = w.add(newOp("a", "first", 1))
		synctest.Wait() // it is being written
		for _, o := range []plainOp{newOp("a", "large 1", largeChange), newOp("a", "large 2", 2*largeChange), newOp("a", "small", 1)} {
			if err := w.add(o); err != nil {
				t.Fatal(err)
			}
		}
		heavy := newOp("a", "heavy", 1)
		heavy.heavy = true
		_ = w.add(heavy)
		time.Sleep(50 * time.Millisecond) // while the first large one is written
		_ = w.add(newOp("a", "small later", 1))
		began := time.Now()
		if got := written(); !slices.Equal(got, []string{"first", "small", "large 1", "small later", "large 2", "heavy"}) {
			t.Errorf("written in the order %q", got)
		}
		if took := time.Since(began); took > 260*time.Millisecond {
			t.Errorf("an account without others waited for itself: %v", took)
		}
	})
}

func TestLargeChangesLeaveTimeForOtherAccounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, written := slowWriter(t)
		began := time.Now()
		for range 5 {
			_ = w.add(newOp("a", "large", largeChange))
		}
		quick := 0
		for time.Since(began) < time.Second {
			asked := time.Now()
			done := make(chan struct{})
			o := newOp("b", "small", 1)
			take := sourceFunc(func() *op { close(done); return o.op })
			if err := w.add(take); err != nil {
				t.Fatal(err)
			}
			<-done
			if time.Since(asked) < 10*time.Millisecond {
				quick++
			}
			time.Sleep(10 * time.Millisecond)
		}
		got := written()
		large := slices.DeleteFunc(got, func(root string) bool { return root != "large" })
		if len(large) != 5 || quick < 50 {
			t.Errorf("%d large changes written, %d small ones were quick", len(large), quick)
		}
		if took := time.Since(began); took < 500*time.Millisecond+3*gentle*100*time.Millisecond {
			t.Errorf("five large changes took %v while another account wrote", took)
		}
	})
}

// sourceFunc is a source.
type sourceFunc func() *op

func (f sourceFunc) take() *op { return f() }
