package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// declared is one declaration of a package at the top of a file: a function, a
// method, a variable or a constant.
type declared struct {
	isTest   bool            // a function that `go test` runs
	subtests []string        // literals that may be names of subtests
	uses     map[string]bool // every identifier that stands in it
}

// sourceTests finds the tests that carry an ID of find in the Go files below
// root: in the name of a function that `go test` runs, or in a literal that
// begins with an ID and so names a subtest. A literal of a table or helper
// counts for the tests that reach it; where none of its own package does, as in
// a suite that other packages run, its function stands in for them.
func sourceTests(root string, find func(string) []string) (map[string][]test, error) {
	packages := map[string]map[string]*declared{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skippedFolder(root, path):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg = filepath.ToSlash(pkg)
		if packages[pkg] == nil {
			packages[pkg] = map[string]*declared{}
		}
		return readDeclarations(packages[pkg], path, find)
	})
	if err != nil {
		return nil, err
	}
	byID := map[string][]test{}
	for pkg, all := range packages {
		for t, ids := range carriers(all, find) {
			for _, id := range ids {
				byID[id] = append(byID[id], test{pkg, t})
			}
		}
	}
	for _, tests := range byID {
		slices.SortFunc(tests, func(a, b test) int {
			return strings.Compare(a.pkg+" "+a.name, b.pkg+" "+b.name)
		})
	}
	return byID, nil
}

// skippedFolder reports whether a folder holds no tests of ours. The IDs in the
// tests of this program are examples.
func skippedFolder(root, path string) bool {
	name := filepath.Base(path)
	return path != root && strings.HasPrefix(name, ".") ||
		slices.Contains([]string{"bin", "gen", "node_modules", "testdata", "third_party"}, name) ||
		path == filepath.Join(root, "tools", "trace")
}

// readDeclarations adds what a Go file declares, unless it has nothing to do with
// tests. Methods that share a name, and the package's external tests, count as one
// declaration.
func readDeclarations(into map[string]*declared, path string, find func(string) []string) error {
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(path, "_test.go") && !bytes.Contains(text, []byte(`"testing"`)) {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	add := func(name string, isTest bool, node ast.Node) {
		d := into[name]
		if d == nil {
			d = &declared{uses: map[string]bool{}}
			into[name] = d
		}
		d.isTest = d.isTest || isTest
		d.read(node, find)
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			add(decl.Name.Name, strings.HasSuffix(path, "_test.go") && decl.Recv == nil && runsAsTest(decl.Name.Name), decl)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range values.Names {
						add(name.Name, false, values)
					}
				}
			}
		}
	}
	return nil
}

func runsAsTest(name string) bool {
	return name != "TestMain" && slices.ContainsFunc([]string{"Test", "Fuzz", "Example"}, func(kind string) bool {
		return strings.HasPrefix(name, kind)
	})
}

// read takes in the identifiers and names of subtests of a declaration. What a
// test reports, logs or skips with names none.
func (d *declared) read(node ast.Node, find func(string) []string) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return !reports(n)
		case *ast.Ident:
			d.uses[n.Name] = true
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && beginsWithID(text, find) {
				d.subtests = append(d.subtests, text)
			}
		}
		return true
	})
}

// reports says whether a call is one of those of testing.T that take text for people.
func reports(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf", "Skip", "Skipf"}, method.Sel.Name)
}

func beginsWithID(text string, find func(string) []string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	ids := find(first)
	return len(ids) > 0 && strings.HasPrefix(normal(first), normal(ids[0]))
}

// carriers lists, by the name of its function, the IDs that each test of a
// package carries.
func carriers(all map[string]*declared, find func(string) []string) map[string][]string {
	found := map[string][]string{}
	add := func(name string, texts ...string) {
		for _, text := range texts {
			for _, id := range find(text) {
				if !slices.Contains(found[name], id) {
					found[name] = append(found[name], id)
				}
			}
		}
	}
	reached := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !all[name].isTest {
			continue
		}
		add(name, name)
		for other := range reachable(all, name) {
			reached[other] = true
			add(name, all[other].subtests...)
		}
	}
	for name, d := range all {
		if !reached[name] {
			add(name, d.subtests...)
		}
	}
	return found
}

// reachable are the declarations that a test uses, directly or through others
// that are no tests, and itself.
func reachable(all map[string]*declared, name string) map[string]bool {
	seen := map[string]bool{name: true}
	for next := []string{name}; len(next) > 0; next = next[1:] {
		for used := range all[next[0]].uses {
			if other := all[used]; other != nil && !other.isTest && !seen[used] {
				seen[used] = true
				next = append(next, used)
			}
		}
	}
	return seen
}
