package inflight

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTurn_EndsByItself takes all turns and ends none of them, as readers of a database that hangs do.
func TestTurn_EndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []func()
		for range 2 {
			for range cap(turns) {
				ends = append(ends, Turn(LargeSize))
			}
			time.Sleep(longestTurn)
			synctest.Wait()
			if len(turns) != 0 {
				t.Fatalf("%d turns last longer than %s", len(turns), longestTurn)
			}
		}
		last := Turn(LargeSize)
		for _, end := range ends {
			end()
		}
		if len(turns) != 1 {
			t.Errorf("an end that came late ended the turn of another: %d turns are left, not 1", len(turns))
		}
		last()
		if len(turns) != 0 {
			t.Errorf("%d turns are left after the end of the last one", len(turns))
		}
	})
}
