package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// machine is what figures depend on. It names neither the host nor folders.
type machine struct {
	Cores  int    `json:"cores"`
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	System string `json:"system"`
	Go     string `json:"go"`
}

func describe() machine {
	m := machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = field(string(info), "model name")
	}
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb float64
		if _, err := fmt.Sscanf(field(string(info), "MemTotal"), "%f kB", &kb); err == nil {
			m.Memory = fmt.Sprintf("%.0f GiB", kb/(1<<20))
		}
	}
	return m
}

// String returns the machine as a sentence has it.
func (m machine) String() string {
	cores := "cores"
	if m.Cores == 1 {
		cores = "core"
	}
	all := []string{fmt.Sprintf("%d %s", m.Cores, cores)}
	if m.CPU != "" {
		all[0] += " (" + m.CPU + ")"
	}
	if m.Memory != "" {
		all = append(all, m.Memory+" of memory")
	}
	return strings.Join(append(all, m.System, m.Go), ", ")
}

// field returns the first value of a key in a file of /proc.
func field(text, key string) string {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// loadAverage returns the averages of 1, 5 and 15 minutes, or "unknown".
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// commit returns the commit that is checked out, with a + if a file that is not a document has changed.
func commit(ctx context.Context) (string, error) {
	id, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", ":!*.md", ":!docs").Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	name := strings.TrimSpace(string(id))
	if len(changed) > 0 {
		name += "+"
	}
	return name, nil
}

var path = regexp.MustCompile(`(/[A-Za-z0-9._@+-]+){2,}/?|https?://\S+`)

// withoutPaths replaces the paths and URLs in a text, which belong to one machine.
func withoutPaths(text string) string { return path.ReplaceAllString(text, "…") }
