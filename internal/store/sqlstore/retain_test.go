package sqlstore_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestRetain_NotByCommands: a server deletes what is old, and a command, which does not know how long servers keep it,
// does not, however long it takes.
func TestRetain_NotByCommands(t *testing.T) {
	for name, cfg := range map[string]sqlstore.Config{"server": {}, "keeps what is old": {KeepOld: true}, "sealed": {Sealed: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.Clock = time.Now
				s := opened(t, "sqlite:"+filepath.Join(t.TempDir(), "team.db"), cfg)
				defer closed(t, s)
				if err := s.PutRights(t.Context(), []auth.Right{{Owner: "acme/ann", Until: time.Now().Add(-time.Hour)}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Minute)
				list, err := s.Rights(t.Context(), "acme/ann")
				if kept := cfg.KeepOld || cfg.Sealed; err != nil || len(list) > 0 != kept {
					t.Errorf("rights are %v, %v; kept must be %v", list, err, kept)
				}
			})
		})
	}
}
