package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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
	for size := 0; size < len(log); size += 331 {
		if s := scanned(t, log[:size]); s.commits > 0 {
			t.Errorf("cut off at %d of %d: %+v", size, len(log), s)
		}
	}
	for at := ends[len(ends)-2]; at < len(log); at += 512 {
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
	for at := 0; at < ends[len(ends)-1]; at += 1 + at%1733 {
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

// A sector that is not what was written is found by the transactions behind it, unless
// where the last but one ends is destroyed with it.
func TestSQLite_P15_ADamagedSectorOfTheLogIsFound(t *testing.T) {
	_, log := crashed(t, 5)
	ends := commitsOf(log)
	for at := 0; at+512 <= ends[len(ends)-2]-frameHeader-defaultPage; at += 512 {
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
	s, err := Open(t.Context(), "sqlite:"+file, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		made(t, s, fmt.Sprintf("task-%d", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[39] ^= 8 // how many pages are free
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = opened(t, "sqlite:"+file, Config{})
	if err := s.Ready(); !errors.Is(err, a2a.ErrStorage) || !strings.Contains(err.Error(), "more than single records") {
		t.Errorf("Ready = %v", err)
	}
	if err := make1(s, "more"); !errors.Is(err, a2a.ErrStorage) {
		t.Errorf("Create = %v", err)
	}
	if _, _, err := s.Task(t.Context(), a2a.Key{Owner: "o", ID: "task-7"}); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Claim(t.Context(), "r", 1); !errors.Is(err, a2a.ErrStorage) {
		t.Errorf("Claim = %v", err)
	}
}

func FuzzReadLog(f *testing.F) {
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
