package db

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/runs"
)

func flipped(b []byte, at int, mask byte) []byte {
	b = bytes.Clone(b)
	b[at] ^= mask
	return b
}

// The structure of the file is damaged: more than records.
func TestSQLite_P15_ADamagedStructureStopsWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.db")
	b := stopped(t, 300)
	b[39] ^= 8 // how many pages are free
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := opened(t, "sqlite:"+file)
	if err := s.Ready(); !errors.Is(err, runs.ErrStorage) || !strings.Contains(err.Error(), "the structure of ") {
		t.Errorf("Ready = %v", err)
	}
	if err := s.Touch(t.Context()); !errors.Is(err, runs.ErrStorage) {
		t.Errorf("a write: %v", err)
	}
	if err := s.Refuses(); !errors.Is(err, runs.ErrStorage) {
		t.Errorf("Refuses = %v", err)
	}
	if !has(t, s, "record-7") {
		t.Error("a record cannot be read")
	}
}

// stopped is the file of a store that was closed, with so many records.
func stopped(t *testing.T, records int) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "team.db")
	s := opened(t, "sqlite:"+file)
	for i := range records {
		made(t, s, fmt.Sprintf("record-%d", i))
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

// TestIsDamage_Scan pins the text of database/sql for a column of another type.
func TestIsDamage_Scan(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int64
	if err := db.QueryRowContext(t.Context(), "SELECT 'x'").Scan(&n); !isDamage(err) {
		t.Error(err)
	}
	if err := db.QueryRowContext(t.Context(), "SELECT 1 WHERE 0").Scan(&n); isDamage(err) {
		t.Error(err)
	}
}

// TestSQLite_P15_DamagedLog: a store whose log has damage before a whole transaction does not start, and says where; an
// end that a crash has torn is no damage.
func TestSQLite_P15_DamagedLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.db")
	s := opened(t, "sqlite:"+file)
	for i := range 5 {
		made(t, s, fmt.Sprintf("record-%d", i))
	}
	db, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(file + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	var ends []int // of transactions
	for at := logHeader; at+frameHeader+pageBytes <= len(log); at += frameHeader + pageBytes {
		if string(log[at+4:at+8]) != "\x00\x00\x00\x00" {
			ends = append(ends, at+frameHeader+pageBytes)
		}
	}
	check := func(log []byte) (int64, error) { return damageOf(bytes.NewReader(log)) }
	last := ends[len(ends)-2] // where the last transaction begins
	for size := 0; size < len(log); size += 4001 {
		if at, err := check(log[:size]); at >= 0 || err != nil {
			t.Errorf("cut off at %d of %d: damage at %d, %v", size, len(log), at, err)
		}
	}
	for at := last &^ 511; at < len(log); at += 512 {
		torn := bytes.Clone(log)
		clear(torn[max(at, last):min(at+512, len(log))])
		if found, err := check(torn); found >= 0 || err != nil {
			t.Errorf("a torn end at %d: damage at %d, %v", at, found, err)
		}
	}
	for at := 0; at < ends[len(ends)-3]; at += 1 + at%3571 {
		if found, err := check(flipped(log, at, 1<<(at%8))); found < 0 || found > int64(at) || err != nil {
			t.Errorf("byte %d of %d: damage at %d, %v", at, len(log), found, err)
		}
	}
	bad := written(t, db)
	if err := os.WriteFile(bad+"-wal", flipped(log, ends[1]+100, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s cannot be used: its write-ahead log is damaged at byte %d", bad, ends[1])
	if _, err := Open(t.Context(), "sqlite:"+bad, Config{Log: zap.NewNop()}); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("Open = %v, want %s", err, want)
	}
	copied := filepath.Join(t.TempDir(), "copy.db") // would lack what follows the damage
	if err := Backup(t.Context(), bad, copied); err == nil || !strings.Contains(err.Error(), "its write-ahead log is damaged at byte ") || exists(copied) {
		t.Errorf("Backup = %v", err)
	}
}

// FuzzP17_Log: any bytes can be read as a log.
func FuzzP17_Log(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(make([]byte, logHeader), make([]byte, 2*(frameHeader+pageBytes))...))
	f.Fuzz(func(t *testing.T, log []byte) {
		if _, err := damageOf(bytes.NewReader(log)); err != nil {
			t.Fatal(err)
		}
	})
}
