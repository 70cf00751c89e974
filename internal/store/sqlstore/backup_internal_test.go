package sqlstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestPublish: without force a file that was made meanwhile is not replaced, also if it was made after the last check.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	made, file := filepath.Join(dir, "made"), filepath.Join(dir, "file")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(made, "one")
	if err := publish(made, file, false); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		from, to := filepath.Join(dir, fmt.Sprint(i)), filepath.Join(dir, "shared")
		write(from, "two")
		wg.Go(func() { errs[i] = publish(from, to, false) })
	}
	wg.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil && strings.Contains(err.Error(), "--force") {
			refused++
		}
	}
	if refused != len(errs)-1 {
		t.Errorf("%d of %d are refused: %v", refused, len(errs), errs)
	}
	write(made, "three")
	if err := publish(made, file, true); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "three" {
		t.Errorf("with force: %q, %v", text, err)
	}
}
