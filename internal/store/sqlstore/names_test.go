package sqlstore_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestSQLite_P1_AFileThatIsDeletedIsNotWritten: nor one that is moved or replaced, because what is acknowledged would be
// lost when the process ends. Reads continue.
func TestSQLite_P1_AFileThatIsDeletedIsNotWritten(t *testing.T) {
	for name, c := range map[string]struct {
		change func(file string) error
		want   string
	}{
		"deleted":     {os.Remove, "store.db was deleted or moved"},
		"moved":       {func(file string) error { return os.Rename(file, file+".old") }, "store.db was deleted or moved"},
		"log deleted": {func(file string) error { return os.Remove(file + "-wal") }, "store.db-wal was deleted or moved"},
		"replaced": {func(file string) error {
			return errors.Join(os.WriteFile(file+".new", nil, 0o600), os.Rename(file+".new", file))
		}, "store.db was replaced by another file"},
	} {
		t.Run("P1 "+name, func(t *testing.T) {
			core, logged := observer.New(zapcore.InfoLevel)
			file := t.TempDir() + "/store.db"
			s := open(t, "sqlite:"+file, sqlstore.Config{Log: zap.New(core)})
			create(t, s, "one")
			if err := s.Ready(); err != nil {
				t.Fatal(err)
			}
			if err := c.change(file); err != nil {
				t.Fatal(err)
			}
			until(t, "the store refuses writes", func() bool { return s.Ready() != nil })
			if _, _, err := s.Create(t.Context(), task("two")); !errors.Is(err, runs.ErrStorage) {
				t.Errorf("a task was acknowledged: %v", err)
			}
			if claims, _, err := s.Claim(t.Context(), "r", engine.NewRoom(10, nil)); !errors.Is(err, runs.ErrStorage) {
				t.Errorf("%d runs were claimed: %v", len(claims), err)
			}
			if _, _, err := s.Task(t.Context(), key("one")); err != nil {
				t.Errorf("a task cannot be read: %v", err)
			}
			until(t, "it is logged", func() bool { return logged.FilterMessage("the store takes no writes").Len() == 1 })
			if text := s.Ready().Error(); !strings.Contains(text, c.want) || !strings.Contains(text, "stop the server") || !strings.Contains(text, "restore a backup") {
				t.Errorf("not ready because: %s", text)
			}
		})
	}
}
