package db

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// plainOp is a change of an account with a size, which is its own source.
type plainOp struct{ *Op }

func (o plainOp) Take() *Op     { return o.Op }
func (o plainOp) IsLarge() bool { return o.Size >= LargeChange }
func (o plainOp) Of() string    { return o.Account }

// slowWriter returns a writer whose changes take one millisecond, and large ones a hundred, and what it has written.
func slowWriter(t *testing.T) (w *writer, written func() []string) {
	var roots []string
	w = &writer{ctx: t.Context()}
	w.write = func(_ context.Context, ops []*Op) ([]*Op, error) {
		for _, o := range ops {
			took := time.Millisecond
			if o.Size >= LargeChange {
				took = 100 * time.Millisecond
			}
			time.Sleep(took)
			roots = append(roots, o.Root)
			if o.Done != nil {
				_ = o.Done(t.Context(), nil, nil)
			}
		}
		return nil, nil
	}
	return w, func() []string { w.close(); return roots }
}

func newOp(account, root string, size int) plainOp {
	return plainOp{&Op{Root: root, Account: account, Size: size}}
}

func TestSmallChangesAreWrittenBeforeLargeOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, written := slowWriter(t)
		_ = w.add(newOp("a", "first", 1))
		synctest.Wait() // it is being written
		for _, o := range []plainOp{newOp("a", "large 1", LargeChange), newOp("a", "large 2", 2*LargeChange), newOp("a", "small", 1)} {
			if err := w.add(o); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Millisecond) // while the first large one is written
		_ = w.add(newOp("a", "small later", 1))
		began := time.Now()
		if got := written(); !slices.Equal(got, []string{"first", "small", "large 1", "small later", "large 2"}) {
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
			_ = w.add(newOp("a", "large", LargeChange))
		}
		quick := 0
		for time.Since(began) < time.Second {
			asked := time.Now()
			done := make(chan struct{})
			o := newOp("b", "small", 1)
			o.Done = func(context.Context, Querier, error) error { close(done); return nil }
			if err := w.add(o); err != nil {
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
		if took := time.Since(began); took < 500*time.Millisecond+3*pauseFactor*100*time.Millisecond {
			t.Errorf("five large changes took %v while another account wrote", took)
		}
	})
}

// TestLargeChangesAreNotStarved: a large change is written although there are always small ones.
func TestLargeChangesAreNotStarved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, written := slowWriter(t)
		began, done := time.Now(), make(chan struct{})
		large := newOp("a", "large", LargeChange)
		large.Done = func(context.Context, Querier, error) error { close(done); return nil }
		_ = w.add(large)
		ctx, stop := context.WithCancel(t.Context())
		var adding sync.WaitGroup
		for range 2 { // more than can be written
			adding.Go(func() {
				for ctx.Err() == nil {
					_ = w.add(newOp("b", "small", 1))
					time.Sleep(time.Millisecond)
				}
			})
		}
		<-done
		if took := time.Since(began); took > 2*maxDelay {
			t.Errorf("it took %v", took)
		}
		stop()
		adding.Wait()
		written()
	})
}

// TestSmallChangesBetweenThePiecesOfALargeOne: small changes do not wait for all of a change that can be written in pieces.
// If a piece cannot be written, the change fails.
func TestSmallChangesBetweenThePiecesOfALargeOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		full bool // the disk, when the last piece is written
		want []string
	}{
		"written": {false, []string{"[first]", "[early 1, early 2]", "[small]", "[early 3]", "[rest]"}},
		"failed":  {true, []string{"[first]", "[early 1, early 2]", "[small]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var written []string
			var w *writer
			large := newOp("a", "large", LargeChange)
			half := make([]byte, maxEarlyBytes/2)
			large.Early, large.Stmts = []Stmt{With("early 1", half), With("early 2", half), With("early 3", half)}, []Stmt{With("rest")}
			result := make(chan error, 1)
			large.Done = func(_ context.Context, _ Querier, err error) error { result <- err; return err }
			small := newOp("b", "small", 1)
			small.Stmts = []Stmt{With("small")}
			w = &writer{ctx: t.Context(), write: func(_ context.Context, ops []*Op) ([]*Op, error) {
				var texts []string
				for _, s := range ops[0].Stmts {
					texts = append(texts, s.Text)
				}
				if texts[0] == "early 3" && c.full {
					return ops, errClosed
				}
				if texts[0] == "early 1" {
					_ = w.add(small)
				}
				written = append(written, "["+strings.Join(texts, ", ")+"]")
				if ops[0].Done != nil {
					_ = ops[0].Done(t.Context(), nil, nil)
				}
				return nil, nil
			}}
			first := newOp("a", "first", 1)
			first.Stmts = []Stmt{With("first")}
			_ = w.add(first)
			_ = w.add(large)
			err := <-result
			w.close()
			if !slices.Equal(written, c.want) || (err != nil) != c.full {
				t.Errorf("written %v, %v; want %v", written, err, c.want)
			}
		})
	}
}

// TestCloseEndsAPause: what is queued is written at once when the store is closed.
func TestCloseEndsAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, written := slowWriter(t)
		_ = w.add(newOp("b", "small", 1))
		synctest.Wait()
		for range 3 {
			_ = w.add(newOp("a", "large", LargeChange))
		}
		time.Sleep(110 * time.Millisecond) // one is written, and the others wait
		began := time.Now()
		if got := written(); len(got) != 4 || time.Since(began) > 210*time.Millisecond {
			t.Errorf("%q are written after %v", got, time.Since(began))
		}
	})
}
