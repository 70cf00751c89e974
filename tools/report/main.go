// Command report runs the benchmarks and writes docs/performance.md with the figures, the goals that
// are met and missed, charts of how the costs grow, and rules for the size of a server.
//
//	report                 # all parts
//	report growth servers  # some of them
//	report -write          # only the document, from what has been measured
//
// The results of each part are stored in bin/report. Without names, a part that was measured at the
// current commit with the same -benchtime is not measured again, so an interrupted report continues.
// The document has what there is, and says what is missing.
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
	"strings"
	"syscall"
	"time"

	"github.com/agentteams/team-server/bench/measure"
)

func main() {
	r := report{out: os.Stdout, parts: parts()}
	flag.StringVar(&r.dir, "dir", filepath.Join("bin", "report"), "folder for the results of the parts")
	flag.StringVar(&r.doc, "doc", filepath.Join("docs", "performance.md"), "document to write; charts are written into the folder of the same name")
	flag.StringVar(&r.benchtime, "benchtime", "500ms", "how long one rival runs in one round, or with Nx how many calls each caller makes")
	flag.DurationVar(&r.limit, "limit", 30*time.Minute, "how long one go test may take")
	write := flag.Bool("write", false, "measure nothing, and write the document from what there is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := r.run(ctx, flag.Args(), *write)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// report measures parts and writes the document.
type report struct {
	out       io.Writer
	parts     []part
	dir, doc  string
	benchtime string
	limit     time.Duration
}

// results are what was measured of one part.
type results struct {
	Part      string            `json:"part"`
	Commit    string            `json:"commit"`
	Benchtime string            `json:"benchtime"`
	Machine   machine           `json:"machine"`
	Began     time.Time         `json:"began"`
	Took      string            `json:"took"`
	LoadBegin string            `json:"load_begin"` // averages of 1, 5 and 15 minutes
	LoadEnd   string            `json:"load_end"`
	Tables    []measure.Printed `json:"tables"`
	Failed    string            `json:"failed,omitempty"` // why it is not complete
}

func (r *report) run(ctx context.Context, names []string, writeOnly bool) error {
	some := r.parts
	if len(names) > 0 {
		var unknown []string
		if some, unknown = named(r.parts, names); len(unknown) > 0 {
			return fmt.Errorf("there is no part %s; the parts are %s", strings.Join(unknown, ", "), namesOf(r.parts))
		}
	}
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		return err
	}
	var failed []string
	for _, p := range some {
		if writeOnly {
			break
		}
		ok, err := r.part(ctx, p, len(names) > 0)
		if err != nil {
			return err
		}
		if !ok {
			failed = append(failed, p.name)
		}
	}
	err := r.write()
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("not complete: %s; the output is in %s", strings.Join(failed, ", "), r.dir)
	}
	return err
}

// part measures a part, unless it has been measured and again is false. It reports whether
// the results are complete.
func (r *report) part(ctx context.Context, p part, again bool) (bool, error) {
	commit, err := commit(ctx)
	if err != nil {
		return false, err
	}
	if old := r.read(p); !again && old != nil && old.Failed == "" && old.Commit == commit && old.Benchtime == r.benchtime {
		fmt.Fprintf(r.out, "%s: measured at %s\n", p.name, old.Began.Format(time.DateTime))
		return true, nil
	}
	res := results{Part: p.name, Commit: commit, Benchtime: r.benchtime, Machine: describe(), Began: time.Now().UTC().Truncate(time.Second), LoadBegin: loadAverage()}
	fmt.Fprintf(r.out, "%s: load %s\n", p.name, res.LoadBegin)
	for _, one := range p.runs {
		tables, problem := r.measure(ctx, p, one)
		res.Tables = append(res.Tables, tables...)
		if problem != nil {
			res.Failed = problem.Error()
			fmt.Fprintf(r.out, "%s: %v\n", p.name, problem)
			break
		}
	}
	if err := ctx.Err(); err != nil { // a part of the results says nothing
		return false, fmt.Errorf("%w; the next call continues", err)
	}
	res.Took, res.LoadEnd = time.Since(res.Began).Round(time.Second).String(), loadAverage()
	fmt.Fprintf(r.out, "%s: %s, load %s\n", p.name, res.Took, res.LoadEnd)
	return res.Failed == "", r.save(p, res)
}

// measure runs one go test and returns the tables that it printed. Its output is stored.
func (r *report) measure(ctx context.Context, p part, one run) (tables []measure.Printed, err error) {
	file, err := filepath.Abs(filepath.Join(r.dir, p.name+".tables"))
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+one.bench, "-benchtime="+r.benchtime, "-timeout="+r.limit.String(), one.pkg)
	cmd.Dir, cmd.Stdout, cmd.Stderr = one.dir, &said, &said
	cmd.Env = append(append(os.Environ(), unset(one.env)...), measure.TablesVariable+"="+file)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	runErr := cmd.Run()
	if err := os.WriteFile(filepath.Join(r.dir, p.name+".log"), said.Bytes(), 0o600); err != nil {
		return nil, err
	}
	tables, err = readTables(file)
	if runErr != nil {
		return tables, fmt.Errorf("go test -bench=%s: %w: %s", one.bench, runErr, reason(said.String()))
	}
	if err == nil && len(tables) == 0 {
		err = errors.New("no table was printed: " + reason(said.String()))
	}
	return tables, err
}

// unset returns the variables that the environment does not have: BENCH_LIST and others may be set by
// the user.
func unset(env []string) (missing []string) {
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if _, set := os.LookupEnv(name); !set || name == "BENCH_WAITING" { // a part has several of that one
			missing = append(missing, v)
		}
	}
	return missing
}

// reason returns the line of an output that says what is wrong, without paths of this machine.
func reason(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	found := lines[len(lines)-1]
	for i, line := range lines {
		if strings.Contains(line, "--- FAIL") || strings.HasPrefix(line, "panic:") || strings.Contains(line, "--- SKIP") || strings.HasPrefix(line, "# ") {
			found = strings.Join(lines[i:min(i+2, len(lines))], " ")
			break
		}
	}
	return strings.Join(strings.Fields(withoutPaths(found)), " ")
}

func readTables(file string) (tables []measure.Printed, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var t measure.Printed
		if err := json.Unmarshal(s.Bytes(), &t); err != nil {
			return tables, err
		}
		tables = append(tables, t)
	}
	return tables, errors.Join(err, s.Err())
}

func (r *report) file(p part) string { return filepath.Join(r.dir, p.name+".json") }

// read returns the stored results of a part, or nil if it was not measured yet.
func (r *report) read(p part) *results {
	b, err := os.ReadFile(r.file(p))
	if err != nil {
		return nil
	}
	res := &results{}
	if json.Unmarshal(b, res) != nil {
		return nil // it is measured again
	}
	return res
}

// save stores the results of a part. An interruption leaves the old ones.
func (r *report) save(p part, res results) error {
	b, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.file(p)+".new", append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(r.file(p)+".new", r.file(p))
}
