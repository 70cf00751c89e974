//go:build !failpoints

package failpoint_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// TestOn runs the tests of the build that has failpoints.
func TestOn(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "test", "-tags=failpoints", "-count=1", "-timeout=60s", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestReleaseHasNone looks for every failpoint of the sources in the program
// as it is released, and in the one with failpoints to see that it would find it.
func TestReleaseHasNone(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program twice; run without -short")
	}
	names := names(t)
	if len(names) == 0 {
		t.Fatal("no failpoint.Hit in the sources")
	}
	names = append(names, "TEAM_FAILPOINTS")
	release, test := build(t), build(t, "-tags=failpoints")
	for _, name := range names {
		if bytes.Contains(release, []byte(name)) {
			t.Errorf("%s is in the program as released", name)
		}
		if !bytes.Contains(test, []byte(name)) {
			t.Errorf("%s is not in the program with failpoints", name)
		}
	}
}

// build builds the program and returns its bytes.
func build(t *testing.T, flags ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "team-server")
	args := append([]string{"build", "-buildvcs=false", "-o", path}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./cmd/team-server")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// names are the literals of all calls of failpoint.Hit in the program's sources.
func names(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if name, ok := hit(t, path, n); ok {
					all = append(all, name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// hit is the name that a call of failpoint.Hit gives.
func hit(t *testing.T, path string, n ast.Node) (string, bool) {
	t.Helper()
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Hit" {
		return "", false
	}
	if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "failpoint" {
		return "", false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		t.Errorf("%s: the name of a failpoint must be a literal", path)
		return "", false
	}
	name, err := strconv.Unquote(lit.Value)
	return name, err == nil
}
