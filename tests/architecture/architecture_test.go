// Package architecture checks the structure of the sources: the length of functions, and which
// package imports which.
package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
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
	config, err := os.ReadFile(filepath.Join("..", "..", ".golangci.yaml"))
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
// no RPC library, no gateway, no package of the bindings. The fold of events belongs to it.
func TestR_000_43_CoreKnowsNoProtocol(t *testing.T) {
	files := 0
	for _, dir := range append([]string{"pkg/agent", "pkg/manager", "pkg/team", "internal/journal"}, besideAgent...) {
		var paths []string
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
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
				if ours := strings.TrimPrefix(strings.Trim(imp.Path.Value, `"`), module); ours == "internal/journal" || slices.Contains(besideAgent, ours) {
					continue
				}
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

// layersOfTeam are the packages below pkg/team, and which others of them and of the
// module each may import besides gen and pkg/agent.
var layersOfTeam = map[string][]string{
	"":                 {"expr", "inputs", "prompt", "internal/guards", "internal/step", "internal/verdict", foldOfEvents},
	"expr":             nil, // knows nothing of a run
	"inputs":           nil,
	"prompt":           nil,
	"facts":            {"", "expr"},
	"supervisor":       schedulerMayImport,
	"workflow":         schedulerMayImport,
	"broadcast":        schedulerMayImport,
	"swarm":            schedulerMayImport,
	"leader":           schedulerMayImport,
	"internal/guards":  nil,
	"internal/verdict": {"prompt"},
	"internal/step":    {"prompt", "internal/guards", "internal/verdict", foldOfEvents}, // and nothing of the state
}

// besideAgent are packages of what this module alone uses of its contracts: whoever may import pkg/agent may import them.
var besideAgent = []string{"internal/allowance", "internal/forms", "internal/halt/inforce", "internal/spending"}

// foldOfEvents is the package that folds the events of a run.
const foldOfEvents = module + "internal/journal"

// schedulerMayImport is what schedulers are made of: the exported API of pkg/team and
// of what lies between. They know nothing of each other, and the loop nothing of them.
var schedulerMayImport = []string{"", "expr", "facts", "inputs", "prompt"}

// TestLayersOfTeam checks who imports whom below pkg/team.
func TestLayersOfTeam(t *testing.T) {
	seen := map[string]bool{}
	root := filepath.Join("..", "..", "pkg", "team")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, ".")
		allowed, known := layersOfTeam[name]
		if !known {
			t.Errorf("%s: the package is not among the layers of pkg/team; add it", path)
			return nil
		}
		seen[name] = true
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range f.Imports {
			ours, ok := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module)
			if !ok || strings.HasPrefix(ours, "gen/") || ours == "pkg/agent" || slices.Contains(besideAgent, ours) || slices.Contains(allowed, module+ours) {
				continue
			}
			below, ok := strings.CutPrefix(ours+"/", "pkg/team/")
			if !ok || !slices.Contains(allowed, strings.TrimSuffix(below, "/")) {
				t.Errorf("%s imports %s, which lies not below it", path, ours)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range layersOfTeam {
		if !seen[name] {
			t.Errorf("there is no package pkg/team/%s", name)
		}
	}
}

// production returns the parsed files of a package, without its tests.
func production(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
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
// do not know each other: they meet in what stores implement. What is a function of the
// events alone knows none of them.
func TestLayersOfARun(t *testing.T) {
	for dir, may := range map[string][]string{
		"pkg/agent":             nil,
		"pkg/a2aerror":          {"pkg/agent"},
		"internal/identity":     {"pkg/agent"},
		"internal/runs":         {"internal/journal", "pkg/agent", "pkg/a2aerror"},
		"pkg/a2a":               {"pkg/a2aerror", "pkg/agent", "internal/feed", "internal/identity", "internal/runs", "internal/inflight", "internal/journal", "internal/nesting", "internal/project", "internal/settings", "internal/similar", "internal/taskstate"},
		"internal/nesting":      nil,
		"internal/inflight":     {"pkg/agent"},
		"internal/newer":        nil,
		"internal/settings":     {"internal/cardsign", "internal/egress"},
		"internal/feed":         {"pkg/agent", "internal/inflight", "internal/project", "internal/ring", "internal/taskstate"},
		"internal/ring":         nil,
		"internal/taskstate":    nil,
		"internal/journal":      {"pkg/agent"},
		"internal/project":      {"pkg/agent", "internal/journal", "internal/taskstate"},
		"internal/engine":       {"pkg/agent", "internal/identity", "internal/runs"},
		"internal/account":      {"pkg/a2aerror", "pkg/agent", "internal/identity", "internal/runs", "internal/audit", "internal/cost", "internal/settings"},
		"internal/engine/drive": {"pkg/a2aerror", "pkg/agent", "internal/identity", "internal/runs", "internal/account", "internal/inflight", "internal/journal", "internal/nesting", "internal/newer", "internal/taskstate"},
	} {
		for _, f := range production(t, dir) {
			for _, imp := range f.Imports {
				ours, is := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module)
				if is && !strings.HasPrefix(ours, "gen/") && !slices.Contains(may, ours) && (may == nil || !slices.Contains(besideAgent, ours)) {
					t.Errorf("%s imports %s", dir, ours)
				}
			}
		}
	}
}

// layersOfTheStore are the packages of the SQL store, from the lowest one on, and which others of them each may import.
var layersOfTheStore = map[string][]string{
	"db": nil, "record": {"db"}, "board": {"db"}, "admin": {"db", "record"}, "push": {"db", "record"}, "account": {"admin", "db"},
	"run":  {"account", "admin", "db", "push", "record"},
	"task": {"db", "record", "run"},
	"":     {"account", "admin", "board", "db", "push", "record", "run", "task"},
}

// Limits of a room: files, and methods of a type.
const (
	mostFiles   = 25
	mostMethods = 45
)

// TestRoomsOfTheStore checks who imports whom in the SQL store.
func TestRoomsOfTheStore(t *testing.T) {
	const rooms = "internal/store/sqlstore"
	for _, name := range packagesBelow(t, rooms) {
		if _, listed := layersOfTheStore[name]; !listed {
			t.Errorf("%s/%s is not in layersOfTheStore", rooms, name)
		}
	}
	for name, may := range layersOfTheStore {
		for _, f := range production(t, filepath.Join(rooms, name)) {
			for _, imp := range f.Imports {
				if below, is := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+rooms+"/"); is && !slices.Contains(may, below) {
					t.Errorf("%s/%s imports %s", rooms, name, below)
				}
			}
		}
	}
}

// packagesBelow returns the packages in the folder of another one, by their names.
func packagesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no packages: %v", dir, err)
	}
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return slices.Compact(names)
}

// packages returns the packages of the product, without those of test helpers.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	top := filepath.Join("..", "..")
	for _, root := range []string{"cmd", "pkg", "internal"} {
		err := filepath.WalkDir(filepath.Join(top, root), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "testkit"):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			dir, err := filepath.Rel(top, filepath.Dir(path))
			dirs = append(dirs, filepath.ToSlash(dir))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// TestRoomsStaySmall checks that no package and no type grows too large.
func TestRoomsStaySmall(t *testing.T) {
	rooms := packages(t)
	for _, room := range rooms {
		files := production(t, room)
		if len(files) > mostFiles {
			t.Errorf("%s has %d files, want at most %d", room, len(files), mostFiles)
		}
		methods := map[string]int{}
		for _, f := range files {
			for _, d := range f.Decls {
				if fn, is := d.(*ast.FuncDecl); is && fn.Recv != nil {
					of := fn.Recv.List[0].Type
					if p, is := of.(*ast.StarExpr); is {
						of = p.X
					}
					if id, is := of.(*ast.Ident); is {
						methods[id.Name]++
					}
				}
			}
		}
		for typ, n := range methods {
			if n > mostMethods {
				t.Errorf("%s: %s has %d methods, want at most %d", room, typ, n, mostMethods)
			}
		}
	}
}
