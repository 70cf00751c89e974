package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// selection holds the files and packages to check.
type selection struct {
	goFiles   []string // changed Go files that exist
	changed   []string // import paths of packages with changed files
	dirs      []string // and their folders
	importers []string // import paths of packages that import a changed one
	modules   []string // other modules with changed files, which are not checked
	protos    bool     // whether a .proto file has changed
}

// documents is the package whose tests read the Markdown pages, and trace the one whose tests
// read the names of tests.
const (
	documents = "docs"
	trace     = "tools/trace"
)

// selectPackages finds the packages that changed files concern.
func selectPackages(files []string, packages []pkg, modules []string) selection {
	s := selection{modules: modules}
	byDir := map[string]pkg{}
	for _, p := range packages {
		byDir[p.Dir] = p
	}
	add := func(dir string) {
		if p, ok := byDir[dir]; ok && !slices.Contains(s.changed, p.ImportPath) {
			s.changed, s.dirs = append(s.changed, p.ImportPath), append(s.dirs, "./"+dir)
		}
	}
	for _, f := range files {
		if slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(f, m+"/") }) {
			continue
		}
		if _, err := os.Stat(f); err == nil && path.Ext(f) == ".go" {
			s.goFiles = append(s.goFiles, f)
		}
		s.protos = s.protos || path.Ext(f) == ".proto"
		add(nearest(f, byDir))
		switch {
		case path.Ext(f) == ".md":
			add(documents)
		case strings.HasSuffix(f, "_test.go"):
			add(trace)
		}
	}
	for _, p := range packages {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if !slices.Contains(s.changed, p.ImportPath) && !isLong(p.Dir) &&
			slices.ContainsFunc(imports, func(i string) bool { return slices.Contains(s.changed, i) }) {
			s.importers = append(s.importers, p.ImportPath)
		}
	}
	return s
}

// nearest returns the folder of the package that a file belongs to.
func nearest(file string, byDir map[string]pkg) string {
	dir := path.Dir(file)
	for dir != "." {
		if _, ok := byDir[dir]; ok {
			break
		}
		dir = path.Dir(dir)
	}
	return dir
}

// isLong reports whether the tests of a folder are more than unit tests.
func isLong(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	return slices.Contains([]string{"tests", "bench", "examples", documents}, top)
}

// tested returns the packages whose tests are run.
func (s selection) tested() []string {
	if len(s.importers) > maxImporters {
		return s.changed
	}
	return slices.Concat(s.changed, s.importers)
}

// explain prints what is checked, and how to check what is left out.
func (s selection) explain(out io.Writer) {
	fmt.Fprintf(out, "changed: %s\n", strings.Join(s.dirs, " "))
	fmt.Fprintf(out, "imported by %d packages\n", len(s.importers))
	if len(s.importers) > maxImporters {
		fmt.Fprintf(out, "these are vetted and not tested: they are more than %d; run make test\n", maxImporters)
	}
	for _, m := range s.modules {
		fmt.Fprintf(out, "not checked: %s, a module of its own; run cd %s && go test ./...\n", m, m)
	}
	if s.protos {
		fmt.Fprintln(out, "not checked: proto; run make generate, and bin/buf lint")
	}
}

// steps returns the commands that check the selection, the quickest first.
func (s selection) steps() []step {
	var all []step
	if len(s.goFiles) > 0 {
		all = append(all, step{"format", true, append([]string{"gofmt", "-l"}, s.goFiles...)})
	}
	if len(s.changed) == 0 {
		return all
	}
	return append(all,
		step{"vet", false, slices.Concat([]string{"go", "vet"}, s.changed, s.importers)},
		step{"lint", false, append([]string{"bin/golangci-lint", "run"}, s.dirs...)},
		step{"test", false, append([]string{"go", "test", "-short", "-vet=off"}, s.tested()...)},
	)
}
