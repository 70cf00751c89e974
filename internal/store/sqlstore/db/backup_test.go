package db

import (
	"path/filepath"
	"testing"
)

// TestSQLite_P1_ABackupDuringAStart: a backup of a store that nobody used has all of it, although a server starts, writes
// and stops, or goes on, meanwhile.
func TestSQLite_P1_ABackupDuringAStart(t *testing.T) {
	for name, stops := range map[string]bool{"stops": true, "goes on": false} {
		t.Run(name, func(t *testing.T) {
			file, copied := filepath.Join(t.TempDir(), "team.db"), filepath.Join(t.TempDir(), "copy.db")
			s := opened(t, "sqlite:"+file)
			made(t, s, "one")
			closed(t, s)
			calls := 0
			err := undisturbed(file, func(alone bool) error {
				if calls++; calls == 1 {
					if !alone {
						t.Error("somebody has opened the store")
					}
					s = opened(t, "sqlite:"+file)
					made(t, s, "two")
					if stops {
						closed(t, s)
					}
				}
				return vacuumInto(t.Context(), file, copied, alone)
			})
			if err != nil || calls != 2 {
				t.Errorf("%d copies were made, %v", calls, err)
			}
			if !stops {
				closed(t, s)
			}
			s = opened(t, "sqlite:"+copied)
			defer closed(t, s)
			if !has(t, s, "two") {
				t.Error("the record is missing")
			}
		})
	}
}
