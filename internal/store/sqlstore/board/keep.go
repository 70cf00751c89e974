package board

import (
	"context"
	"database/sql"
	"errors"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

const (
	// boardsPerSweep is the number of boards from which one sweep deletes, because it reads all of their
	// items that have ended. The next sweep continues with the next boards.
	boardsPerSweep = 20
	// boardBatch is the maximum number of events of a board that are deleted together.
	boardBatch = 1000
)

// Statements that find what is old.
const (
	selectBoards   = `SELECT account, team FROM board WHERE account > $1 OR account = $1 AND team > $2 ORDER BY account, team LIMIT $3`
	selectOldest   = `SELECT seq, sum, body FROM board_event WHERE account = $1 AND team = $2 ORDER BY seq LIMIT $3`
	selectUnneeded = `SELECT w.id, w.sum, w.body FROM work_item w WHERE w.account = $1 AND w.team = $2 AND w.state >= $3 AND NOT EXISTS (
SELECT 1 FROM work_item_need d JOIN work_item o ON o.account = d.account AND o.team = d.team AND o.id = d.id
WHERE d.account = w.account AND d.team = w.team AND d.needs = w.id AND o.state < $3)`
)

// Trim deletes from the next boards what is older than a time: events, and items that have ended and on
// which none depends that has not. It is called by one goroutine at a time.
func (s *Boards) Trim(ctx context.Context, before time.Time) error {
	keys, err := db.Rows(ctx, s.DB.Reader(), func(k *board.Key) []any { return []any{&k.Account, &k.Team} }, selectBoards,
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
func (s *Boards) trimBoard(ctx context.Context, k board.Key, before time.Time) error {
	for {
		through, more, err := s.oldEvents(ctx, k, before)
		if err != nil {
			return err
		}
		if through > 0 {
			if err := s.DB.Run(ctx, deleteEvents, k.Account, k.Team, through); err != nil {
				return err
			}
		}
		if !more {
			break
		}
	}
	old, err := oldItems(ctx, s.DB.Reader(), k, before)
	if err != nil || len(old) == 0 {
		return err
	}
	return s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		if _, err := db.Value[int64](ctx, q, selectSeq+s.DB.Lock, k.Account, k.Team); err != nil {
			return err
		}
		old, err := oldItems(ctx, q, k, before) // an item may depend on one of them by now
		for _, id := range old {
			if err == nil {
				err = db.Exec(ctx, q, db.With(deleteNeeds, k.Account, k.Team, id), db.With(deleteItem, k.Account, k.Team, id))
			}
		}
		return err
	})
}

// oldEvents returns how far the events of a board can be deleted: the sequence number up to which all events
// are older than before, or 0 if the first event is not. It reads one batch; more reports that older events may follow.
func (s *Boards) oldEvents(ctx context.Context, k board.Key, before time.Time) (through int64, more bool, err error) {
	for _, limit := range []int64{1, boardBatch} { // in most cases the first one is not old
		n, old := int64(0), true
		err = db.Each(ctx, s.DB.Reader(), func() { n, through, old = 0, 0, true }, func(r *sql.Rows) error {
			var seq, sum int64
			var body []byte
			if err := r.Scan(&seq, &sum, &body); err != nil {
				return err
			}
			ev, err := decodeEvent(k, seq, sum, body)
			if err != nil {
				old = false // it stays, so that readers learn of the damage
			}
			if old = old && ev.GetTime().AsTime().Before(before); old {
				through = seq
				n++
			}
			return nil
		}, selectOldest, k.Account, k.Team, limit)
		if err != nil || n == 0 {
			return 0, false, err
		}
		more = n == boardBatch
	}
	return through, more, nil
}

// oldItems returns the ids of the items of a board that ended before a time and on which none depends that has
// not ended.
func oldItems(ctx context.Context, q db.Querier, k board.Key, before time.Time) (ids []string, err error) {
	err = db.Each(ctx, q, func() { ids = nil }, func(r *sql.Rows) error {
		it, id, err := scanItem(r, k)
		switch {
		case errors.Is(err, runs.ErrDataLoss): // it stays, so that readers learn of the damage
			return nil
		case err == nil && it.GetChanged().AsTime().Before(before):
			ids = append(ids, id)
		}
		return err
	}, selectUnneeded, k.Account, k.Team, int64(teamv1.WorkItem_STATE_COMPLETED))
	return ids, err
}
