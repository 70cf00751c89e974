package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/store/sqlstore/account"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/board"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/internal/store/sqlstore/run"
	"github.com/agentteams/team-server/internal/store/sqlstore/task"
)

// tables are the tables of a store, in the order in which they are copied.
var tables = slices.Concat(record.Tables, task.Tables, push.Tables, account.Tables, board.Tables, admin.Tables, run.Tables)

// Limits of one transaction of a copy: copyBatch rows, and copyBytes bytes, which the last row may
// exceed.
const (
	copyBatch = 500
	copyBytes = 8 << 20
)

// Copy copies everything from one store to another one, which must be empty. Stores whose secrets are
// encrypted under configured keys must be opened with Config.Sealed. Neither store may be in use, or have a
// schema that is newer than this program. Epochs are copied, but claims are not: the runs that were claimed
// are due. It returns the number of rows. The error wraps ErrPartial if the target must be emptied before the
// next try.
func Copy(ctx context.Context, from, to *Store) (rows int64, err error) {
	for _, s := range []*Store{from, to} {
		if err := s.db.CheckCurrent(ctx); err != nil {
			return 0, err
		}
	}
	if err := to.checkEmpty(ctx); err != nil {
		return 0, err
	}
	if err := from.unused(ctx); err != nil {
		return 0, fmt.Errorf("the store to copy from: %w", err)
	}
	if rows, err = copyAll(ctx, from, to); err != nil {
		return rows, fmt.Errorf("%w; %w", err, ErrPartial)
	}
	return rows, nil
}

// ErrPartial is wrapped by the error of Copy if a part was copied.
var ErrPartial = errors.New("empty the target before the next try")

// checkEmpty returns an error if there is something in the store.
func (s *Store) checkEmpty(ctx context.Context) error {
	for _, t := range tables {
		n, err := db.Value[int](ctx, s.db.Reader(), `SELECT count(*) FROM (SELECT 1 FROM `+t+` LIMIT 1) AS first`)
		if err != nil {
			return err
		}
		if n > 0 {
			return errors.New("the store to copy to is not empty; name an empty file or database")
		}
	}
	return nil
}

// copyAll copies everything to an empty store. Nothing in from may change meanwhile.
func copyAll(ctx context.Context, from, to *Store) (rows int64, err error) {
	from.sweeps.Lock()
	defer from.sweeps.Unlock()
	to.sweeps.Lock() // a sweep would delete what seems unused while it is only partly copied
	defer to.sweeps.Unlock()
	if err := to.db.TakeKeys(ctx, from.db); err != nil {
		return 0, err
	}
	for _, t := range tables {
		n, err := copyTable(ctx, from.db, to.db, t)
		rows += n
		if err != nil {
			return rows, fmt.Errorf("copy %s: %w", t, err)
		}
	}
	for _, t := range admin.Versions {
		err := to.db.Run(ctx, `DELETE FROM `+t)
		if err == nil {
			_, err = copyTable(ctx, from.db, to.db, t)
		}
		if err != nil {
			return rows, fmt.Errorf("copy %s: %w", t, err)
		}
	}
	if err := to.Unschedule(ctx); err != nil { // the source's engine knows nothing of the copy
		return rows, err
	}
	return rows, to.AdoptOrphans(ctx) // of the servers that have used the source
}

// unused returns an error if another process may still be driving runs of the store.
func (s *Store) unused(ctx context.Context) error {
	alive, err := s.Replicas(ctx)
	if err != nil || s.db.Single {
		return err
	}
	return run.Unused(alive, s.db.Lease)
}

// copyTable copies a table in batches, with one transaction for each.
func copyTable(ctx context.Context, from, to *db.DB, table string) (copied int64, err error) {
	var insert string
	var batch [][]any
	size := 0
	flush := func() error {
		err := to.Do(ctx, func(ctx context.Context, q db.Querier) error {
			for _, row := range batch {
				if _, err := q.Exec(ctx, insert, row...); err != nil {
					return err
				}
			}
			return nil
		})
		copied += int64(len(batch))
		batch, size = batch[:0], 0
		return err
	}
	err = db.Each(ctx, from.Reader(), func() {}, func(r *sql.Rows) error {
		columns, err := r.Columns()
		if err != nil {
			return err
		}
		insert = `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES (` + db.Numbered(1, len(columns)) + `)`
		row, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := r.Scan(dest...); err != nil {
			return err
		}
		for _, value := range row {
			body, _ := value.([]byte)
			size += len(body)
		}
		if batch = append(batch, row); len(batch) < copyBatch && size < copyBytes {
			return nil
		}
		return flush()
	}, `SELECT * FROM `+table)
	if err != nil {
		return copied, err
	}
	return copied, flush()
}
