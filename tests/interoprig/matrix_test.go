package interoprig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Two modules fill one matrix; what failed once stays so; what is missing is told.
func TestMatrix(t *testing.T) {
	file := filepath.Join(t.TempDir(), "matrix.jsonl")
	first := Column{Client: "@a2a-js/sdk", Version: "1.3.0", Binding: "GRPC"}
	var cells []cell
	for _, step := range Steps {
		cells = append(cells, cell{Column: first, Step: step, Result: ok})
	}
	cells = append(cells, cell{Column: first, Step: "get", Result: fails}, cell{Column: first, Step: "get", Result: ok},
		cell{Column: first, Step: "push", Result: partly}, cell{Column: first, Step: "push", Result: ok})
	if _, err := keep(file, cells); err != nil {
		t.Fatal(err)
	}
	var second []cell
	for _, step := range []string{"card", "get"} {
		second = append(second, cell{Column: Column{Client: "a2a", Version: "2", Binding: "JSONRPC"}, Step: step, Result: lacks, Why: "It reads none."})
	}
	all, err := keep(file, second)
	if err != nil {
		t.Fatal(err)
	}
	second = append(second, cell{Column: Column{Client: "a2a", Version: "2", Binding: "JSONRPC", Role: "member"}, Step: "send", Result: ok})
	if all, err = keep(file, second[2:]); err != nil {
		t.Fatal(err)
	}
	want := `| Clients       | Version | Binding | card | send | stream | get  | list | cancel | subscribe | question | push | receive | unknown | ended |
|---------------|---------|---------|------|------|--------|------|------|--------|-----------|----------|------|---------|---------|-------|
| BACKTICK@a2a-js/sdkBACKTICK | 1.3.0   | GRPC    | ok   | ok   | ok     | FAIL | ok   | ok     | ok        | ok       | part | ok      | ok      | ok    |
| BACKTICKa2aBACKTICK         | 2       | JSONRPC | -    |      |        | -    |      |        |           |          |      |         |         |       |

- card of a2a 2 over JSONRPC, get of a2a 2 over JSONRPC:
  It reads none.

| Members of teams | Version | Binding | send | stream | question | cancel | failure |
|------------------|---------|---------|------|--------|----------|--------|---------|
| BACKTICKa2aBACKTICK            | 2       | JSONRPC | ok   |        |          |        |         |
`
	want = strings.ReplaceAll(want, "BACKTICK", "`")
	if got := string(table(all)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A client that does not run, a step that is not played, and an excuse that is new or has
// another reason are told; the order of the tests is not.
func TestMatrixIsTheGoldenOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "matrix.md")
	js, python := Column{Client: "@a2a-js/sdk", Version: "1.3.0", Binding: "GRPC"}, Column{Client: "a2a-sdk", Version: "1.3.0", Binding: "GRPC"}
	var cells []cell
	for _, step := range Steps {
		cells = append(cells, cell{Column: js, Step: step, Result: ok}, cell{Column: python, Step: step, Result: ok})
	}
	cells[8] = cell{Column: js, Step: "list", Result: lacks, Why: "It has no such call."}
	if err := os.WriteFile(file, table(cells), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := judge(file+".none", cells); err == nil {
		t.Error("without a golden matrix all is well")
	}
	for name, tt := range map[string]struct {
		change func([]cell) []cell
		told   string // in the error; empty for none
	}{
		"the same":         {func(c []cell) []cell { return c }, ""},
		"in another order": {func(c []cell) []cell { slices.Reverse(c); return c }, ""},
		"a client that did not run": {func(c []cell) []cell {
			return slices.DeleteFunc(c, func(c cell) bool { return c.Column == python })
		}, "-| `a2a-sdk` "},
		"nothing ran":          {func([]cell) []cell { return nil }, "-| `a2a-sdk` "},
		"a step less":          {func(c []cell) []cell { return c[2:] }, "+| `a2a-sdk` "},
		"a step that fails":    {func(c []cell) []cell { c[0].Result = fails; return c }, "+| `@a2a-js/sdk` "},
		"an excuse":            {func(c []cell) []cell { c[1].Result, c[1].Why = lacks, "Why not."; return c }, "+  Why not."},
		"an excuse in part":    {func(c []cell) []cell { c[1].Result, c[1].Why = partly, "Why not."; return c }, "+  Why not."},
		"another reason":       {func(c []cell) []cell { c[8].Why = "Too late."; return c }, "+  Too late."},
		"an excuse is no more": {func(c []cell) []cell { c[8].Result, c[8].Why = ok, ""; return c }, "-  It has no such call."},
		"all is excused": {func(c []cell) []cell {
			for i := range c {
				c[i].Result, c[i].Why = lacks, "It has no such call."
			}
			return c
		}, "+- card of @a2a-js/sdk 1.3.0 over GRPC, "},
	} {
		err := judge(file, tt.change(slices.Clone(cells)))
		if (err != nil) != (tt.told != "") || err != nil && !strings.Contains(err.Error(), "\n"+tt.told) {
			t.Errorf("%s: %v, want %q", name, err, tt.told)
		}
	}
}

// The clients that docs/protocol.md names are those that are pinned.
func TestDocumentedClients(t *testing.T) {
	doc, err := os.ReadFile(Repository(t, "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pin := range []struct{ module, file, name, row string }{
		{"interop", "go.mod", "a2a-go/v2", "| `github.com/a2aproject/a2a-go/v2` "},
		{"interop", "js/package.json", "@a2a-js/sdk", "| `@a2a-js/sdk` "},
		{"interop", "python/requirements.in", "a2a-sdk", "| `a2a-sdk` "},
		{"interop03", "go.mod", "a2a-go", "| `github.com/a2aproject/a2a-go` "},
		{"interop03", "js/package.json", "@a2a-js/sdk", "| `@a2a-js/sdk` "},
		{"interop03", "python/requirements.in", "a2a-sdk", "| `a2a-sdk` "},
	} {
		if want := pin.row + Pinned(t, Repository(t, "tests", pin.module, filepath.FromSlash(pin.file)), pin.name) + " "; !strings.Contains(string(doc), want) {
			t.Errorf("docs/protocol.md has no row %q; tests/%s pins it", want, pin.module)
		}
	}
}

// The document is what the golden matrices say; -update writes it.
func TestDocument(t *testing.T) {
	file, want := Repository(t, "docs", "interop.md"), document(t)
	if *update {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != string(want) {
		t.Errorf("docs/interop.md is not current: %v; run go test ./tests/interoprig -run TestDocument -update\n%s", err, diff(string(want), string(got)))
	}
}
