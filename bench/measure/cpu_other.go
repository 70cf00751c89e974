//go:build !unix

package measure

import "time"

// CPUTime returns 0, because the CPU time of the process is not known on this system.
func CPUTime() time.Duration { return 0 }
