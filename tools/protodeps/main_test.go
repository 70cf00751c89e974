package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.proto")
	if err := os.WriteFile(name, []byte("syntax"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("syntax"))
	if b, err := read(name, hex.EncodeToString(sum[:])); err != nil || string(b) != "syntax" {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := read(name, strings.Repeat("0", 64)); err == nil {
		t.Error("a wrong checksum was accepted")
	}
	if _, err := read(name+"x", ""); err == nil {
		t.Error("a missing file was accepted")
	}
}

func TestWrite(t *testing.T) {
	out := filepath.Join(t.TempDir(), "third_party")
	for _, name := range []string{"a/old.proto", "b/new.proto"} {
		if err := write(out, map[string][]byte{name: []byte(name)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "a")); err == nil {
		t.Error("an old file is still there")
	}
	if b, err := os.ReadFile(filepath.Join(out, "b", "new.proto")); err != nil || string(b) != "b/new.proto" {
		t.Errorf("got %q, %v", b, err)
	}
}

// A fault in one place leaves what was there before.
func TestRun_fault(t *testing.T) {
	out := t.TempDir()
	keep := filepath.Join(out, "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), out, []source{{module: "not a module"}}); err == nil {
		t.Error("a module that cannot be was accepted")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}
