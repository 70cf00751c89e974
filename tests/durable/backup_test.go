//go:build linux

package durable

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestP13_BackupOnFullDisk writes a backup to a disk that is too small for it, for which the error says so, and
// nothing is left there.
func TestP13_BackupOnFullDisk(t *testing.T) {
	server, err := program()
	if err != nil {
		t.Fatal(err)
	}
	url, disk := "sqlite:"+filepath.Join(t.TempDir(), "team.db"), t.TempDir()
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		if err := s.PutDefinition(t.Context(), strings.Repeat("r", i+1), make([]byte, 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	for _, online := range []bool{true, false} {
		t.Run(fmt.Sprintf("P13 store in use: %v", online), func(t *testing.T) {
			if !online {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			prefix := privateDisk(t, disk, "300k")
			file := filepath.Join(disk, "team.backup")
			args := append(prefix[1:len(prefix):len(prefix)], "sh", "-c", `"$1" backup "$2" --store "$3"; echo "code $?"; ls -A "$4"`, "sh", server, file, url, disk)
			out, err := exec.CommandContext(t.Context(), prefix[0], args...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "the disk of "+file+" is full; free space, or name a file on another disk") || !strings.HasSuffix(string(out), "code 1\n") {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
