//go:build !unix

package measure

import "time"

// CPUTime is not known here: it is always 0.
func CPUTime() time.Duration { return 0 }
