package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc, USER_HZ, which is 100 on all Linux systems in use.
const tick = 10 * time.Millisecond

// descendantsCPU returns the CPU time that the children of this process and their children have used:
// those that run, and those that they have waited for.
func descendantsCPU() time.Duration {
	used, parents := map[int]time.Duration{}, map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // a name may have spaces
		if len(fields) < 15 {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.ParseInt(f, 10, 64)
			used[pid] += time.Duration(n) * tick
		}
	}
	var sum time.Duration
	for pid, own := range used {
		for at := parents[pid]; at > 1; at = parents[at] {
			if at == os.Getpid() {
				sum += own
				break
			}
		}
	}
	return sum
}

// peakMemory returns the largest resident memory that a process has had, in bytes.
func peakMemory(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kb float64
	_, _ = fmt.Sscanf(rest, "%f kB", &kb) // 0 if there is none
	return kb * 1024
}
