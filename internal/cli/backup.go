package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Backup writes a backup of a SQLite store to a file. A server may use the store.
func (s *Shell) Backup(ctx context.Context, url, file string) error {
	switch url {
	case "":
		return usagef("backup needs --store sqlite:FILE, for example --store sqlite:team.db")
	case store.MemoryURL:
		return usagef("--store memory: a memory store belongs to one process; use sqlite:FILE")
	}
	if err := checkStore("store", url); err != nil {
		return err
	}
	from, ok := strings.CutPrefix(url, store.SQLite)
	if !ok {
		return UsageError{errors.New("backup copies SQLite stores; make backups of PostgreSQL with pg_dump or with archived logs, see docs/operation.md")}
	}
	if err := db.Backup(ctx, from, file); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("%s: %w", url, err)
	}
	if s.JSON {
		return json.NewEncoder(s.Out).Encode(struct {
			Store string `json:"store"`
			File  string `json:"file"`
		}{url, file})
	}
	_, err := fmt.Fprintf(s.Out, "backed up %s to %s\n", url, file)
	return err
}
