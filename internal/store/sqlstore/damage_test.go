package sqlstore_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// pageBytes is the size of a page of a SQLite store.
const pageBytes = 4096

// pageOf returns where the root page of a table or an index is in a file.
func pageOf(t *testing.T, file, name string) int {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var page int
	if err := db.QueryRowContext(t.Context(), `SELECT rootpage FROM sqlite_master WHERE name = ?`, name).Scan(&page); err != nil {
		t.Fatal(err)
	}
	return (page - 1) * pageBytes
}

// stopped is the file of a store that was closed, after so many tasks.
func stopped(t *testing.T, tasks int) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "team.db")
	s := opened(t, "sqlite:"+file, sqlstore.Config{})
	for i := range tasks {
		create(t, s, fmt.Sprintf("task-%d", i))
	}
	closed(t, s)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// written writes a file of a store.
func written(t *testing.T, b []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "team.db")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A record that SQLite cannot read is one that is damaged, whatever is asked of it.
func TestSQLite_P15_AnUnreadableRecordIsDataLoss(t *testing.T) {
	sound := stopped(t, 7)
	file := written(t, sound)
	for _, table := range []string{"run", "task", "event"} {
		page := pageOf(t, file, table)
		end := page + pageBytes // cells are at the end of a page
		for _, at := range []int{page + 1, page + 3, page + 8, page + 15, end - 1, end - 9, end - 40, end - 90, end - 170, end - 290} {
			for _, bit := range []int{0, 3, 6} {
				t.Run(fmt.Sprintf("%s byte %d bit %d", table, at-page, bit), func(t *testing.T) {
					t.Parallel()
					damaged := bytes.Clone(sound)
					damaged[at] ^= 1 << bit
					file := written(t, damaged)
					s := tidied(t, "sqlite:"+file, sqlstore.Config{})
					for n := range 7 {
						at := key(fmt.Sprintf("task-%d", n))
						_, _, task := s.Task(t.Context(), at)
						_, events := s.Events(t.Context(), at, 0, 10)
						for _, err := range []error{task, events} {
							if err != nil && !errors.Is(err, runs.ErrDataLoss) && !errors.Is(err, runs.ErrNotFound) {
								t.Errorf("task %d: %v", n, err)
							}
						}
					}
					if _, err := s.List(t.Context(), me, runs.Filter{}); err != nil && !errors.Is(err, runs.ErrDataLoss) {
						t.Errorf("List = %v", err)
					}
				})
			}
		}
	}
}
