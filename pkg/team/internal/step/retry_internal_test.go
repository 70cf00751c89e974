package step

import (
	"math"
	"testing"
	"time"
)

// TestR_002_32_LongPauses: a pause that is doubled again and again does not come out
// of range, whatever it begins with.
func TestR_002_32_LongPauses(t *testing.T) {
	for _, base := range []time.Duration{1, time.Second, 3 * time.Hour, math.MaxInt64 / 3, math.MaxInt64} {
		var last time.Duration
		for attempts := int32(1); attempts < 100; attempts++ {
			got := backoff(0, "", attempts, base, 0)
			if got <= 0 || got < last*4/5 || got > 2*maxBackoff {
				t.Fatalf("backoff %v, attempt %d: %v after %v", base, attempts, got, last)
			}
			last = got
		}
	}
}
