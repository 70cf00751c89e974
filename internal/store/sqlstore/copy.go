package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// tables are the tables of a store with their columns and keys, in the order in which they are
// copied.
var tables = []struct{ name, columns, key string }{
	{"definition", "revision, at, body", "revision"},
	{"request", "owner, message, agent, root, digest, id, n, at", "owner, message, agent, root"},
	{"inbox", "id, n, sum, body", "id, n"},
	{"blob", "id, hash, body", "id, hash"},
	{"event", "id, seq, scope, delta, sum, body", "id, seq"},
	{"conversation", "owner, context_id, last, used", "owner, context_id"},
	{"history", "owner, context_id, path, n, task, sum, body", "owner, context_id, path, n"},
	{"conversation_state", "owner, context_id, path, n, sum, body", "owner, context_id, path, n"},
	{"push_config", "id, scope, config, owner, body, epoch, due, held, seen, part, tries, since, failing, ended, error, version", "id, scope, config"},
	{"question", "id, seq, role, account", "id, seq, role"},
	{"halt", "kind, name, version, body", "kind, name"},
	{"halt_task", "version, id, owner", "version, id"},
	{"catalog", "id, version, created, changed, changed_by, account, body", "id"},
	{"collaboration_slot", "team, slot, id", "team, slot"},
	{"board_read", "account, team, reader, seq", "account, team, reader"},
	{"board_event", "account, team, seq, op, digest, sender, recipient, sum, body", "account, team, seq"},
	{"work_item_need", "account, team, needs, id", "account, team, needs, id"},
	{"work_item", "account, team, id, n, state, priority, assignee, lease, sum, body", "account, team, id"},
	{"board", "account, team, seq", "account, team"},
	{"account_use", "root, day, account, epoch, held_tokens, held_micros, spent_tokens, spent_micros, before_tokens, before_micros", "root, day"},
	{"account_day", "account, day, held_tokens, held_micros, spent_tokens, spent_micros", "account, day"},
	{"shared_use", "task, scope, run, epoch, held_tokens, held_micros, spent_tokens, spent_micros", "task, scope, run"},
	{"audit", "account, seq, id, hash, body", "account, seq"},
	{"audit_head", "account, seq, hash, dropped, dropped_hash", "account"},
	{"account_limits", "account, changed, changed_by, body", "account"},
	{"request_rate", "owner, full_at", "owner"},
	{"api_key", "id, hash, body", "id"},
	{"owner_right", "owner, signer, issuer, expires_at", "owner, signer"},
	{"cost", "root, " + costKeys + ", seq, " + costColumns, "root, " + costKeys},
	{"push_dead", "id, scope, config, seq, part, tries, error, at", "id, scope, config, seq, part"},
	{"task", "id, owner, agent, agent_account, context_id, state, status_at, visible, brief, snap_seq, snap_sum, snap", "id"},
	{"run", "id, owner, epoch, seq, bytes, inputs, due, ended, deltas, definition, push, parked, halted", "id"},
}

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
		if err := s.checkCurrent(ctx); err != nil {
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
		var n int
		if err := s.db.reader().scan(ctx, []any{&n}, `SELECT count(*) FROM (SELECT 1 FROM `+t.name+` LIMIT 1) AS first`); err != nil {
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
	if err := to.takeKeys(ctx, from); err != nil {
		return 0, err
	}
	for _, t := range tables {
		n, err := copyTable(ctx, from, to, t.name, t.columns, t.key)
		rows += n
		if err != nil {
			return rows, fmt.Errorf("copy %s: %w", t.name, err)
		}
	}
	if err := to.free(ctx, from); err != nil {
		return rows, err
	}
	if err := to.takeHaltVersion(ctx, from); err != nil {
		return rows, err
	}
	return rows, to.takeCatalogVersion(ctx, from)
}

// unused returns an error if another process may still be driving runs of the store.
func (s *Store) unused(ctx context.Context) error {
	var alive int
	if err := s.db.reader().scan(ctx, []any{&alive}, `SELECT count(*) FROM replica WHERE expires > $1`, s.now()); err != nil {
		return err
	}
	if alive > 0 && !s.db.single() {
		return fmt.Errorf("%d servers use the store; stop them and wait %v", alive, s.cfg.Lease)
	}
	return nil
}

// free makes the runs due that were claimed or parked in the source of a copy.
func (s *Store) free(ctx context.Context, from *Store) error {
	var driven []string
	err := each(ctx, from.db.reader(), func() { driven = nil }, func(r *sql.Rows) error {
		var id string
		err := r.Scan(&id)
		driven = append(driven, id)
		return err
	}, `SELECT id FROM run WHERE holder IS NOT NULL OR parked IS NOT NULL`)
	if err != nil {
		return err
	}
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		for _, id := range driven {
			if _, err := q.exec(ctx, `UPDATE run SET due = $2 WHERE id = $1`, id, s.now()); err != nil {
				return err
			}
		}
		_, err := q.exec(ctx, `UPDATE push_config SET due = $1, held = 0 WHERE held = 1`, s.now())
		return err
	})
}

// copyTable copies a table in batches, with one transaction for each.
func copyTable(ctx context.Context, from, to *Store, name, columns, key string) (copied int64, err error) {
	n := strings.Count(columns, ",") + 1
	insert := `INSERT INTO ` + name + ` (` + columns + `) VALUES (` + placeholders(n) + `)`
	order := ` ORDER BY ` + key
	var batch [][]any
	size := 0
	flush := func() error {
		err := to.db.do(ctx, func(ctx context.Context, q querier) error {
			for _, row := range batch {
				if _, err := q.exec(ctx, insert, row...); err != nil {
					return err
				}
			}
			return nil
		})
		copied += int64(len(batch))
		batch, size = batch[:0], 0
		return err
	}
	err = each(ctx, from.db.reader(), func() {}, func(r *sql.Rows) error {
		row, dest := make([]any, n), make([]any, n)
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
	}, `SELECT `+columns+` FROM `+name+order)
	if err != nil {
		return copied, err
	}
	return copied, flush()
}

// placeholders returns the placeholders of n arguments.
func placeholders(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(list, ", ")
}
