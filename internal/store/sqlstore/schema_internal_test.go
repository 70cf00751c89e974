package sqlstore

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A store whose schema is in a damaged part of the log does not start, and says why and
// what to do.
func TestSQLite_P15_ASchemaInADamagedLog(t *testing.T) {
	db, log := crashed(t, 2)
	ends := commitsOf(log)
	for name, c := range map[string]struct {
		from int // of the damage
		want []string
	}{
		"the first transaction": {logHeader + frameHeader + 100, []string{"nothing of the store can be read", "empty store"}},
		"a later one":           {ends[3] + frameHeader + 100, []string{"older schema", "migrate --from sqlite:", "--to sqlite:NEW"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(log)
			copy(bad[c.from:], bytes.Repeat([]byte{0xa5}, 512))
			dir := written(t, map[string][]byte{"": db, "-wal": bad})
			file := filepath.Join(dir, "team.db")
			for range 2 {
				s, err := Open(t.Context(), "sqlite:"+file, Config{})
				if err == nil {
					t.Fatal("it starts", s.Close())
				}
				for _, want := range append(c.want, file+" was damaged at byte ", "The log as it was is "+file+"-wal.damaged.", "Restore a backup") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("Open = %v, want %q", err, want)
					}
				}
				kept, err := os.ReadFile(file + "-wal.damaged")
				if err != nil || !bytes.Equal(kept, bad) {
					t.Errorf("the log that was kept is another one: %v", err)
				}
			}
		})
	}
}
