//go:build failpoints

package failpoint

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	all, err := parse(" store.after_commit=kill@3; run.x=sleep=5ms ;a=stop@1;")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 || all["store.after_commit"].at != 3 || all["run.x"].at != 0 || all["a"].at != 1 {
		t.Fatalf("points are %v", all)
	}
	if none, err := parse(""); err != nil || len(none) != 0 {
		t.Fatalf("of nothing come %v, %v", none, err)
	}
}

func TestParse_Faults(t *testing.T) {
	for _, spec := range []string{"a", "=kill", "a=", "a=boom", "a=kill@", "a=kill@0", "a=kill@x", "a=sleep", "a=sleep=5"} {
		if _, err := parse(spec); err == nil || !strings.Contains(err.Error(), spec) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

func TestPoint_Counts(t *testing.T) {
	p, every := &point{at: 3}, &point{}
	got := ""
	for range 5 {
		got += map[bool]string{true: "x", false: "-"}[p.due()]
		if !every.due() {
			t.Error("a point without a number left a hit out")
		}
	}
	if got != "--x--" {
		t.Fatalf("due at %s", got)
	}
}

func TestPoint_Sleeps(t *testing.T) {
	p, err := parsePoint("sleep=30ms")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if p.act(); time.Since(start) < 30*time.Millisecond {
		t.Fatalf("slept %v", time.Since(start))
	}
}

// TestHit runs itself in a process that is to die at its second hit.
func TestHit(t *testing.T) {
	if os.Getenv(variable) != "" {
		Hit("other")
		Hit("here")
		os.Stdout.WriteString("once\n")
		Hit("here")
		os.Stdout.WriteString("twice\n")
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHit$")
	cmd.Env = append(os.Environ(), variable+"=here=kill@2;elsewhere=kill")
	out, _ := cmd.Output() // killed
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL || string(out) != "once\n" {
		t.Fatalf("ended with %v after %q", cmd.ProcessState, out)
	}
}
