package main

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Results of a test of the kit. All but the first count as not passed.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
	xfailed = "xfailed" // failed, as the kit expects
)

// deviation is a reason why tests do not pass.
type deviation struct {
	Reason  string
	Failed  []string
	Skipped []string
	Xfailed []string
}

// tests returns the result of each test that the reason is for.
func (d *deviation) tests() map[string]string {
	all := map[string]string{}
	for result, tests := range map[string][]string{failed: d.Failed, skipped: d.Skipped, xfailed: d.Xfailed} {
		for _, t := range tests {
			all[t] = result
		}
	}
	return all
}

func readDeviations(file string) ([]deviation, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	var all []deviation
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	seen := map[string]bool{}
	for _, d := range all {
		if strings.TrimSpace(d.Reason) == "" {
			return nil, fmt.Errorf("%s has a deviation without a reason", file)
		}
		if len(d.tests()) == 0 {
			return nil, fmt.Errorf("%s has a deviation without tests: %s", file, d.Reason)
		}
		for test := range d.tests() {
			if seen[test] {
				return nil, fmt.Errorf("%s has two deviations for %s", file, test)
			}
			seen[test] = true
		}
	}
	return all, nil
}

// readReport adds the results of a JUnit report of pytest. It puts prefix before
// the names of tests; the packages that all tests share are omitted.
func readReport(file, prefix string, into map[string]string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the kit wrote no report: %w", err)
	}
	var doc struct {
		Suites []struct {
			Cases []struct {
				Class   string     `xml:"classname,attr"`
				Name    string     `xml:"name,attr"`
				Failure []struct{} `xml:"failure"`
				Error   []struct{} `xml:"error"`
				Skipped []struct {
					Type string `xml:"type,attr"`
				} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("reading the kit's report: %w", err)
	}
	n := 0
	for _, s := range doc.Suites {
		for _, c := range s.Cases {
			n++
			test := prefix + strings.TrimPrefix(c.Class, "tests.") + "." + c.Name
			result := passed
			switch {
			case len(c.Failure)+len(c.Error) > 0:
				result = failed
			case len(c.Skipped) > 0 && c.Skipped[0].Type == "pytest.xfail":
				result = xfailed
			case len(c.Skipped) > 0:
				result = skipped
			}
			into[test] = worse(into[test], result)
		}
	}
	if n == 0 {
		return errors.New("the kit ran no test")
	}
	return nil
}

// worse returns the worse of two results of a test that the report lists twice.
func worse(a, b string) string {
	order := []string{"", passed, xfailed, skipped, failed}
	return slices.MaxFunc([]string{a, b}, func(a, b string) int { return cmp.Compare(slices.Index(order, a), slices.Index(order, b)) })
}

// judge returns an error for each test that did not pass without a recorded reason, and
// for each recorded deviation that did not occur.
func judge(results map[string]string, known []deviation) error {
	var errs []error
	excused := map[string]string{}
	for _, d := range known {
		maps.Copy(excused, d.tests())
	}
	for _, test := range slices.Sorted(maps.Keys(excused)) {
		switch got := results[test]; got {
		case excused[test]:
		case "":
			errs = append(errs, fmt.Errorf("%s is on record as %s, and the kit has no such test; take it out", test, excused[test]))
		default:
			errs = append(errs, fmt.Errorf("%s is on record as %s, and is %s now; correct the record", test, excused[test], got))
		}
	}
	for _, test := range slices.Sorted(maps.Keys(results)) {
		if excused[test] == "" && results[test] != passed {
			errs = append(errs, fmt.Errorf("%s is %s, for no reason that is on record", test, results[test]))
		}
	}
	return errors.Join(errs...)
}

// settings returns, as Markdown, what was run and how.
func (s *suite) settings(origin string, at place) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Kit: a2a-tck, branch %s, %s, unmodified. %s.\n\n", s.branch, origin, at.version)
	if s.file == "" {
		out.WriteString("The server was [tools/conformance/agent](../tools/conformance/agent).\n\n")
	} else {
		fmt.Fprintf(&out, "The server ran with `team-server dev --http 127.0.0.1:0 --grpc 127.0.0.1:0` and had this file:\n\n```yaml kit-%s.yaml\n%s```\n\n", s.line, s.file)
	}
	if s.fresh {
		out.WriteString("It was started anew for each test.\n\n")
	}
	out.WriteString("The kit ran with:\n\n```sh\n")
	for _, p := range s.runs {
		fmt.Fprintf(&out, "%s\n", strings.Join(append(append(slices.Clone(s.env), "python -m pytest"), p.args...), " "))
	}
	out.WriteString("```\n\n")
	return out.String()
}

var kitLevel = regexp.MustCompile(`(?m)^│ (MUST|SHOULD|MAY) +│ +(\d+) +│ +(\d+) +│ +(\d+) +│ +(\d+) +│$`)

// kitLevels returns, as Markdown, how many requirements of each level are met by the kit's own count; empty if it prints
// none.
func kitLevels(said string) string {
	var out strings.Builder
	for _, m := range kitLevel.FindAllStringSubmatch(said, -1) {
		if out.Len() == 0 {
			out.WriteString("\nThe kit counts requirements, and takes one for failed if a test of it did not pass over one binding:\n\n" +
				"| Level | Passed | Failed | Skipped | All | Passed of those not skipped |\n|---|---|---|---|---|---|\n")
		}
		n := func(i int) float64 { v, _ := strconv.ParseFloat(m[i], 64); return v }
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %.1f %% |\n", m[1], m[2], m[3], m[4], m[5], 100*n(2)/max(1, n(5)-n(4)))
	}
	return out.String()
}

// report returns the result as Markdown: how many tests passed, and why the others did
// not.
func report(results map[string]string, known []deviation) string {
	count := map[string]int{}
	for _, r := range results {
		count[r]++
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d of %d tests passed; %d did not: %d failed, %d were skipped by the kit, %d failed as the kit allows.\n\n",
		count[passed], len(results), len(results)-count[passed], count[failed], count[skipped], count[xfailed])
	if len(known) == 0 {
		return out.String()
	}
	out.WriteString("| Why | Failed | Skipped | Failed as allowed |\n|---|---|---|---|\n")
	for _, d := range known {
		n := map[string]int{}
		for test := range d.tests() {
			n[results[test]]++
		}
		fmt.Fprintf(&out, "| %s | %d | %d | %d |\n", strings.ReplaceAll(strings.TrimSpace(d.Reason), "\n", " "), n[failed], n[skipped], n[xfailed])
	}
	return out.String()
}
