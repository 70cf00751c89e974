package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// collaborate creates a task that occupies one of its agent's slots. It reads before it writes, so
// that a refused request has written nothing.
func (s *Store) collaborate(ctx context.Context, q querier, n a2a.New, o *op) (root string, existed bool, err error) {
	team, root := store.AgentKey(n.Accepted), n.Accepted.GetTaskId()
	if known, err := s.request(ctx, q, n.Owner, team, "", n.MessageID); err == nil && n.MessageID != "" {
		if known.id == root {
			return root, false, nil // created by an attempt whose reply was lost
		}
		root, _, err = known.repeated("", n.Digest)
		return root, err == nil, refuse(err)
	} else if err != nil && !errors.Is(err, a2a.ErrNotFound) {
		return "", false, err
	}
	if n.Entry != "" {
		if _, there, err := s.lockEntry(ctx, q, n.Entry); err != nil || !there {
			return "", false, cmp.Or(err, refuse(a2a.ErrDeleted))
		}
	}
	if err := take(ctx, s, q, n); err != nil {
		return "", false, err
	}
	o.affected = o.affected[:0]
	for _, st := range o.stmts {
		rows, err := q.exec(ctx, st.text, st.args...)
		if err != nil {
			return "", false, err
		}
		o.affected = append(o.affected, rows)
	}
	root, existed, err = s.created(ctx, q, n, o)
	if existed || err != nil { // another replica was faster with the same message
		if _, err := q.exec(ctx, freeSlot, n.Accepted.GetTaskId()); err != nil {
			return "", false, err
		}
	}
	return root, existed, refuse(err)
}

// refuse marks an error as a refusal; nil for nil.
func refuse(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// freeSlot frees the slot of a collaboration that has ended.
const freeSlot = `DELETE FROM collaboration_slot WHERE id = $1`

// running selects the collaborations of an account that are driven or due at $2, and so not those that
// wait for people, which are due when their question expires. $1 is the account with a slash.
const running = ` FROM collaboration_slot AS s JOIN run ON run.id = s.id
WHERE substr(run.owner, 1, length(CAST($1 AS TEXT))) = $1 AND (run.holder IS NOT NULL OR run.due <= $2)`

// takeSlot counts again, and takes the lowest free slot of a team. If several transactions take the same
// one, one succeeds, and the others wait until that one is committed and change nothing.
const takeSlot = `INSERT INTO collaboration_slot (team, slot, id)
SELECT $3, (SELECT min(n) FROM (SELECT 1 AS n UNION ALL SELECT slot + 1 FROM collaboration_slot WHERE team = $3) AS c
WHERE NOT EXISTS (SELECT 1 FROM collaboration_slot WHERE team = $3 AND slot = c.n)), $4
WHERE (SELECT count(*)` + running + ` AND s.team = $3) < $5 ON CONFLICT DO NOTHING`

// take takes a slot of a team. The error is a2a.ErrBusy if as many collaborations of the team and the
// account are running as n allows, and a2a.ErrAccountBusy if as many of the account are.
func take(ctx context.Context, s *Store, q querier, n a2a.New) error {
	account, team, now := a2a.AccountOf(n.Owner)+"/", store.AgentKey(n.Accepted), s.now()
	var version int64 // the lock lets only one replica count at a time: others may take other slots
	if err := q.scan(ctx, []any{&version}, `SELECT version FROM halt_version`+s.db.lock()); err != nil {
		return err
	}
	if n.AccountCollaborations > 0 {
		var all int
		if err := q.scan(ctx, []any{&all}, `SELECT count(*)`+running, account, now); err != nil {
			return err
		}
		if all >= n.AccountCollaborations {
			return refuse(a2a.ErrAccountBusy)
		}
	}
	for {
		var taken int
		if err := q.scan(ctx, []any{&taken}, `SELECT count(*)`+running+` AND s.team = $3`, account, now, team); err != nil {
			return err
		}
		if taken >= n.Collaborations {
			return refuse(a2a.ErrBusy)
		}
		rows, err := q.exec(ctx, takeSlot, account, now, team, n.Accepted.GetTaskId(), int64(n.Collaborations))
		if rows > 0 || err != nil {
			return err
		}
	}
}

// Collaborations returns the collaborations of an agent that have not ended, of all owners; see agent.KeyOf.
func (s *Store) Collaborations(ctx context.Context, key string) ([]a2a.Key, error) {
	var keys []a2a.Key
	err := each(ctx, s.db.reader(), func() { keys = nil }, func(r *sql.Rows) error {
		var k a2a.Key
		err := r.Scan(&k.ID, &k.Owner)
		keys = append(keys, k)
		return err
	}, `SELECT s.id, run.owner FROM collaboration_slot AS s JOIN run ON run.id = s.id WHERE s.team = $1 ORDER BY s.slot`, key)
	if err != nil {
		return nil, s.unrecorded(fmt.Errorf("read the collaborations of %s: %w", key, err))
	}
	return keys, nil
}
