package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/agentteams/team-server/pkg/a2a"
)

// collaborate creates a task that occupies one of its agent's slots. It reads before it writes, so
// that a refused request has written nothing.
func (s *Store) collaborate(ctx context.Context, q querier, n a2a.New, o *op) (root string, existed bool, err error) {
	team, root := n.Accepted.GetAgent(), n.Accepted.GetTaskId()
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
		if there, err := s.lockEntry(ctx, q, n.Entry); err != nil || !there {
			return "", false, cmp.Or(err, refuse(a2a.ErrDeleted))
		}
	}
	if err := take(ctx, q, team, root, n.Collaborations); err != nil {
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

// takeSlot counts the slots again. If several transactions insert the same slot, one succeeds, and
// the others wait until that one is committed.
const takeSlot = `INSERT INTO collaboration_slot (team, slot, id) SELECT $1, $2, $3
WHERE (SELECT count(*) FROM collaboration_slot WHERE team = $1) < $4 ON CONFLICT DO NOTHING`

// take occupies the lowest free slot of a team. The error is a2a.ErrBusy if most slots are
// occupied; slots above most, from a time with a higher limit, are counted as well.
func take(ctx context.Context, q querier, team, root string, most int) error {
	var taken int
	if err := q.scan(ctx, []any{&taken}, `SELECT count(*) FROM collaboration_slot WHERE team = $1`, team); err != nil {
		return err
	}
	for slot := 1; slot <= most && taken < most; slot++ {
		rows, err := q.exec(ctx, takeSlot, team, int64(slot), root, int64(most))
		if rows > 0 || err != nil {
			return err
		}
	}
	return refuse(a2a.ErrBusy)
}

// Collaborations returns the collaborations of an agent that have not ended, of all owners.
func (s *Store) Collaborations(ctx context.Context, agent string) ([]a2a.Key, error) {
	var keys []a2a.Key
	err := each(ctx, s.db.reader(), func() { keys = nil }, func(r *sql.Rows) error {
		var k a2a.Key
		err := r.Scan(&k.ID, &k.Owner)
		keys = append(keys, k)
		return err
	}, `SELECT s.id, run.owner FROM collaboration_slot AS s JOIN run ON run.id = s.id WHERE s.team = $1 ORDER BY s.slot`, agent)
	if err != nil {
		return nil, s.unrecorded(fmt.Errorf("read the collaborations of %s: %w", agent, err))
	}
	return keys, nil
}
