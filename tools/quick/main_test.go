package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var some = []pkg{
	{ImportPath: "m/docs", Dir: "docs", XTestImports: []string{"m/pkg/a"}},
	{ImportPath: "m/pkg/a", Dir: "pkg/a"},
	{ImportPath: "m/pkg/b", Dir: "pkg/b", Imports: []string{"m/pkg/a"}},
	{ImportPath: "m/pkg/c", Dir: "pkg/c", Imports: []string{"m/pkg/b"}},
	{ImportPath: "m/pkg/d", Dir: "pkg/d", XTestImports: []string{"m/pkg/a"}},
	{ImportPath: "m/tests", Dir: "tests", XTestImports: []string{"m/pkg/a"}},
	{ImportPath: "m/tools/trace", Dir: "tools/trace"},
}

func TestSelectPackages(t *testing.T) {
	for _, tt := range []struct{ name, files, changed, importers string }{
		{"a package and those that import it", "pkg/a/x.go", "m/pkg/a", "m/pkg/b m/pkg/d"},
		{"what a package embeds or reads", "pkg/c/testdata/deep/x.json", "m/pkg/c", ""},
		{"a test", "pkg/c/x_test.go", "m/pkg/c m/tools/trace", ""},
		{"a page", "README.md", "m/docs", ""},
		{"long tests when they change themselves", "tests/x_test.go", "m/tests m/tools/trace", ""},
		{"another module", "tests/interop/x.go", "", ""},
		{"a file of no package", "Makefile", "", ""},
		{"an importer that has changed too", "pkg/b/b.go pkg/a/x.go pkg/a/y.go", "m/pkg/b m/pkg/a", "m/pkg/c m/pkg/d"},
	} {
		s := selectPackages(strings.Fields(tt.files), some, []string{"tests/interop"})
		if diff := cmp.Diff([]string{tt.changed, tt.importers}, []string{strings.Join(s.changed, " "), strings.Join(s.importers, " ")}); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestSteps(t *testing.T) {
	if got := (selection{}).steps(); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	s := selection{goFiles: []string{"x.go"}, changed: []string{"m/a"}, dirs: []string{"./a"}, importers: []string{"m/b"}}
	lines := func(s selection) (all []string) {
		for _, step := range s.steps() {
			all = append(all, strings.Join(step.command, " "))
		}
		return all
	}
	want := []string{"gofmt -l x.go", "go vet m/a m/b", "bin/golangci-lint run ./a", "go test -short -vet=off m/a m/b"}
	if diff := cmp.Diff(want, lines(s)); diff != "" {
		t.Error(diff)
	}
	for range maxImporters {
		s.importers = append(s.importers, "m/more")
	}
	if got := lines(s)[3]; got != "go test -short -vet=off m/a" {
		t.Errorf("with too many importers: %s", got)
	}
}
