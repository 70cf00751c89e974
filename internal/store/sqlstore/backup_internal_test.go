package sqlstore

import (
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/pkg/a2a"
)

// started opens a store that the test closes itself.
func started(t *testing.T, file string) *Store {
	t.Helper()
	s, err := Open(t.Context(), "sqlite:"+file, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closes(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestSQLite_P1_ABackupDuringAStart: a backup of a store that nobody used has all of it, although a server starts, writes
// and stops, or goes on, meanwhile.
func TestSQLite_P1_ABackupDuringAStart(t *testing.T) {
	for name, stops := range map[string]bool{"stops": true, "goes on": false} {
		t.Run(name, func(t *testing.T) {
			file, copied := filepath.Join(t.TempDir(), "team.db"), filepath.Join(t.TempDir(), "copy.db")
			s := started(t, file)
			made(t, s, "one")
			closes(t, s)
			calls := 0
			err := undisturbed(file, func(alone bool) error {
				if calls++; calls == 1 {
					if !alone {
						t.Error("somebody has opened the store")
					}
					s = started(t, file)
					made(t, s, "two")
					if stops {
						closes(t, s)
					}
				}
				return vacuumInto(t.Context(), file, copied, alone)
			})
			if err != nil || calls != 2 {
				t.Errorf("%d copies were made, %v", calls, err)
			}
			if !stops {
				closes(t, s)
			}
			s = started(t, copied)
			defer closes(t, s)
			if _, _, err := s.Task(t.Context(), a2a.Key{Owner: "o", ID: "two"}); err != nil {
				t.Errorf("the task is missing: %v", err)
			}
		})
	}
}
