// Command trace shows which tests cover which requirement. The requirements are in
// tests/requirements.txt, one a line: an ID and a sentence. A test carries R-000-01
// when its name holds R-000-01 or R_000_01.
//
// From the output of `go test -json` it prints a row for each ID, with the tests that
// carry it and how they ended:
//
//	go test -json ./... | trace -require R-000
//
// With -doc it writes a document instead, from the sentences and the tests found in
// the sources below the current folder; no test runs:
//
//	trace -doc docs/requirements.md
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	file := flag.String("requirements", "tests/requirements.txt", "file with the requirements, one a line")
	require := flag.String("require", "", "IDs that must pass: comma-separated IDs or beginnings of IDs")
	only := flag.Bool("only", false, "print only the IDs that -require names")
	doc := flag.String("doc", "", "write this document, and read no results")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: trace [flags] [go-test-json-file ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *doc != "" {
		if err := writeDocument(*doc, *file); err != nil {
			fmt.Fprintln(os.Stderr, "trace:", err)
			os.Exit(2)
		}
		return
	}
	unmet, err := run(os.Stdout, os.Stdin, *file, *require, *only, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "trace:", err)
		os.Exit(2)
	}
	if len(unmet) > 0 {
		fmt.Fprintf(os.Stderr, "trace: not covered by a passing test: %s\n", strings.Join(unmet, " "))
		os.Exit(1)
	}
}

// writeDocument writes the document of the requirements in a file.
func writeDocument(doc, file string) error {
	text, err := document(".", file)
	if err != nil {
		return err
	}
	return os.WriteFile(doc, []byte(text), 0o644)
}

// run prints the table and returns the required IDs that are not passing.
func run(out io.Writer, stdin io.Reader, file, require string, only bool, files []string) ([]string, error) {
	groups, err := readRequirements(file)
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
	rows := trace(idsOf(groups), results)
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
