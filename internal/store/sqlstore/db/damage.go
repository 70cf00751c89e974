package db

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// checkWait is how long opening a store waits for the check of its structure. A longer
// check continues while the store is served.
const checkWait = 2 * time.Second

// maxFindings is how many findings of a check an error lists.
const maxFindings = 10

// checkPages reads the structure of the whole database. The error wraps runs.ErrStorage if the structure is
// damaged; ctx cancels the check.
func checkPages(ctx context.Context, db *sql.DB, file string) error {
	found, err := findings(ctx, db, fmt.Sprintf("PRAGMA quick_check(%d)", maxFindings))
	if err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("%w: the structure of %s is damaged: %s. Check the disk, and restore a backup, see docs/durability.md",
		runs.ErrStorage, file, strings.Join(found, "; "))
}

// findings returns what a check finds, one line for each finding. If SQLite stops the check
// because of damage, its error is a finding as well.
func findings(ctx context.Context, db *sql.DB, check string) (found []string, err error) {
	rows, err := db.QueryContext(ctx, check)
	if err == nil {
		defer rows.Close() //nolint:errcheck // Err reports it
		for rows.Next() {
			var text string
			if err = rows.Scan(&text); err != nil {
				break
			}
			if text = strings.Join(strings.Fields(strings.TrimPrefix(text, "*** in database main ***")), " "); text != "ok" {
				found = append(found, text)
			}
		}
		if err == nil {
			err = rows.Err()
		}
	}
	if isDamage(err) {
		return append(found, err.Error()), nil
	}
	return found, err
}

// exists reports whether a file exists.
func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// syncFolder syncs the folder of a file, so that the names in it are durable. SQLite
// does this too, but ignores errors.
func syncFolder(file string) error {
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		_ = dir.Close()
		return err
	}
	return dir.Close()
}
