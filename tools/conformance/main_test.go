package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// python stands in for a Python with pytest: it starts the server anew, as the plugin
// does, and writes a report.
const python = `#!/usr/bin/env bash
if [[ $1 == -c ]]; then echo "Python 3, pytest 8"; exit; fi
for a; do case $a in --junitxml=*) report=${a#*=} ;; --sut-host=*) echo "at ${a#*=}" ;; esac; done
curl -sS --fail -X POST --data "" "$FRESH_SERVER"
cp REPORT "$report"
exit 1
`

// program stands in for the server. A signal that comes just before read begins to wait is
// seen when its second is over.
const program = `#!/usr/bin/env bash
trap 'exit 0' TERM
echo started >> STARTS
echo "ready http=127.0.0.1:4711 grpc=127.0.0.1:4712"
while :; do read -r -t 1 <> <(:) || :; done
`

const junit = `<testsuites><testsuite>
<testcase classname="tests.compatibility.test_a.TestA" name="test_good"/>
<testcase classname="tests.compatibility.test_a" name="test_bad[grpc]"><failure message="no"/></testcase>
<testcase classname="tests.compatibility.test_a" name="test_left"><skipped type="pytest.skip" message="why"/></testcase>
<testcase classname="tests.compatibility.test_a" name="test_may"><skipped type="pytest.xfail"/></testcase>
</testsuite></testsuites>
`

// A kit is run on a copy; what did not pass has to be on record, and is written into the document.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	kit := filepath.Join(dir, "kit")
	write(t, filepath.Join(kit, "tests", "compatibility", "test_a.py"), "")
	starts := filepath.Join(dir, "starts")
	doc := write(t, filepath.Join(dir, "doc.md"), "Before.\n<!-- begin 1.0 -->\nold\n<!-- end 1.0 -->\nAfter.\n")
	record := filepath.Join(dir, "deviations-1.0.yaml")
	var said bytes.Buffer
	c := command{
		kit: kit, work: filepath.Join(dir, "work"), deviations: dir, doc: doc, out: &said,
		python: write(t, filepath.Join(dir, "python"), strings.ReplaceAll(python, "REPORT", write(t, filepath.Join(dir, "report.xml"), junit))),
		agent:  write(t, filepath.Join(dir, "agent"), strings.ReplaceAll(program, "STARTS", starts)),
	}
	for _, tt := range []struct{ record, want string }{
		{"[]", "compatibility.test_a.test_bad[grpc] is failed, for no reason that is on record\n" +
			"compatibility.test_a.test_left is skipped, for no reason that is on record\n" +
			"compatibility.test_a.test_may is xfailed, for no reason that is on record"},
		{`[{reason: It is so., failed: ["compatibility.test_a.test_bad[grpc]"], skipped: [compatibility.test_a.test_left], xfailed: [compatibility.test_a.test_may]}]`, ""},
		{`[{reason: It is so., failed: ["compatibility.test_a.test_bad[grpc]", compatibility.test_a.test_left, compatibility.test_a.TestA.test_good, compatibility.test_a.test_gone], xfailed: [compatibility.test_a.test_may]}]`,
			"compatibility.test_a.TestA.test_good is on record as failed, and is passed now; correct the record\n" +
				"compatibility.test_a.test_gone is on record as failed, and the kit has no such test; take it out\n" +
				"compatibility.test_a.test_left is on record as failed, and is skipped now; correct the record"},
	} {
		write(t, record, tt.record)
		got := ""
		if err := c.run(t.Context()); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("with %s:\n%s\nwant\n%s", tt.record, got, tt.want)
		}
	}
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Before.\n<!-- begin 1.0 -->\n\nKit: a2a-tck, branch 1.0-dev, files with the SHA-256 ", "Python 3, pytest 8", "The server was [tools/conformance/agent](../tools/conformance/agent).\n\nIt was started anew for each test.\n",
		"1 of 4 tests passed; 3 did not: 1 failed, 1 were skipped by the kit, 1 failed as the kit allows.", "| It is so. |", "<!-- end 1.0 -->\nAfter.\n",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the document has no %q:\n%s", want, b)
		}
	}
	if !strings.Contains(said.String(), "at http://127.0.0.1:4711\n") {
		t.Errorf("the kit was not told where the server is:\n%s", said.String())
	}
	if b, err := os.ReadFile(starts); err != nil || strings.Count(string(b), "started") != 6 {
		t.Errorf("started %q, want twice for each run; %v", b, err)
	}
}

// What is wrong with a kit or a record is said before anything is run.
func TestConformanceRefuses(t *testing.T) {
	dir := t.TempDir()
	kit := filepath.Join(dir, "kit")
	write(t, filepath.Join(kit, "tests", "compatibility", "test_a.py"), "")
	for name, tt := range map[string]struct{ kit, record, want string }{
		"no kit":         {"", "[]", "make conformance KIT=dir"},
		"another folder": {dir, "[]", "is not a kit that is known here"},
		"no reason":      {kit, "[{failed: [a]}]", "a deviation without a reason"},
		"no tests":       {kit, "[{reason: a}]", "a deviation without tests: a"},
		"twice":          {kit, "[{reason: a, failed: [b]}, {reason: c, skipped: [b]}]", "two deviations for b"},
		"an unknown key": {kit, "[{reason: a, faild: [b]}]", "faild"},
	} {
		write(t, filepath.Join(dir, "deviations-1.0.yaml"), tt.record)
		c := command{kit: tt.kit, work: filepath.Join(dir, "work"), deviations: dir, out: &bytes.Buffer{}, python: "none", server: "none", agent: "none"}
		if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A checkout is known by its commit; one with changes is refused.
func TestIdentify(t *testing.T) {
	kit := t.TempDir()
	write(t, filepath.Join(kit, "file"), "one")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-q", "-m", "one"}} {
		if _, err := output(t.Context(), kit, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	commit, err := output(t.Context(), kit, "git", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := identify(t.Context(), kit); err != nil || got != "commit "+commit {
		t.Errorf("%q, %v", got, err)
	}
	write(t, filepath.Join(kit, "file"), "two")
	if _, err := identify(t.Context(), kit); err == nil || !strings.Contains(err.Error(), "has changes") {
		t.Error(err)
	}
}

// Only a POST starts the server anew.
func TestControl(t *testing.T) {
	dir := t.TempDir()
	s, err := start(write(t, filepath.Join(dir, "server"), strings.ReplaceAll(program, "STARTS", filepath.Join(dir, "starts"))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.control(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
}

// The deviations of this repository can be read, and each line of the protocol has some.
func TestDeviations(t *testing.T) {
	for _, s := range suites {
		if known, err := readDeviations("deviations-" + s.line + ".yaml"); err != nil || len(known) == 0 {
			t.Errorf("%s: %v, %v", s.line, known, err)
		}
	}
}
