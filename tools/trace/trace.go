package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// test is one test or subtest of one package.
type test struct{ pkg, name string }

// result is the outcome of a test, or of all tests of an ID together.
type result string

const (
	pass    result = "pass"
	skip    result = "skip"
	fail    result = "fail"
	missing result = "MISSING"
)

// row is one line of the table.
type row struct {
	id     string
	tests  []test
	result result
}

// readResults adds the outcomes in a stream of `go test -json` events to into.
// It skips lines that are not JSON, such as build output. A test that started
// and never ended, because its process died, counts as failed. A test that ran
// more than once gets its worst outcome.
func readResults(into map[test]result, r io.Reader) error {
	running := map[test]bool{}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		readEvent(into, running, bytes.TrimSpace(line))
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	for t := range running {
		into[t] = fail
	}
	return nil
}

func readEvent(into map[test]result, running map[test]bool, line []byte) {
	var e struct{ Action, Package, Test string }
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &e) != nil || e.Test == "" {
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "run":
		running[t] = true
	case "pass", "fail", "skip":
		delete(running, t)
		into[t] = worse(into[t], result(e.Action))
	}
}

// worse returns the worse of two outcomes. From best to worst they are: none,
// pass, skip, fail.
func worse(a, b result) result {
	order := []result{"", pass, skip, fail}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}

// trace returns one row for each ID, in the order of ids.
func trace(ids []string, results map[test]result) []row {
	byID := map[string][]test{}
	find := finder(ids)
	for t := range results {
		for _, id := range find(t.name) {
			byID[id] = append(byID[id], t)
		}
	}
	rows := make([]row, 0, len(ids))
	for _, id := range ids {
		rows = append(rows, row{id, innermost(byID[id]), outcome(byID[id], results)})
	}
	return rows
}

// outcome returns the common outcome of tests: fail if one of them failed, else
// pass if one passed, else skip, or missing if there are no tests.
func outcome(tests []test, results map[test]result) result {
	out := missing
	for _, t := range tests {
		switch r := results[t]; {
		case r == fail:
			return fail
		case r == pass, out == missing:
			out = r
		}
	}
	return out
}

// innermost returns the tests without those that are parents of another one,
// sorted by package and name.
func innermost(tests []test) []test {
	out := slices.Clone(tests)
	out = slices.DeleteFunc(out, func(t test) bool {
		return slices.ContainsFunc(tests, func(o test) bool {
			return o.pkg == t.pkg && strings.HasPrefix(o.name, t.name+"/")
		})
	})
	slices.SortFunc(out, func(a, b test) int {
		return strings.Compare(a.pkg+" "+a.name, b.pkg+" "+b.name)
	})
	return out
}

// finder returns a function that lists the IDs in the name of a test, each
// once. If one ID is a prefix of another, the longer one is preferred.
func finder(ids []string) func(name string) []string {
	byPattern := slices.Clone(ids)
	slices.SortFunc(byPattern, func(a, b string) int { return len(b) - len(a) })
	known := map[string]string{}
	alternatives := make([]string, 0, len(ids))
	for _, id := range byPattern {
		key := normal(id)
		if known[key] == "" {
			known[key] = id
			alternatives = append(alternatives, key)
		}
	}
	if len(ids) == 0 {
		return func(string) []string { return nil }
	}
	// An ID does not follow a capital letter or a digit, so that a word that ends like one is not found.
	re := regexp.MustCompile(`(?:^|[^A-Z0-9])(` + strings.Join(alternatives, "|") + `)(?:[^0-9]|$)`)
	return func(name string) []string {
		var found []string
		for rest := normal(name); ; {
			m := re.FindStringSubmatchIndex(rest)
			if m == nil {
				return found
			}
			if id := known[rest[m[2]:m[3]]]; !slices.Contains(found, id) {
				found = append(found, id)
			}
			rest = rest[m[3]:]
		}
	}
}

// normal replaces the characters of an ID that a Go identifier cannot contain
// by underscores.
func normal(s string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(s)
}

// idPrefixes holds IDs, and prefixes of IDs that end before or at a hyphen.
type idPrefixes []string

func prefixes(list string) idPrefixes {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func (p idPrefixes) match(id string) bool {
	return slices.ContainsFunc(p, func(prefix string) bool {
		return id == prefix || strings.HasPrefix(id, strings.TrimSuffix(prefix, "-")+"-")
	})
}

// unmet lists the wanted IDs that did not pass. A prefix that matches no ID is
// an error, because it is probably misspelled.
func unmet(rows []row, wanted idPrefixes) ([]string, error) {
	for _, p := range wanted {
		if !slices.ContainsFunc(rows, func(r row) bool { return idPrefixes{p}.match(r.id) }) {
			return nil, fmt.Errorf("no ID begins with %q", p)
		}
	}
	var ids []string
	for _, r := range rows {
		if wanted.match(r.id) && r.result != pass {
			ids = append(ids, r.id+"("+string(r.result)+")")
		}
	}
	return ids, nil
}

func printTable(out io.Writer, rows []row) error {
	count := map[result]int{}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		count[r.result]++
		if len(r.tests) == 0 {
			_, _ = fmt.Fprintf(w, "%s\t%s\t\n", r.id, r.result)
		}
		for i, t := range r.tests {
			id, res := r.id, string(r.result)
			if i > 0 {
				id, res = "", ""
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s %s\n", id, res, t.pkg, t.name)
		}
	}
	_, _ = fmt.Fprintf(w, "\n%d IDs: %d pass, %d fail, %d skip, %d MISSING\n",
		len(rows), count[pass], count[fail], count[skip], count[missing])
	return w.Flush()
}
