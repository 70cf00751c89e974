// Command hunt looks for tests that fail now and then. It runs the tests many times under changing
// conditions: with the race detector and without, on one core and on several, beside goroutines that
// use the CPU, and in another random order each time. It prints a line for each failure:
//
//	run 3: internal/feed TestFeed_Order, shuffle 1732600000, GOMAXPROCS=1 -race busy: bin/hunt/9f31ab…/3.json
//
// The output of each run is stored below bin/hunt. A run that has ended is not run again for the same
// files, so after an interruption the command continues where it stopped; its failures are printed
// again. The command fails if any run failed.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	h := hunt{out: os.Stdout}
	flag.IntVar(&h.runs, "n", 10, "number of runs, 1 to 1000")
	flag.StringVar(&h.dir, "dir", filepath.Join("bin", "hunt"), "folder for the output of the runs")
	flag.DurationVar(&h.limit, "limit", 45*time.Minute, "how long one run may take")
	flag.Parse()
	h.packages = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := h.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hunt:", err)
		os.Exit(1)
	}
}

// hunt runs tests many times.
type hunt struct {
	out      io.Writer
	runs     int
	dir      string
	limit    time.Duration
	packages []string // none means ./...
}

// condition is how a run differs from others.
type condition struct {
	procs int  // GOMAXPROCS; 0 leaves it
	race  bool // with the race detector
	busy  bool // goroutines of this process use all CPUs
}

// conditionOf returns the condition of a run: eight runs have eight different ones.
func conditionOf(run int) condition {
	c := condition{race: run%2 == 0, busy: run%4 >= 2}
	if run%8 >= 4 {
		c.procs = 1
	} else if run%8 == 3 {
		c.procs = 4 * runtime.NumCPU()
	}
	return c
}

func (c condition) String() string {
	var all []string
	if c.procs > 0 {
		all = append(all, fmt.Sprintf("GOMAXPROCS=%d", c.procs))
	}
	if c.race {
		all = append(all, "-race")
	}
	if c.busy {
		all = append(all, "busy")
	}
	if len(all) == 0 {
		return "plain"
	}
	return strings.Join(all, " ")
}

func (h *hunt) run(ctx context.Context) error {
	if h.runs < 1 || h.runs > 1000 {
		return fmt.Errorf("-n: %d must be 1 to 1000", h.runs)
	}
	if len(h.packages) == 0 {
		h.packages = []string{"./..."}
	}
	tree, err := treeOf(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.dir, tree)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	bad := 0
	for n := range h.runs {
		log := filepath.Join(dir, strconv.Itoa(n)+".json")
		if _, err := os.Stat(log); err != nil {
			if err := h.once(ctx, n, log); err != nil {
				return err
			}
		}
		failures, err := read(log)
		if err != nil {
			return err
		}
		for _, f := range failures {
			fmt.Fprintf(h.out, "run %d: %s, %v: %s\n", n, f, conditionOf(n), log)
		}
		if len(failures) > 0 {
			bad++
		} else {
			fmt.Fprintf(h.out, "run %d: passed, %v\n", n, conditionOf(n))
		}
	}
	fmt.Fprintf(h.out, "%d of %d runs failed\n", bad, h.runs)
	if bad > 0 {
		return fmt.Errorf("%d of %d runs failed; the lines above name the tests and the logs", bad, h.runs)
	}
	return nil
}

// once runs the tests once. The log has its name only when the run has ended.
func (h *hunt) once(ctx context.Context, n int, log string) (err error) {
	c := conditionOf(n)
	args := []string{"test", "-json", "-count=1", "-shuffle=on", "-timeout=" + h.limit.String()}
	if c.race {
		args = append(args, "-race")
	}
	limited, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	cmd := exec.CommandContext(limited, "go", append(args, h.packages...)...)
	if c.procs > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", c.procs))
	}
	f, err := os.Create(log + ".part")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if c.busy {
		defer burn()()
	}
	runErr := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the next call continues")
	case limited.Err() != nil:
		fmt.Fprintf(f, "\nhunt: the run took more than %v\n", h.limit)
	case runErr != nil:
		fmt.Fprintf(f, "\nhunt: go test: %v\n", runErr)
	}
	return os.Rename(log+".part", log)
}

// burn keeps all CPUs busy until the function that it returns is called.
func burn() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for x := uint64(1); ; x = x*6364136223846793005 + 1 {
				if x%(1<<16) == 0 {
					runtime.Gosched()
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

// failure is a failed test, or a failed package without a failed test.
type failure struct{ pkg, test, seed string }

func (f failure) String() string {
	what := f.pkg
	if f.test != "" {
		what += " " + f.test
	}
	if f.seed != "" {
		what += ", shuffle " + f.seed
	}
	return what
}

// read returns the failures of a run. Of a failed test with failed subtests it returns the subtests.
func read(log string) ([]failure, error) {
	b, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	seeds := map[string]string{}
	var failed []failure
	other := ""
	in := bufio.NewReader(bytes.NewReader(b))
	for {
		line, err := in.ReadString('\n')
		var e struct{ Action, Package, Test, Output, ImportPath string }
		if json.Unmarshal([]byte(line), &e) != nil {
			if text, ok := strings.CutPrefix(line, "hunt: "); ok {
				other = strings.TrimSpace(text)
			}
		}
		if seed, ok := strings.CutPrefix(e.Output, "-test.shuffle "); ok {
			seeds[e.Package] = strings.TrimSpace(seed)
		}
		if e.Action == "fail" {
			failed = append(failed, failure{pkg: e.Package, test: e.Test})
		}
		if err != nil {
			break
		}
	}
	var all []failure
	for _, f := range failed {
		if hasPart(failed, f) {
			continue
		}
		f.seed = seeds[f.pkg]
		f.pkg = strings.TrimPrefix(f.pkg, "github.com/agentteams/team-server/")
		all = append(all, f)
	}
	if len(all) == 0 && other != "" {
		all = append(all, failure{pkg: other})
	}
	return all, nil
}

// hasPart reports whether a test of a failed package, or a subtest of a failed test, has failed.
func hasPart(failed []failure, f failure) bool {
	for _, g := range failed {
		if g.pkg == f.pkg && (f.test == "" && g.test != "" || f.test != "" && strings.HasPrefix(g.test, f.test+"/")) {
			return true
		}
	}
	return false
}

// treeOf returns a name for the current files: the commit, and a hash of what has changed since.
func treeOf(ctx context.Context) (string, error) {
	id, err := exec.CommandContext(ctx, "git", "stash", "create").Output()
	if err == nil && len(bytes.TrimSpace(id)) == 0 {
		id, err = exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	}
	if err == nil {
		id, err = exec.CommandContext(ctx, "git", "rev-parse", strings.TrimSpace(string(id))+"^{tree}").Output()
	}
	if err != nil {
		return "", fmt.Errorf("git: %w", err)
	}
	return strings.TrimSpace(string(id))[:16], nil
}
