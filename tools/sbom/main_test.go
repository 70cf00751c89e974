package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestP23_Materials: the bill of materials of team-server lists each linked module, and is the same each time.
func TestP23_Materials(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "team-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./cmd/team-server")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var files [][]byte
	for _, name := range []string{"1.json", "2.json"} {
		if err := write(filepath.Join(dir, name), program); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two runs differ")
	}
	bom := &cdx.BOM{}
	if err := cdx.NewBOMDecoder(bytes.NewReader(files[0]), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, c := range *bom.Components {
		listed = append(listed, c.Name+" "+c.Version)
		if c.Name != "stdlib" && (c.Hashes == nil || len((*c.Hashes)[0].Value) != 64) {
			t.Errorf("%s has no hash", c.Name)
		}
	}
	version := exec.CommandContext(t.Context(), "go", "version", "-m", program)
	out, err := version.Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if f[0] != "dep" {
			continue
		}
		n++
		if !slices.Contains(listed, f[1]+" "+f[2]) {
			t.Errorf("%s %s is linked, but not listed", f[1], f[2])
		}
	}
	if n < 30 || len(listed) != n+1 {
		t.Errorf("%d modules are linked, %d are listed", n, len(listed))
	}
	t.Logf("%d modules", len(listed))
}

func TestFaults(t *testing.T) {
	dir := t.TempDir()
	if err := write(filepath.Join(dir, "sbom.json"), "main.go"); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("a file that is no program: %v", err)
	}
	info := &debug.BuildInfo{Deps: []*debug.Module{{Path: "example.com/local", Version: "v1.0.0", Replace: &debug.Module{Path: "../local"}}}}
	if _, err := materials(info); err == nil || !strings.Contains(err.Error(), "../local has no hash") {
		t.Errorf("a module in a folder: %v", err)
	}
}
