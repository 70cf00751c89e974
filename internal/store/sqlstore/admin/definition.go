package admin

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Definitions are the definitions that runs began with. It implements store.Definitions.
type Definitions struct{ DB *db.DB }

// definitionLife is how long a definition without runs is kept. A run is pinned to it shortly
// after it was put.
const definitionLife = time.Hour

// Statements of the table definition.
const (
	putDefinition = `INSERT INTO definition (revision, body, at) VALUES ($1, $2, $3)
ON CONFLICT (revision) DO UPDATE SET at = excluded.at`
	selectDefinition = `SELECT body FROM definition WHERE revision = $1`
	deleteUnpinned   = `DELETE FROM definition WHERE at < $1 AND NOT EXISTS (SELECT 1 FROM run WHERE run.definition = revision)`
)

// PutDefinition stores a definition under its revision, which is computed from its content. It is
// kept as long as runs are pinned to it, and for at least an hour.
func (s *Definitions) PutDefinition(ctx context.Context, revision string, body []byte) error {
	return s.DB.Run(ctx, putDefinition, revision, body, s.DB.Millis())
}

// Definition returns the content of a definition. The error is runs.ErrNotFound.
func (s *Definitions) Definition(ctx context.Context, revision string) (body []byte, err error) {
	err = s.DB.Reader().Scan(ctx, []any{&body}, selectDefinition, revision)
	return body, db.NotFound(err)
}

// Forget deletes old definitions to which no run is pinned.
func (s *Definitions) Forget(ctx context.Context, now time.Time) error {
	return s.DB.Run(ctx, deleteUnpinned, now.Add(-definitionLife).UnixMilli())
}
