package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFinder(t *testing.T) {
	find := finder([]string{"R-000-01", "R-002-1.1", "R-002-10", "R-002-10.1", "S-15", "A-01"})
	for name, want := range map[string][]string{
		"TestX/R-000-01_info_shape":    {"R-000-01"},
		"TestR_000_01":                 {"R-000-01"},
		"TestR_000_01Info":             {"R-000-01"},
		"TestX/R-000-01,S-15":          {"R-000-01", "S-15"},
		"TestX/R-000-01_S-15_R_000_01": {"R-000-01", "S-15"},
		"TestX/R-000-010":              nil,
		"TestX/XR-000-01":              nil,
		"TestTLS_15":                   nil,
		"TestX/data-01":                nil,
		"TestX/R-002-1.1":              {"R-002-1.1"},
		"TestR_002_1_1_Direct":         {"R-002-1.1"},
		"TestX/R-002-10":               {"R-002-10"},
		"TestX/R-002-10.1_more":        {"R-002-10.1"},
		"TestA_01":                     {"A-01"},
		"":                             nil,
	} {
		if diff := cmp.Diff(want, find(name)); diff != "" {
			t.Errorf("%q: %s", name, diff)
		}
	}
}

const events = `# some/pkg
not json
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/R-000-01_ok"}
{"Action":"output","Package":"p","Test":"TestA/R-000-01_ok","Output":"S-15\n"}
{"Action":"pass","Package":"p","Test":"TestA/R-000-01_ok"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestR_000_02"}
{"Action":"skip","Package":"p","Test":"TestR_000_02"}
{"Action":"run","Package":"p","Test":"TestR_000_03"}
{"Action":"run","Package":"p","Test":"TestR_000_03/sub"}
{"Action":"pass","Package":"p","Test":"TestR_000_03/sub"}
{"Action":"fail","Package":"p","Test":"TestR_000_03"}
{"Action":"run","Package":"q","Test":"TestS_15_dies"}
{"Action":"fail","Package":"q"}
{"Action":"run","Package":"q","Test":"TestR_000_05"}
{"Action":"skip","Package":"q","Test":"TestR_000_05"}
{"Action":"run","Package":"r","Test":"TestR_000_05"}
{"Action":"pass","Package":"r","Test":"TestR_000_05"}
`

func TestRun(t *testing.T) {
	ids := filepath.Join(t.TempDir(), "requirements.txt")
	text := "## Rules\nR-000-01 One.\nR-000-02 Two.\nR-000-03 Three.\nR-000-04 Four.\n\nR-000-05 Five.\n## Scenarios\nS-15 It dies.\n"
	if err := os.WriteFile(ids, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	got, err := run(&out, strings.NewReader(events), ids, "R-000-0,R-000,S-15", false, nil)
	if err == nil {
		t.Errorf("a prefix without IDs was accepted: %v", got)
	}
	out.Reset()
	got, err = run(&out, strings.NewReader(events), ids, "R-000,S-15", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"R-000-02(skip)", "R-000-03(fail)", "R-000-04(MISSING)", "S-15(fail)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	table := `R-000-01  pass     p TestA/R-000-01_ok
R-000-02  skip     p TestR_000_02
R-000-03  fail     p TestR_000_03/sub
R-000-04  MISSING  
R-000-05  pass     q TestR_000_05
                   r TestR_000_05
S-15      fail     q TestS_15_dies

6 IDs: 2 pass, 2 fail, 1 skip, 1 MISSING
`
	if diff := cmp.Diff(table, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestRun_only(t *testing.T) {
	dir := t.TempDir()
	ids, results := filepath.Join(dir, "requirements.txt"), filepath.Join(dir, "results")
	for name, text := range map[string]string{ids: "## All\nR-000-01 One.\nS-15 It dies.\nS-16 It lives.\n", results: events} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	got, err := run(&out, nil, ids, "R-000-01", true, []string{results})
	if err != nil || len(got) != 0 {
		t.Fatalf("got %v, %v", got, err)
	}
	if diff := cmp.Diff("R-000-01  pass  p TestA/R-000-01_ok\n\n1 IDs: 1 pass, 0 fail, 0 skip, 0 MISSING\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestReadRequirements(t *testing.T) {
	for text, want := range map[string]string{
		"## All\nS-15 One.\nS-15 Two.\n": "S-15 is there twice",
		"## All\nS-15\n":                 "want an ID and a sentence",
		"S-15 One.\n":                    "below a heading",
	} {
		file := filepath.Join(t.TempDir(), "requirements.txt")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readRequirements(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestSourceTests finds IDs in names of tests and in literals that begin with one,
// wherever the tests reach them, and not in what tests report.
func TestSourceTests(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"pkg/a_test.go": `package a

func TestR_000_01_Name(t *testing.T) { t.Error("R-000-02 was reported") }

func TestTable(t *testing.T) {
	for _, c := range cases {
		check(t, c.name)
	}
}

func TestAnother(t *testing.T) { t.Run("no R-000-05 at the beginning", nil) }

var cases = []struct{ name string }{{"R-000-03 S-15 in a table"}}
`,
		"pkg/b_test.go":          "package a_test\n\nfunc check(t *testing.T, name string) { t.Run(\"R-000-04 \"+name, nil) }\n",
		"suite/suite.go":         "package suite\n\nimport \"testing\"\n\nfunc Run(t *testing.T) { t.Run(\"R-000-03 everywhere\", nil) }\n",
		"suite/testdata/x.go":    "not Go",
		"tools/trace/an_test.go": "package main\n\nfunc TestR_000_05(t *testing.T) {}\n",
	} {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := sourceTests(root, finder([]string{"R-000-01", "R-000-02", "R-000-03", "R-000-04", "R-000-05", "S-15"}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]test{
		"R-000-01": {{"pkg", "TestR_000_01_Name"}},
		"R-000-03": {{"pkg", "TestTable"}, {"suite", "Run"}},
		"R-000-04": {{"pkg", "TestTable"}},
		"S-15":     {{"pkg", "TestTable"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(test{})); diff != "" {
		t.Error(diff)
	}
}

// TestDocument compares docs/requirements.md with what the sources give.
func TestDocument(t *testing.T) {
	root := filepath.Join("..", "..")
	want, err := document(root, filepath.Join(root, "tests", "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "requirements.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/requirements.md is out of date, run `make trace-docs`:\n%s", diff)
	}
}
