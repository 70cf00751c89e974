package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// selectSlots selects the collaborations of a team.
const selectSlots = `SELECT s.id, run.owner FROM collaboration_slot AS s JOIN run ON run.id = s.id WHERE s.team = $1 ORDER BY s.slot`

// collaborate creates a task that occupies one of its agent's slots. It reads before it writes, so
// that a refused request has written nothing.
func (s *Intake) collaborate(ctx context.Context, q db.Querier, n runs.New, o *db.Op) (root string, existed bool, err error) {
	team, root := store.AgentKey(n.Accepted), n.Accepted.GetTaskId()
	if known, err := s.request(ctx, q, n.Owner, team, "", n.MessageID); err == nil && n.MessageID != "" {
		if known.id == root {
			return root, false, nil // created by an attempt whose reply was lost
		}
		root, _, err = known.repeated("", n.Digest)
		return root, err == nil, db.Refuse(err)
	} else if err != nil && !errors.Is(err, runs.ErrNotFound) {
		return "", false, err
	}
	if n.Entry != "" {
		if _, there, err := admin.LockEntry(ctx, q, s.DB.Lock, n.Entry); err != nil || !there {
			return "", false, cmp.Or(err, db.Refuse(runs.ErrDeleted))
		}
	}
	if err := take(ctx, s, q, n); err != nil {
		return "", false, err
	}
	if err := o.Exec(ctx, q); err != nil {
		return "", false, err
	}
	root, existed, err = s.created(ctx, q, n, o)
	if existed || err != nil { // another replica was faster with the same message
		if _, err := q.Exec(ctx, freeSlot, n.Accepted.GetTaskId()); err != nil {
			return "", false, err
		}
	}
	return root, existed, db.Refuse(err)
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

// take takes a slot of a team. The error is runs.ErrBusy if as many collaborations of the team and the
// account are running as n allows, and runs.ErrAccountBusy if as many of the account are.
func take(ctx context.Context, s *Intake, q db.Querier, n runs.New) error {
	account, team, now := identity.AccountOf(n.Owner)+"/", store.AgentKey(n.Accepted), s.DB.Millis()
	if err := admin.LockVersion(ctx, q, s.DB); err != nil { // others may take other slots
		return err
	}
	if n.AccountCollaborations > 0 {
		all, err := db.Value[int](ctx, q, `SELECT count(*)`+running, account, now)
		if err != nil {
			return err
		}
		if all >= n.AccountCollaborations {
			return db.Refuse(runs.ErrAccountBusy)
		}
	}
	for {
		taken, err := db.Value[int](ctx, q, `SELECT count(*)`+running+` AND s.team = $3`, account, now, team)
		if err != nil {
			return err
		}
		if taken >= n.Collaborations {
			return db.Refuse(runs.ErrBusy)
		}
		rows, err := q.Exec(ctx, takeSlot, account, now, team, n.Accepted.GetTaskId(), int64(n.Collaborations))
		if rows > 0 || err != nil {
			return err
		}
	}
}

// Collaborations returns the collaborations of an agent that have not ended, of all owners; see agent.KeyOf.
func (s *Intake) Collaborations(ctx context.Context, key string) ([]runs.Key, error) {
	keys, err := db.Rows(ctx, s.DB.Reader(), func(k *runs.Key) []any { return []any{&k.ID, &k.Owner} }, selectSlots, key)
	if err != nil {
		return nil, fmt.Errorf("read the collaborations of %s: %w", key, err)
	}
	return keys, nil
}
