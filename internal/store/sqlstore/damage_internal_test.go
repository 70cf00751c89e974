package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// crashed are the files of a store as a crash leaves them, after so many tasks.
func crashed(t testing.TB, tasks int) (db, log []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "team.db")
	s, err := Open(t.Context(), "sqlite:"+file, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range tasks {
		made(t, s, fmt.Sprintf("task-%d", i))
	}
	if db, err = os.ReadFile(file); err == nil {
		log, err = os.ReadFile(file + "-wal")
	}
	if err != nil {
		t.Fatal(err)
	}
	return db, log
}

func made(t testing.TB, s *Store, id string) {
	t.Helper()
	if err := make1(s, id); err != nil {
		t.Fatal(err)
	}
}

func make1(s *Store, id string) error {
	n := a2a.New{Owner: "o", MessageID: "m-" + id, Digest: []byte("d"), Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Owner: "o", Message: agent.UserMessage("m-"+id, "do it")}}
	_, _, err := s.Create(context.Background(), n)
	return err
}

func scanned(t testing.TB, log []byte) *logScan {
	t.Helper()
	s, err := readLog(bytes.NewReader(log), int64(len(log)), defaultPage)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// commitsOf are the offsets behind the frames that end transactions.
func commitsOf(log []byte) (ends []int) {
	for at := logHeader; at+frameHeader+defaultPage <= len(log); at += frameHeader + defaultPage {
		if !bytes.Equal(log[at+4:at+8], make([]byte, 4)) {
			ends = append(ends, at+frameHeader+defaultPage)
		}
	}
	return ends
}

func flipped(b []byte, at int, mask byte) []byte {
	b = bytes.Clone(b)
	b[at] ^= mask
	return b
}

// What a crash leaves is no damage: an end that is cut off, or a last transaction of
// which some sectors are not what was written.
func TestSQLite_P3_ATornEndIsNoDamage(t *testing.T) {
	_, log := crashed(t, 5)
	ends := commitsOf(log)
	if len(ends) < 6 {
		t.Fatalf("%d transactions in the log", len(ends))
	}
	if s := scanned(t, log); s.commits > 0 || len(s.damage) > 0 {
		t.Fatalf("a whole log: %+v", s)
	}
	for size := 0; size < len(log); size += 331 * sample.Stride() {
		if s := scanned(t, log[:size]); s.commits > 0 {
			t.Errorf("cut off at %d of %d: %+v", size, len(log), s)
		}
	}
	for at := ends[len(ends)-2]; at < len(log); at += 512 * sample.Stride() {
		torn := bytes.Clone(log)
		copy(torn[at:min(at+512, len(log))], bytes.Repeat([]byte{0xa5}, 512))
		if s := scanned(t, torn); s.commits > 0 {
			t.Errorf("torn at %d: %+v", at, s)
		}
	}
}

// A bit that is flipped is found, wherever it is.
func TestSQLite_P15_AFlippedBitOfTheLogIsFound(t *testing.T) {
	_, log := crashed(t, 5)
	ends := commitsOf(log)
	mended, all := 0, 0
	for at := 0; at < ends[len(ends)-1]; at += (1 + at%1733) * sample.Stride() {
		s := scanned(t, flipped(log, at, 1<<(at%8)))
		switch all++; {
		case s.commits == 0:
			t.Errorf("byte %d of %d: %+v", at, len(log), s)
		case len(s.flips) == 1 && s.flips[0] == flip{int64(at), 1 << (at % 8)} && len(s.dropped) == 0:
			mended++
		case len(s.flips) > 0 || len(s.dropped) == 0: // the high bits of a word stand for each other
			t.Errorf("byte %d: put right at %v, %d frames are dropped", at, s.flips, len(s.dropped))
		}
	}
	t.Logf("%d of %d bits can be put right", mended, all)
	if mended < all/2 {
		t.Errorf("%d of %d bits can be put right", mended, all)
	}
}

// A flipped bit of the header is corrected, wherever it is: the salt of the first frame
// tells a bit of the salt from one of the checksum.
func TestSQLite_P15_AFlippedBitOfTheLogsHeaderIsCorrected(t *testing.T) {
	_, log := crashed(t, 2)
	for bit := range 8 * logHeader {
		at, mask := bit/8, byte(1)<<(bit%8)
		if s := scanned(t, flipped(log, at, mask)); s.commits != len(commitsOf(log)) || len(s.flips) != 1 || s.flips[0] != (flip{int64(at), mask}) || len(s.dropped) > 0 {
			t.Errorf("byte %d, mask %#x: %d commits, put right at %v, %d frames are dropped", at, mask, s.commits, s.flips, len(s.dropped))
		}
	}
}

// A sector that is not what was written is found by the transactions behind it, unless
// where the last but one ends is destroyed with it.
func TestSQLite_P15_ADamagedSectorOfTheLogIsFound(t *testing.T) {
	_, log := crashed(t, 5)
	ends := commitsOf(log)
	// Frames are no multiple of a sector, so every seventh sector begins at each kind of
	// place within a frame.
	for at := 0; at+512 <= ends[len(ends)-2]-frameHeader-defaultPage; at += 7 * 512 {
		bad := bytes.Clone(log)
		copy(bad[at:], bytes.Repeat([]byte{0xa5}, 512))
		if s := scanned(t, bad); s.commits == 0 {
			t.Errorf("at %d of %d: %+v", at, len(log), s)
		}
	}
}

// What an earlier generation of the log left behind the end is no damage.
func TestSQLite_P3_AnOlderEndOfTheLogIsNoDamage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.db")
	s := opened(t, "sqlite:"+file, Config{})
	for i := range 20 {
		made(t, s, fmt.Sprintf("old-%d", i))
	}
	var busy, pages, written int
	if err := s.db.(*sqliteDB).reads.scan(t.Context(), []any{&busy, &pages, &written}, "PRAGMA wal_checkpoint(RESTART)"); err != nil || busy != 0 {
		t.Fatal(busy, err)
	}
	made(t, s, "new")
	log, err := os.ReadFile(file + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if got := scanned(t, log); got.commits > 0 || len(got.damage) > 0 {
		t.Errorf("%+v", got)
	}
}

// A store whose log is damaged is opened for readers; its log says which tasks may be
// missing, and it takes writes again when somebody has moved the copy away.
func TestSQLite_P15_ADamagedLogStopsWrites(t *testing.T) {
	db, log := crashed(t, 5)
	ends := commitsOf(log)
	file := filepath.Join(t.TempDir(), "team.db")
	bad := bytes.Clone(log)
	copy(bad[ends[len(ends)-4]+frameHeader+1000:], bytes.Repeat([]byte{0xa5}, 512)) // in the third transaction from the end
	for name, b := range map[string][]byte{file: db, file + "-wal": bad} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	core, logged := observer.New(zap.WarnLevel)
	for range 2 { // also when it is started again
		s, err := Open(t.Context(), "sqlite:"+file, Config{Log: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		why := s.Ready()
		for _, want := range []string{"task-2 (all of it)", "task-3 (all of it)", "task-4 (all of it)", file + "-wal.damaged", "backup"} {
			if !errors.Is(why, a2a.ErrStorage) || !strings.Contains(why.Error(), want) {
				t.Errorf("Ready = %v, want %q", why, want)
			}
		}
		if err := make1(s, "more"); !errors.Is(err, a2a.ErrStorage) {
			t.Errorf("Create = %v", err)
		}
		for i, want := range []error{nil, nil, a2a.ErrNotFound, a2a.ErrNotFound} {
			if _, _, err := s.Task(t.Context(), a2a.Key{Owner: "o", ID: fmt.Sprintf("task-%d", i)}); !errors.Is(err, want) {
				t.Errorf("task %d: %v", i, err)
			}
		}
		to, err := Open(t.Context(), fileURL(t), Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Copy(t.Context(), s, to); err != nil {
			t.Errorf("Copy of what can be read: %v", err)
		}
		if err := errors.Join(to.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
	if n := logged.FilterMessage("the store takes no writes").Len(); n != 2 {
		t.Errorf("the log says %v", logged.All())
	}
	if err := os.Remove(file + "-wal.damaged"); err != nil {
		t.Fatal(err)
	}
	s := opened(t, "sqlite:"+file, Config{})
	made(t, s, "more")
}

// The structure of the file is damaged: more than records.
func TestSQLite_P15_ADamagedStructureStopsWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.db")
	b := stopped(t, 300)
	b[39] ^= 8 // how many pages are free
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := opened(t, "sqlite:"+file, Config{})
	if err := s.Ready(); !errors.Is(err, a2a.ErrStorage) || !strings.Contains(err.Error(), "more than single records") {
		t.Errorf("Ready = %v", err)
	}
	if err := make1(s, "more"); !errors.Is(err, a2a.ErrStorage) {
		t.Errorf("Create = %v", err)
	}
	if _, _, err := s.Task(t.Context(), a2a.Key{Owner: "o", ID: "task-7"}); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Claim(t.Context(), "r", a2a.NewRoom(1, nil)); !errors.Is(err, a2a.ErrStorage) {
		t.Errorf("Claim = %v", err)
	}
}

func FuzzP17_ReadLog(f *testing.F) {
	_, log := crashed(f, 2)
	f.Add(log[:logHeader+2*(frameHeader+defaultPage)])
	f.Add(log[:logHeader+3])
	f.Add(flipped(log, 9, 1)[:logHeader+frameHeader+defaultPage])
	f.Fuzz(func(t *testing.T, log []byte) {
		s, err := readLog(bytes.NewReader(log), int64(len(log)), defaultPage)
		if err != nil {
			t.Fatal(err)
		}
		for _, frame := range s.dropped {
			records(log[frame.at+frameHeader:])
		}
		if len(log) >= headerSize+8 {
			_ = checkHeader(log)
		}
	})
}

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
	return (page - 1) * defaultPage
}

// cell returns where the content of a cell of a leaf is, in an index or a table.
func cell(t *testing.T, b []byte, page, n int) (from, to int) {
	t.Helper()
	const leafIndex, leafTable = 10, 13
	kind := b[page]
	if kind != leafIndex && kind != leafTable {
		t.Fatalf("page %d is of kind %d", page/defaultPage+1, kind)
	}
	at := page + int(binary.BigEndian.Uint16(b[page+8+2*n:]))
	size, from := varint(b, at)
	if kind == leafTable {
		_, from = varint(b, from)
	}
	return from, from + int(size)
}

// stopped is the file of a store that was closed, after so many tasks.
func stopped(t *testing.T, tasks int) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "team.db")
	s, err := Open(t.Context(), "sqlite:"+file, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		made(t, s, fmt.Sprintf("task-%d", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A wrong bit of an index, which has no checksum, stops writes: it hides tasks.
func TestSQLite_P15_AFlippedBitOfAnIndexIsFound(t *testing.T) {
	sound := stopped(t, 7)
	file := filepath.Join(written(t, map[string][]byte{"": sound}), "team.db")
	for _, index := range []string{"sqlite_autoindex_run_1", "sqlite_autoindex_task_1", "sqlite_autoindex_event_1", "task_owner", "task_agent", "run_due", "request_at"} {
		from, to := cell(t, sound, pageOf(t, file, index), 3)
		for _, at := range []int{from, from + 1, (from + to) / 2, to - 2, to - 1} {
			t.Run(fmt.Sprintf("%s byte %d", index, at-from), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(written(t, map[string][]byte{"": flipped(sound, at, 1<<(at%7))}), "team.db")
				core, logged := observer.New(zap.WarnLevel)
				s := opened(t, "sqlite:"+file, Config{Log: zap.New(core)})
				await1(t, "the damage is found", func() bool { return s.Ready() != nil })
				why := s.Ready()
				for _, want := range []string{file, "backup", "Check the disk"} {
					if !errors.Is(why, a2a.ErrStorage) || !strings.Contains(why.Error(), want) {
						t.Errorf("Ready = %v, want %q", why, want)
					}
				}
				if strings.Contains(why.Error(), "do not agree") && !strings.Contains(why.Error(), "sqlite3 "+file+" REINDEX") {
					t.Errorf("Ready = %v", why)
				}
				if err := make1(s, "more"); !errors.Is(err, a2a.ErrStorage) {
					t.Errorf("Create = %v", err)
				}
				await1(t, "the log says so", func() bool { return logged.FilterMessage("the store takes no writes").Len() > 0 })
				if n := logged.Len(); n != 1 {
					t.Errorf("the log has %d lines: %v", n, logged.All())
				}
			})
		}
	}
}

// await1 waits for what another goroutine brings about.
func await1(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// A record that SQLite cannot read is one that is damaged, whatever is asked of it.
func TestSQLite_P15_AnUnreadableRecordIsDataLoss(t *testing.T) {
	sound := stopped(t, 7)
	file := filepath.Join(written(t, map[string][]byte{"": sound}), "team.db")
	for _, table := range []string{"run", "task", "event"} {
		page := pageOf(t, file, table)
		from, to := cell(t, sound, page, 3)
		for _, at := range []int{page + 1, page + 3, page + 8, page + 15, from, from + 1, from + 5, from + 8, from + 9, to - 1} {
			for _, bit := range []int{0, 3, 6} {
				t.Run(fmt.Sprintf("%s byte %d bit %d", table, at-page, bit), func(t *testing.T) {
					t.Parallel()
					file := filepath.Join(written(t, map[string][]byte{"": flipped(sound, at, 1<<bit)}), "team.db")
					s := opened(t, "sqlite:"+file, Config{})
					for n := range 7 {
						key := a2a.Key{Owner: "o", ID: fmt.Sprintf("task-%d", n)}
						_, _, task := s.Task(t.Context(), key)
						_, events := s.Events(t.Context(), key, 0, 10)
						for _, err := range []error{task, events} {
							if err != nil && !errors.Is(err, a2a.ErrDataLoss) && !errors.Is(err, a2a.ErrNotFound) {
								t.Errorf("task %d: %v", n, err)
							}
						}
					}
					if _, err := s.List(t.Context(), "o", a2a.Filter{}); err != nil && !errors.Is(err, a2a.ErrDataLoss) {
						t.Errorf("List = %v", err)
					}
				})
			}
		}
	}
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
