package interoprig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two modules fill one matrix; what failed once stays so; what is missing is told.
func TestMatrix(t *testing.T) {
	file := filepath.Join(t.TempDir(), "matrix.jsonl")
	first := Column{"@a2a-js/sdk", "1.3.0", "GRPC"}
	var cells []cell
	for _, step := range Steps {
		cells = append(cells, cell{Column: first, Step: step, Result: ok})
	}
	cells = append(cells, cell{Column: first, Step: "get", Result: fails}, cell{Column: first, Step: "get", Result: ok},
		cell{Column: first, Step: "push", Result: part}, cell{Column: first, Step: "push", Result: ok})
	if _, err := keep(file, cells); err != nil {
		t.Fatal(err)
	}
	var second []cell
	for _, step := range []string{"card", "get"} {
		second = append(second, cell{Column: Column{"a2a", "2", "JSONRPC"}, Step: step, Result: lacks, Why: "It reads none."})
	}
	all, err := keep(file, second)
	if err != nil {
		t.Fatal(err)
	}
	want := `client       version  binding  card  send  stream  get   list  cancel  subscribe  question  push  receive  unknown  ended
@a2a-js/sdk  1.3.0    GRPC     ok    ok    ok      FAIL  ok    ok      ok         ok        part  ok       ok       ok
a2a          2        JSONRPC  -                   -                                                                
card of a2a 2 over JSONRPC, get of a2a 2 over JSONRPC:
    It reads none.
`
	if got := string(table(all)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := gaps(cells); len(got) != 0 {
		t.Errorf("gaps %v, want none", got)
	}
	if got := gaps(second); len(got) != len(Steps)-2 || got[0] != "send of a2a over JSONRPC" {
		t.Errorf("gaps %v", got)
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
