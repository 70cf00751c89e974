package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostLines of a function (R-002-37).
const mostLines = 100

// TestR_002_37_ShortFunctions reads all code that is written by hand: no function of
// the product is longer than 100 lines, comments not counted, and the linter that
// says so at once is on.
func TestR_002_37_ShortFunctions(t *testing.T) {
	functions := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "gen" || name == "third_party" || name == "bin" || len(name) > 2 && name[0] == '.'):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			fn, ok := n.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				return true
			}
			functions++
			if n := lineCount(files, f, fn.Body); n > mostLines {
				t.Errorf("%s: %s has %d lines; split it", files.Position(fn.Pos()), fn.Name.Name, n)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if functions < 1000 {
		t.Fatalf("only %d functions seen", functions)
	}
	config, err := os.ReadFile(filepath.Join("..", ".golangci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n    - funlen\n", "\n    funlen:\n      lines: 100\n"} {
		if !strings.Contains(string(config), want) {
			t.Errorf(".golangci.yaml lacks %q", want)
		}
	}
}

// lineCount is how many lines are between the braces, without those that are comments.
func lineCount(files *token.FileSet, f *ast.File, body *ast.BlockStmt) int {
	first, last := files.Position(body.Lbrace).Line, files.Position(body.Rbrace).Line
	n := last - first - 1
	for _, group := range f.Comments {
		for _, c := range group.List {
			at, alone := files.Position(c.Pos()), true
			if at.Line <= first || at.Line >= last {
				continue
			}
			ast.Inspect(body, func(node ast.Node) bool {
				if node != nil && files.Position(node.Pos()).Line == at.Line {
					alone = false
				}
				return alone
			})
			if alone {
				n -= strings.Count(c.Text, "\n") + 1
			}
		}
	}
	return n
}

// TestR_000_43_CoreKnowsNoProtocol checks that the core imports messages only:
// no RPC library, no gateway, no package of the bindings.
func TestR_000_43_CoreKnowsNoProtocol(t *testing.T) {
	files := 0
	for _, dir := range []string{"agent", "manager", "team"} {
		var paths []string
		err := filepath.WalkDir(filepath.Join("..", "pkg", dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			files++
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, imp := range f.Imports {
				for _, no := range []string{"google.golang.org/grpc", "grpc-gateway", "net/http", "/team-server/internal/", "/pkg/a2a", "/pkg/server"} {
					if strings.Contains(imp.Path.Value, no) {
						t.Errorf("%s imports %s", path, imp.Path.Value)
					}
				}
			}
			// Services and tasks are the protocol's: the core speaks of messages.
			for _, no := range []string{"A2AServiceServer", "A2AServiceClient", "AgentServiceServer", "AgentServiceClient", "a2av1.Task"} {
				if strings.Contains(string(src), no) {
					t.Errorf("%s mentions %s", path, no)
				}
			}
		}
	}
	if files < 10 {
		t.Fatalf("only %d files seen", files)
	}
}

// module begins the import paths of this repository.
const module = "github.com/agentteams/team-server/"

// production returns the parsed files of a package, without its tests.
func production(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		t.Fatalf("%s has no files", dir)
	}
	return files
}

// TestLayersOfARun checks that the handler of tasks, who claims runs and who drives them
// do not know each other: they meet in what stores implement.
func TestLayersOfARun(t *testing.T) {
	for dir, may := range map[string][]string{
		"pkg/agent":             nil,
		"pkg/a2a":               {"pkg/agent"},
		"internal/engine":       {"pkg/agent", "pkg/a2a"},
		"internal/engine/drive": {"pkg/agent", "pkg/a2a"},
	} {
		for _, f := range production(t, dir) {
			for _, imp := range f.Imports {
				path, err := strconv.Unquote(imp.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				ours, is := strings.CutPrefix(path, module)
				if is && !strings.HasPrefix(ours, "gen/") && !slices.Contains(may, ours) {
					t.Errorf("%s imports %s", dir, ours)
				}
			}
		}
	}
}

// declared returns the names of the types, constants and variables of a file.
func declared(f *ast.File) []string {
	var names []string
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// TestDriverKnowsNoHandler checks that of the package of the handler the driver of runs
// uses the contract of stores, and two funcs that say what callers are answered.
func TestDriverKnowsNoHandler(t *testing.T) {
	may := map[string]bool{"CheckDepth": true, "StoreError": true}
	for _, f := range production(t, "pkg/a2a") {
		if names := declared(f); slices.Contains(names, "Store") || slices.Contains(names, "Conversations") {
			for _, name := range names {
				may[name] = true
			}
		}
	}
	for _, dir := range []string{"internal/engine", "internal/engine/drive"} {
		for _, f := range production(t, dir) {
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "a2a" && !may[s.Sel.Name] {
					t.Errorf("%s uses a2a.%s", dir, s.Sel.Name)
				}
				return true
			})
		}
	}
}
