package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
)

const (
	// boardsPerSweep is the number of boards from which one sweep deletes, because it reads all of their
	// items that have ended. The next sweep continues with the next boards.
	boardsPerSweep = 20
	// boardBatch is the maximum number of events of a board that are deleted together.
	boardBatch = 1000
)

// trimBoards deletes from the next boards what is older than a time: events, and items that have ended and on
// which none depends that has not.
func (s *Store) trimBoards(ctx context.Context, before time.Time) error {
	var keys []board.Key
	err := each(ctx, s.db.reader(), func() { keys = nil }, func(r *sql.Rows) error {
		var k board.Key
		err := r.Scan(&k.Account, &k.Team)
		keys = append(keys, k)
		return err
	}, `SELECT account, team FROM board WHERE account > $1 OR account = $1 AND team > $2 ORDER BY account, team LIMIT $3`,
		s.swept.Account, s.swept.Team, int64(boardsPerSweep))
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.trimBoard(ctx, k, before); err != nil {
			return err
		}
		s.swept = k
	}
	if len(keys) < boardsPerSweep {
		s.swept = board.Key{}
	}
	return nil
}

// trimBoard deletes from a board what is older than a time.
func (s *Store) trimBoard(ctx context.Context, k board.Key, before time.Time) error {
	for {
		through, more, err := s.oldEvents(ctx, k, before)
		if err != nil {
			return err
		}
		if through > 0 {
			err := s.db.do(ctx, func(ctx context.Context, q querier) error {
				_, err := q.exec(ctx, `DELETE FROM board_event WHERE account = $1 AND team = $2 AND seq <= $3`, k.Account, k.Team, through)
				return err
			})
			if err != nil {
				return err
			}
		}
		if !more {
			break
		}
	}
	old, err := oldItems(ctx, s.db.reader(), k, before)
	if err != nil || len(old) == 0 {
		return err
	}
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		var seq int64
		if err := q.scan(ctx, []any{&seq}, `SELECT seq FROM board WHERE account = $1 AND team = $2`+s.db.lock(), k.Account, k.Team); err != nil {
			return err
		}
		old, err := oldItems(ctx, q, k, before) // an item may depend on one of them by now
		for _, id := range old {
			for _, text := range []string{
				`DELETE FROM work_item_need WHERE account = $1 AND team = $2 AND id = $3`,
				`DELETE FROM work_item WHERE account = $1 AND team = $2 AND id = $3`,
			} {
				if err == nil {
					_, err = q.exec(ctx, text, k.Account, k.Team, id)
				}
			}
		}
		return err
	})
}

// oldEvents returns how far the events of a board can be deleted: the sequence number up to which all events
// are older than before, or 0 if the first event is not. It reads one batch; more reports that older events may follow.
func (s *Store) oldEvents(ctx context.Context, k board.Key, before time.Time) (through int64, more bool, err error) {
	for _, limit := range []int64{1, boardBatch} { // in most cases the first one is not old
		n, old := int64(0), true
		err = each(ctx, s.db.reader(), func() { n, through, old = 0, 0, true }, func(r *sql.Rows) error {
			var seq, sum int64
			var body []byte
			if err := r.Scan(&seq, &sum, &body); err != nil {
				return err
			}
			ev := &teamv1.BoardEvent{}
			if decodeBoard(k, "event "+strconv.FormatInt(seq, 10), sum, body, ev) != nil {
				old = false // it stays, so that readers learn of the damage
			}
			if old = old && ev.GetTime().AsTime().Before(before); old {
				through = seq
				n++
			}
			return nil
		}, `SELECT seq, sum, body FROM board_event WHERE account = $1 AND team = $2 ORDER BY seq LIMIT $3`, k.Account, k.Team, limit)
		if err != nil || n == 0 {
			return 0, false, err
		}
		more = n == boardBatch
	}
	return through, more, nil
}

// oldItems returns the ids of the items of a board that ended before a time and on which none depends that has
// not ended.
func oldItems(ctx context.Context, q querier, k board.Key, before time.Time) (ids []string, err error) {
	err = each(ctx, q, func() { ids = nil }, func(r *sql.Rows) error {
		var id string
		var sum int64
		var body []byte
		if err := r.Scan(&id, &sum, &body); err != nil {
			return err
		}
		it := &teamv1.WorkItem{}
		if decodeBoard(k, "item "+id, sum, body, it) == nil && it.GetChanged().AsTime().Before(before) {
			ids = append(ids, id)
		}
		return nil
	}, `SELECT w.id, w.sum, w.body FROM work_item w WHERE w.account = $1 AND w.team = $2 AND w.state >= $3 AND NOT EXISTS (
SELECT 1 FROM work_item_need d JOIN work_item o ON o.account = d.account AND o.team = d.team AND o.id = d.id
WHERE d.account = w.account AND d.team = w.team AND d.needs = w.id AND o.state < $3)`, k.Account, k.Team, int64(teamv1.WorkItem_STATE_COMPLETED))
	return ids, err
}
