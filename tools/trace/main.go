// Command trace shows which tests cover which requirement. It reads the
// requirement IDs, one a line, and the output of `go test -json`, and prints a
// row for each ID with the tests that carry it in their names and how they
// ended. A test carries R-000-01 when its name holds R-000-01 or R_000_01.
//
//	go test -json ./... | trace -ids tests/ids.txt -require R-000
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	ids := flag.String("ids", "tests/ids.txt", "file with the IDs, one a line")
	require := flag.String("require", "", "IDs that must pass: comma-separated IDs or beginnings of IDs")
	only := flag.Bool("only", false, "print only the IDs that -require names")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: trace [flags] [go-test-json-file ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	unmet, err := run(os.Stdout, os.Stdin, *ids, *require, *only, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "trace:", err)
		os.Exit(2)
	}
	if len(unmet) > 0 {
		fmt.Fprintf(os.Stderr, "trace: not covered by a passing test: %s\n", strings.Join(unmet, " "))
		os.Exit(1)
	}
}

// run prints the table and returns the required IDs that are not passing.
func run(out io.Writer, stdin io.Reader, idsFile, require string, only bool, files []string) ([]string, error) {
	ids, err := readIDs(idsFile)
	if err != nil {
		return nil, err
	}
	results := map[test]result{}
	if len(files) == 0 {
		if err := readResults(results, stdin); err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
	}
	for _, name := range files {
		if err := readFile(results, name); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	wanted := prefixes(require)
	rows := trace(ids, results)
	shown := rows
	if only {
		shown = nil
		for _, r := range rows {
			if wanted.match(r.id) {
				shown = append(shown, r)
			}
		}
	}
	if err := printTable(out, shown); err != nil {
		return nil, err
	}
	return unmet(rows, wanted)
}

func readFile(into map[test]result, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return readResults(into, f)
}
