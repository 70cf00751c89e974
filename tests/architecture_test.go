package tests

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestR_000_43_CoreKnowsNoProtocol checks that the core imports messages only:
// no RPC library, no gateway, no package of the bindings.
func TestR_000_43_CoreKnowsNoProtocol(t *testing.T) {
	files := 0
	for _, dir := range []string{"agent", "manager", "team"} {
		paths, err := filepath.Glob(filepath.Join("..", "pkg", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
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
				for _, no := range []string{"google.golang.org/grpc", "grpc-gateway", "net/http", "/internal/", "/pkg/a2a", "/pkg/server"} {
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
