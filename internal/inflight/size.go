package inflight

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// part is which part of the memory of the process the budget is by default, and least its least size. The
// rest is for what does not depend on what accounts send, and for garbage.
const (
	part  = 4
	least = 32 << 20 // as the configuration file
)

// DefaultSize returns a quarter of the memory that the process may use: of GOMEMLIMIT, otherwise of the
// limit of its control group or of the memory of the machine, whichever is less.
func DefaultSize() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = limitOf(os.ReadFile)
	}
	return max(limit/part, least)
}

// unknown is what a machine is assumed to have whose memory cannot be read.
const unknown = 4 << 30

// limitOf returns the memory limit that Linux sets for the process.
func limitOf(read func(string) ([]byte, error)) int64 {
	limit := int64(math.MaxInt64)
	lower := func(text string, unit int64) {
		if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil && n > 0 && n < limit/unit {
			limit = n * unit
		}
	}
	groups := []string{"/"}
	if b, err := read("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			if id := strings.SplitN(strings.TrimSpace(line), ":", 3); len(id) == 3 && (id[1] == "" || strings.Contains(id[1], "memory")) {
				groups = append(groups, id[2])
			}
		}
	}
	for _, group := range groups {
		for ; ; group = path.Dir(group) { // the limits of all groups above count
			for _, file := range []string{path.Join("/sys/fs/cgroup", group, "memory.max"), path.Join("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes")} {
				if b, err := read(file); err == nil {
					lower(string(b), 1)
				}
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	if b, err := read("/proc/meminfo"); err == nil {
		for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
			if kib, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
				lower(strings.TrimSuffix(kib, "kB"), 1<<10)
			}
		}
	}
	if limit == math.MaxInt64 {
		return unknown
	}
	return limit
}
