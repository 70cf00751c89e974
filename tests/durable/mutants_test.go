//go:build linux

package durable

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/sample"
)

// edit replaces a text of a source that is there exactly once.
type edit struct{ file, from, to string }

// An owner learns in two ways that it has lost its runs, before the fence stops it:
// it hears late from its store, and it sees a later epoch.
var (
	late  = edit{"internal/engine/beat.go", "over := now.Sub(p.heard) >= 3*p.every &&", "over := now.Before(p.heard) &&"}
	later = edit{"internal/store/sqlstore/run/runs.go", "j.epoch < m.epoch", "j.epoch > m.epoch"}
)

// mutants are servers with a fault each that the tests of this package must
// notice; a mutant that passes is a hole in the tests.
var mutants = []struct {
	name  string
	edits []edit
	test  string // that must fail
	want  string // what it must say: an expression; empty: the test must pass
}{
	{
		name:  "Commit acknowledges what is not durable",
		edits: []edit{{"internal/store/sqlstore/run/journal.go", "	want := j.appends\n", "	want := j.commits\n"}},
		test:  "TestCrash_P1_P2/P1_P2_sqlite", want: "began on record in life|which is not on record",
	},
	{
		name:  "what is recorded is ignored",
		edits: []edit{{"pkg/team/phases.go", "for _, ev := range p.req.GetRecorded() {", "for _, ev := range p.req.GetRecorded()[:0] {"}},
		test:  "TestCrash_P1_P2/P1_P2_sqlite", want: "which had ended on record in life|asks a second time",
	},
	{
		name: "the owner is not asked for",
		edits: []edit{
			{"internal/store/sqlstore/record/task.go", "WHERE id = $1 AND owner = $2`", "WHERE id = $1 AND $2 <> ''`"},
			{"internal/store/sqlstore/run/live.go", "case j.owner != k.Owner:", "case k.Owner == \"\":"},
		},
		test: "TestCrash_P1_P2/P1_P2_sqlite", want: "was shown to another principal",
	},
	{
		name:  "an owner does not notice that its lease is over",
		edits: []edit{late, later},
		test:  "TestReplicas_P2_Stopped", // the fence alone is enough
	},
	{
		name: "appends are not fenced",
		edits: []edit{
			late, later,
			{"internal/store/sqlstore/run/journal.go", "deltas = deltas + $6 WHERE id = $1 AND epoch = $2 AND seq = $3 AND push = $7`", "deltas = deltas + $6 WHERE id = $1 AND $2 > 0 AND $3 >= 0 AND $7 >= 0`"},
		},
		test: "TestReplicas_P2_Stopped", want: "after the run had ended",
	},
	{
		name: "appends are not fenced, and servers are cut off",
		edits: []edit{
			late, later,
			{"internal/store/sqlstore/run/journal.go", "deltas = deltas + $6 WHERE id = $1 AND epoch = $2 AND seq = $3 AND push = $7`", "deltas = deltas + $6 WHERE id = $1 AND $2 > 0 AND $3 >= 0 AND $7 >= 0`"},
			{"internal/store/sqlstore/run/journal.go", "WHERE run.id = $1 AND epoch = $2 AND run.seq = $3 ON CONFLICT", "WHERE run.id = $1 AND $2 > 0 AND $3 >= 0 ON CONFLICT"},
		},
		test: "TestReplicas_P20_Partitions", want: "wrote it in epoch|follows its end|has sequence|nobody wrote",
	},
	{
		name:  "SQLite does not sync",
		edits: []edit{{"internal/store/sqlstore/db/sqlite.go", "_pragma=synchronous(FULL)", "_pragma=synchronous(OFF)"}},
		test:  "TestSync_P3/P3_sqlite", want: "syncs for",
	},
	{
		name:  "PostgreSQL does not sync before it answers",
		edits: []edit{{"internal/store/sqlstore/db/postgres.go", `RuntimeParams["synchronous_commit"] = "on"`, `RuntimeParams["synchronous_commit"] = "off"`}},
		test:  "TestSync_P3/P3_postgres", want: "syncs for",
	},
}

// mutantCycles is how many lives a mutant gets.
const mutantCycles = 8

// TestCrash_Mutants runs the tests on servers with a fault each.
func TestCrash_Mutants(t *testing.T) {
	for _, m := range mutants {
		overlay(t, m.edits) // which finds what the edits replace, also where the mutants are not built
	}
	if !sample.All() || os.Getenv(serverVariable) != "" {
		t.Skip("builds the server once a mutant; set TEAM_TESTS=all")
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "team-server")
			if err := compile(path, "-overlay", overlay(t, m.edits)); err != nil {
				t.Fatalf("the mutant does not compile: %v", err)
			}
			out, err := runWith(t, path, m.test)
			line := mention(out, m.want)
			switch {
			case m.want == "" && err != nil:
				t.Fatalf("%s fails:\n%s", m.test, out)
			case m.want == "":
				t.Logf("%s passes, as it must", m.test)
				return
			case err == nil:
				t.Fatalf("%s passes although %s:\n%s", m.test, m.name, out)
			case line == "":
				t.Fatalf("%s fails, but not for %q:\n%s", m.test, m.want, out)
			}
			t.Logf("%s fails: %s", m.test, line)
		})
	}
}

// overlay writes the sources of a mutant.
func overlay(t *testing.T, edits []edit) string {
	t.Helper()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sources := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		from := path
		if changed := sources[path]; changed != "" {
			from = changed
		}
		src, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), e.from); n != 1 {
			t.Fatalf("%s holds %d times, not once:\n%s", e.file, n, e.from)
		}
		sources[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(sources[path], []byte(strings.Replace(string(src), e.from, e.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": sources})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return list
}

// runWith runs one test of this package on another server.
func runWith(t *testing.T, server, test string) (string, error) {
	t.Helper()
	var exact []string
	for part := range strings.SplitSeq(test, "/") {
		exact = append(exact, "^"+part+"$")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(exact, "/"), "-test.timeout=3m")
	cmd.Env = append(os.Environ(), serverVariable+"="+server, fmt.Sprintf("%s=%d", cyclesVariable, mutantCycles))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mention is the first line of an output that an expression fits.
func mention(out, expr string) string {
	want := regexp.MustCompile(expr)
	for line := range strings.SplitSeq(out, "\n") {
		if want.MatchString(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
