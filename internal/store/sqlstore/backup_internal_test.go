package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPublish: without force a file that was made meanwhile is not replaced, also if it was made after the last check.
func TestPublish(t *testing.T) {
	fine := func() error { return nil }
	dir := t.TempDir()
	made, file := filepath.Join(dir, "made"), filepath.Join(dir, "file")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(made, "one")
	if err := publish(made, file, false, fine); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		from, to := filepath.Join(dir, fmt.Sprint(i)), filepath.Join(dir, "shared")
		write(from, "two")
		wg.Go(func() { errs[i] = publish(from, to, false, fine) })
	}
	wg.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil && strings.Contains(err.Error(), "name another file") {
			refused++
		}
	}
	if refused != len(errs)-1 {
		t.Errorf("%d of %d are refused: %v", refused, len(errs), errs)
	}
	write(made, "three")
	if err := publish(made, file, true, fine); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "three" {
		t.Errorf("with force: %q, %v", text, err)
	}
	write(made, "four")
	late := errors.New("a server has opened it")
	if err := publish(made, file, true, func() error { return late }); !errors.Is(err, late) {
		t.Errorf("published although the last check failed: %v", err)
	}
}

// TestVerifyInterrupted: wherever the verification is interrupted, it does not say that the backup is damaged.
func TestVerifyInterrupted(t *testing.T) {
	dir := t.TempDir()
	url, file := "sqlite:"+filepath.Join(dir, "team.db"), filepath.Join(dir, "backup")
	s, err := Open(t.Context(), url, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Backup(t.Context(), url, file, false, nil); err != nil {
		t.Fatal(err)
	}
	for n := int64(0); ; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		ends := &ending{Context: ctx, cancel: cancel}
		ends.left.Store(n)
		_, err := verifyBackup(ends, file)
		ended := ctx.Err() != nil
		cancel()
		if errors.Is(err, ErrNoBackup) {
			t.Fatalf("%d: %v", n, err)
		}
		if !ended {
			if n < 50 || err != nil {
				t.Errorf("%d times: %v", n, err)
			}
			return
		}
	}
}

// ending is a context that ends when Done is called for the last of some times.
type ending struct {
	context.Context
	cancel func()
	left   atomic.Int64
}

func (e *ending) Done() <-chan struct{} {
	if e.left.Add(-1) < 0 {
		e.cancel()
	}
	return e.Context.Done()
}
