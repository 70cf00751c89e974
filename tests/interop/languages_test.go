package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// TestLanguages_Python and TestLanguages_TypeScript play the agents of examples/other-languages, each in a folder outside of
// this repository, with the protos that the program writes, built as their README says.
func TestLanguages_Python(t *testing.T) {
	python, folder := interoprig.Python(t), alone(t, "agent.py", "requirements.txt")
	do(t, folder, "sh", "-c", python+" -m grpc_tools.protoc -I protos --python_out=. --grpc_python_out=. $(find protos -name '*.proto')")
	grpcio(t, filepath.Join(folder, "requirements.txt"), filepath.Join("python", "requirements.txt"), "grpcio==", "grpcio-tools==").
		Member(t, interoprig.Agent(t, python, filepath.Join(folder, "agent.py"), "127.0.0.1:0"), "")
}

func TestLanguages_TypeScript(t *testing.T) {
	node, npm, folder := interoprig.Node(t), interoprig.Tool(t, "npm", "install Node.js with npm"), alone(t, "agent.ts", "package.json", "tsconfig.json")
	modules, err := filepath.Abs(filepath.Join("js", "node_modules"))
	if err == nil {
		err = os.Symlink(modules, filepath.Join(folder, "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	do(t, folder, npm, "run", "build")
	grpcio(t, filepath.Join(folder, "package.json"), filepath.Join("js", "package.json"), `@grpc/grpc-js"`, `@grpc/proto-loader"`, `typescript"`, `@types/node"`).
		Member(t, interoprig.Agent(t, node, filepath.Join(folder, "dist", "agent.js"), "127.0.0.1:0"), "")
}

// TestLanguages_Go builds and runs a Go program outside of this repository, whose team has a tool, an agent and a scheduler of
// the program.
func TestLanguages_Go(t *testing.T) {
	folder, root := t.TempDir(), interoprig.Repository(t)
	copied(t, folder, filepath.Join("testdata", "outside", "main.go"), filepath.Join(root, "go.sum"),
		filepath.Join(root, "pkg", "teamfile", "testdata", "team.yaml"), filepath.Join(root, "pkg", "teamfile", "testdata", "team.script.yaml"))
	do(t, folder, "go", "mod", "init", "outside")
	do(t, folder, "go", "mod", "edit", "-require", "github.com/agentteams/team-server@v0.0.0", "-replace", "github.com/agentteams/team-server="+root)
	if out := do(t, folder, "go", "run", "-mod=mod", "."); out != "The tide in Brest: 4.2 m. That is 3 EUR.\n" {
		t.Errorf("%q", out)
	}
}

// alone returns a folder outside of this repository with files of examples/other-languages and the protos of the program.
func alone(t *testing.T, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		copied(t, folder, interoprig.Repository(t, "examples", "other-languages", name))
	}
	do(t, folder, interoprig.BuildServer(t), "protos", "protos")
	return folder
}

// copied copies files into a folder.
func copied(t *testing.T, folder string, files ...string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the repository's own
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(file)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// do runs a command in a folder and returns what it prints.
func do(t *testing.T, folder, program string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // a tool of the test
	c.Dir = folder
	var log strings.Builder
	c.Stderr = &log
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, log.String())
	}
	return string(out)
}

// grpcio returns the column of an agent on a library of gRPC. The agent must ask for the versions of the packages with which
// it is tested; the first is that library.
func grpcio(t *testing.T, own, tested string, packages ...string) interoprig.Column {
	t.Helper()
	for _, name := range packages {
		if asks, has := interoprig.Pinned(t, own, name), interoprig.Pinned(t, tested, name); asks != has {
			t.Errorf("%s asks for %s %s, and is tested with %s", filepath.Base(own), name, asks, has)
		}
	}
	return interoprig.Column{Client: strings.Trim(packages[0], `=">`), Version: interoprig.Pinned(t, own, packages[0]), Binding: interoprig.AgentService}
}
