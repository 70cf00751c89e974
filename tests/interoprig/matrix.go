package interoprig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Steps are the steps that every client is asked to perform, in this order.
var Steps = []string{
	"card",      // find the agent by its card
	"send",      // a message, and its task when that has ended
	"stream",    // the task, its answer in pieces, its end
	"get",       // a task
	"list",      // the tasks of a conversation, by pages
	"cancel",    // a task of a team whose member waits
	"subscribe", // to a task of another stream, to its end
	"question",  // of a member, and the answer to it
	"push",      // create, get, list and delete push configurations
	"receive",   // notifications with their token, up to the end of the task
	"unknown",   // calls for a task that is not there
	"ended",     // calls that a task that has ended refuses
}

// Values of a cell of the matrix.
const (
	ok     = "ok"
	fails  = "FAIL"
	partly = "part" // the client has only some of the calls
	lacks  = "-"    // the client has no such call
)

// Column is a client or a member on a binding: one line of the printed matrix.
type Column struct {
	Client, Version, Binding string
	Role                     string `json:",omitempty"` // "member", or empty for a client
}

type cell struct {
	Column
	Step, Result string
	Why          string `json:",omitempty"` // for partly and lacks
}

// matrix holds the results of the tests of this process.
var (
	mu      sync.Mutex
	matrix  []cell // guarded by mu
	without bool   // a test was skipped because a tool is not installed; guarded by mu
)

// golden is the path of the expected matrix of a module. It names the clients and, for each of
// them, the steps that the client lacks or supports only in part, and why.
var golden = filepath.Join("testdata", "matrix.md")

var update = flag.Bool("update", false, "write the golden files anew")

func (c Column) record(step, result, why string) {
	mu.Lock()
	defer mu.Unlock()
	matrix = append(matrix, cell{c, step, result, why})
}

// Records records the outcome of a test as the result of a step. If several tests record the
// same step, it passes only if all of them pass.
func (c Column) Records(t *testing.T, step string) {
	t.Cleanup(func() {
		if t.Failed() {
			c.record(step, fails, "")
		} else if !t.Skipped() {
			c.record(step, ok, "")
		}
	})
}

// Lacks records that a client has no call for a step, and why.
func (c Column) Lacks(t *testing.T, step, why string) {
	t.Logf("%s: %s", step, why)
	c.record(step, lacks, why)
}

// Limited records that a client supports a step only in part, and why the reason is in the client
// and not in the server.
func (c Column) Limited(step, why string) { c.record(step, partly, why) }

// Main runs the tests of a module, prints the matrix and returns the exit code. If all tests ran
// and no tool was missing, the matrix must equal the golden matrix of the module. If the
// environment variable INTEROP_MATRIX names a file, the cells are added to it, one line of JSON
// each. The printed matrix then covers all modules in the file, and is also written to a file
// beside it with the extension .md.
func Main(m *testing.M) int {
	code := m.Run()
	mu.Lock()
	cells, whole := slices.Clone(matrix), !without
	mu.Unlock()
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		whole = whole && flag.Lookup(name).Value.String() == ""
	}
	if whole {
		if err := judge(golden, cells); err != nil {
			fmt.Println("FAIL:", err)
			code = 1
		}
	}
	file := os.Getenv("INTEROP_MATRIX")
	cells, err := keep(file, cells)
	if err == nil {
		out := table(cells)
		_, err = os.Stdout.Write(out)
		if err == nil && file != "" {
			err = os.WriteFile(file+".md", out, 0o600) //nolint:gosec // named by who runs the tests
		}
	}
	if err != nil {
		fmt.Println("FAIL: the matrix:", err)
		code = 1
	}
	return code
}

// keep adds cells to a file and returns all cells in the file. Without a file it returns cells.
func keep(file string, cells []cell) ([]cell, error) {
	if file == "" {
		return cells, nil
	}
	b, err := os.ReadFile(file) //nolint:gosec // named by who runs the tests
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []cell
	for line := range bytes.Lines(b) {
		var c cell
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for _, c := range cells {
		line, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		b = append(append(b, line...), '\n')
	}
	return append(all, cells...), os.WriteFile(file, b, 0o600) //nolint:gosec // the same
}

// fold returns the columns and, for each column, the worst result of each step.
func fold(cells []cell) (columns []Column, results map[Column]map[string]string) {
	results = map[Column]map[string]string{}
	for _, c := range cells {
		if results[c.Column] == nil {
			columns = append(columns, c.Column)
			results[c.Column] = map[string]string{}
		}
		if was := results[c.Column][c.Step]; was != fails && (was != partly || c.Result == fails) {
			results[c.Column][c.Step] = c.Result
		}
	}
	return columns, results
}

// judge returns an error if the matrix of a module differs from the golden matrix in file. With
// the flag -update it writes the golden matrix instead.
func judge(file string, cells []cell) error {
	got := table(cells)
	if *update {
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file) //nolint:gosec // the repository's own
	if err != nil || bytes.Equal(got, want) {
		return err
	}
	return fmt.Errorf("the matrix is not that of %s; where a client has changed, run with -update\n%s", file, diff(string(want), string(got)))
}

// diff returns the lines that are in only one of two texts, with - or + before them.
func diff(want, got string) string {
	var out strings.Builder
	only := func(sign, of, other string) {
		for line := range strings.Lines(of) {
			if !slices.Contains(slices.Collect(strings.Lines(other)), line) {
				out.WriteString(sign + line)
			}
		}
	}
	only("-", want, got)
	only("+", got, want)
	return out.String()
}

// table formats the matrix in Markdown, sorted by client, version and binding: the
// clients, then the members, then the reasons for missing cells.
func table(cells []cell) []byte {
	var out bytes.Buffer
	for _, of := range []struct {
		role, title string
		steps       []string
	}{{"", "Clients", Steps}, {"member", "Members of teams", MemberSteps}} {
		part := slices.DeleteFunc(slices.Clone(cells), func(c cell) bool { return c.Role != of.role })
		if len(part) > 0 {
			rows(&out, of.title, of.steps, part)
		}
	}
	return out.Bytes()
}

// rows writes one table and the reasons below it.
func rows(out *bytes.Buffer, title string, steps []string, cells []cell) {
	slices.SortStableFunc(cells, func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Binding, b.Binding),
			cmp.Compare(slices.Index(steps, a.Step), slices.Index(steps, b.Step)))
	})
	columns, results := fold(cells)
	lines := [][]string{append([]string{title, "Version", "Binding"}, steps...), nil}
	for _, c := range columns {
		line := []string{"`" + c.Client + "`", c.Version, c.Binding}
		for _, step := range steps {
			line = append(line, results[c][step])
		}
		lines = append(lines, line)
	}
	if out.Len() > 0 {
		out.WriteString("\n")
	}
	for i, line := range lines {
		for j, head := range lines[0] {
			width := len(head)
			for _, other := range lines[2:] {
				width = max(width, len(other[j]))
			}
			if i == 1 {
				fmt.Fprintf(out, "|%s", strings.Repeat("-", width+2))
			} else {
				fmt.Fprintf(out, "| %-*s ", width, line[j])
			}
		}
		out.WriteString("|\n")
	}
	var order []string
	where := map[string][]string{} // by why
	for _, c := range cells {
		at := fmt.Sprintf("%s of %s %s over %s", c.Step, c.Client, c.Version, c.Binding)
		if c.Why != "" && !slices.Contains(where[c.Why], at) {
			if where[c.Why] == nil {
				order = append(order, c.Why)
			}
			where[c.Why] = append(where[c.Why], at)
		}
	}
	for i, why := range order {
		if i == 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(out, "- %s:\n  %s\n", strings.Join(where[why], ", "), why)
	}
}
