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
	uses     map[string]bool // the identifiers that occur in it
}

// sourceTests returns, by ID, the tests in the Go files below root. find returns
// the IDs in a text. A test has an ID if its name contains it, or if a string
// literal that it uses begins with the ID, because that is the name of a subtest.
// A literal in a table or helper counts for all tests of the package that use the
// table or helper. If there are none, as in a test suite that other packages run,
// it counts for the declaration that contains it.
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

// skippedFolder reports whether a folder contains no tests of requirements: the
// tests of this program contain IDs, but only as examples.
func skippedFolder(root, path string) bool {
	name := filepath.Base(path)
	return path != root && strings.HasPrefix(name, ".") ||
		slices.Contains([]string{"bin", "gen", "node_modules", "testdata", "third_party"}, name) ||
		path == filepath.Join(root, "tools", "trace")
}

// readDeclarations adds the declarations of a Go file to into, if it is a test file
// or imports testing. Declarations with the same name, such as methods of different
// types, are merged into one.
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

// read records the identifiers of a declaration and the literals that may be names
// of subtests. It ignores calls that report, log or skip.
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

// reports returns true for calls of the methods of testing.T that print a text.
func reports(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf", "Skip", "Skipf"}, method.Sel.Name)
}

func beginsWithID(text string, find func(string) []string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	ids := find(first)
	return len(ids) > 0 && strings.HasPrefix(normal(first), normal(ids[0]))
}

// carriers returns the IDs of each test of a package, by the name of its function.
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

// reachable returns the names of a test and of the declarations that it uses,
// directly or through others that are not tests.
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
