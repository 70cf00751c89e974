// Package board has the boards of teams.
package board

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// topic is the topic of notifications that a board has changed; it is the same for all boards. No root task has such an id.
const topic = "~board"

// Tables are the tables of this package whose rows are copied with a store.
var Tables = []string{"board_read", "board_event", "work_item_need", "work_item", "board"}

// Boards are all boards of a database. It implements board.Store, but for Now.
type Boards struct {
	DB    *db.DB
	swept board.Key // the board from which the last Trim has deleted; used by Trim only
}

// Statements of boards: their events, items, and readers.
const (
	insertBoard      = `INSERT INTO board (account, team, seq) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING`
	selectSeq        = `SELECT seq FROM board WHERE account = $1 AND team = $2`
	selectOp         = `SELECT seq, digest, sum, body FROM board_event WHERE account = $1 AND team = $2 AND op = $3`
	selectDependents = `SELECT id FROM work_item_need WHERE account = $1 AND team = $2 AND needs = $3 ORDER BY id`
	countItems       = `SELECT count(*) FROM work_item WHERE account = $1 AND team = $2`
	selectEnded      = `SELECT id FROM work_item WHERE account = $1 AND team = $2 AND state >= $3 ORDER BY n LIMIT 1`
	selectMessage    = `SELECT sum, body FROM board_event WHERE account = $1 AND team = $2 AND seq = $3 AND recipient IS NOT NULL`
	updateSeq        = `UPDATE board SET seq = $3 WHERE account = $1 AND team = $2`
	insertEvent      = `INSERT INTO board_event (account, team, seq, op, digest, sender, recipient, sum, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	deleteEvents     = `DELETE FROM board_event WHERE account = $1 AND team = $2 AND seq <= $3`
	deleteNeeds      = `DELETE FROM work_item_need WHERE account = $1 AND team = $2 AND id = $3`
	deleteItem       = `DELETE FROM work_item WHERE account = $1 AND team = $2 AND id = $3`
	putItem          = `INSERT INTO work_item (account, team, id, n, state, priority, assignee, lease, sum, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (account, team, id) DO UPDATE SET state = excluded.state, priority = excluded.priority, assignee = excluded.assignee, lease = excluded.lease,
sum = excluded.sum, body = excluded.body`
	insertNeed     = `INSERT INTO work_item_need (account, team, needs, id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	selectItem     = `SELECT sum, body FROM work_item WHERE account = $1 AND team = $2 AND id = $3`
	selectReaders  = `SELECT reader, seq FROM board_read WHERE account = $1 AND team = $2`
	selectOverview = `SELECT b.seq, i.id, i.state, i.sum, CASE WHEN i.state = $3 THEN i.body END FROM board b
LEFT JOIN work_item i ON i.account = b.account AND i.team = b.team WHERE b.account = $1 AND b.team = $2 ORDER BY i.n`
	putReader = `INSERT INTO board_read (account, team, reader, seq) VALUES ($1, $2, $3, $4)
ON CONFLICT (account, team, reader) DO UPDATE SET seq = excluded.seq WHERE board_read.seq < excluded.seq`
	selectReader = `SELECT seq FROM board_read WHERE account = $1 AND team = $2 AND reader = $3`
)

// ChangeBoard implements board.Store. It locks the row of the board while f runs.
func (s *Boards) ChangeBoard(ctx context.Context, k board.Key, op board.Op, f func(board.View) (*board.Change, error)) (*teamv1.BoardEvent, error) {
	var ev *teamv1.BoardEvent
	err := s.DB.Do(ctx, func(ctx context.Context, q db.Querier) (err error) {
		v := &boardView{ctx: ctx, q: q, key: k, at: s.DB.Now().Truncate(time.Millisecond)}
		if _, err := q.Exec(ctx, insertBoard, k.Account, k.Team); err != nil {
			return err
		}
		if err := q.Scan(ctx, []any{&v.seq}, selectSeq+s.DB.Lock, k.Account, k.Team); err != nil {
			return err
		}
		if ev, err = v.done(op); ev != nil || err != nil {
			return err
		}
		c, err := f(v)
		if v.err != nil {
			return v.err
		}
		if err != nil {
			return db.Refuse(err)
		}
		ev = c.Event
		return v.write(op, c)
	})
	if err != nil {
		return nil, err
	}
	s.DB.Announce(topic, store.OwnersOf(k.Account))
	return ev, nil
}

// boardView is a board in a transaction that has locked its row.
type boardView struct {
	ctx context.Context //nolint:containedctx // of the transaction
	q   db.Querier
	key board.Key
	seq int64
	at  time.Time
	err error // the first error of the database
}

// failed remembers an error of the database, which must not be reported as a refusal.
func (v *boardView) failed(err error) error {
	if v.err == nil {
		v.err = err
	}
	return err
}

// done returns the event that an op has recorded, or nil if the op has not been carried out.
func (v *boardView) done(op board.Op) (*teamv1.BoardEvent, error) {
	var seq, sum int64
	var digest, body []byte
	err := v.q.Scan(v.ctx, []any{&seq, &digest, &sum, &body}, selectOp, v.key.Account, v.key.Team, op.ID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil //nolint:nilnil // it is new
	case err != nil:
		return nil, err
	case !bytes.Equal(digest, op.Digest):
		return nil, db.Refuse(runs.ErrReused)
	}
	return decodeEvent(v.key, seq, sum, body)
}

// Seq implements board.View.
func (v *boardView) Seq() int64 { return v.seq }

// Now implements board.View.
func (v *boardView) Now() time.Time { return v.at }

// Item implements board.View.
func (v *boardView) Item(id string) (*teamv1.WorkItem, error) {
	it, err := workItem(v.ctx, v.q, v.key, id)
	if errors.Is(err, runs.ErrNotFound) {
		return nil, nil //nolint:nilnil // the contract
	}
	return it, v.failed(err)
}

// Dependents implements board.View.
func (v *boardView) Dependents(id string) (ids []string, err error) {
	ids, err = db.Values[string](v.ctx, v.q, selectDependents, v.key.Account, v.key.Team, id)
	return ids, v.failed(err)
}

// Count implements board.View.
func (v *boardView) Count() (items int, ended string, err error) {
	err = v.q.Scan(v.ctx, []any{&items}, countItems, v.key.Account, v.key.Team)
	if err != nil {
		return 0, "", v.failed(err)
	}
	err = v.q.Scan(v.ctx, []any{&ended}, selectEnded, v.key.Account, v.key.Team, int64(teamv1.WorkItem_STATE_COMPLETED))
	if errors.Is(err, sql.ErrNoRows) {
		return items, "", nil
	}
	return items, ended, v.failed(err)
}

// Message implements board.View.
func (v *boardView) Message(seq int64) (*teamv1.BoardMessage, error) {
	var sum int64
	var body []byte
	err := v.q.Scan(v.ctx, []any{&sum, &body}, selectMessage, v.key.Account, v.key.Team, seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // the contract
	}
	var ev *teamv1.BoardEvent
	if err == nil {
		ev, err = decodeEvent(v.key, seq, sum, body)
	}
	return ev.GetMessage(), v.failed(err)
}

// write records a change.
func (v *boardView) write(op board.Op, c *board.Change) error {
	c.Event.Seq = v.seq + 1
	body, err := proto.Marshal(c.Event)
	if err != nil {
		return err
	}
	var recipient *string
	if m := c.Event.GetMessage(); m != nil {
		recipient = &m.To
	}
	account, team := v.key.Account, v.key.Team
	texts := []db.Stmt{
		db.With(updateSeq, account, team, c.Event.GetSeq()),
		db.With(insertEvent, account, team, c.Event.GetSeq(), op.ID, op.Digest, board.Name(c.Event.GetActor()), recipient, boardSum(v.key, eventName(c.Event.GetSeq()), body), body),
		db.With(deleteEvents, account, team, c.Event.GetSeq()-board.MaxEvents),
	}
	if c.Delete != "" {
		texts = append(texts, db.With(deleteNeeds, account, team, c.Delete), db.With(deleteItem, account, team, c.Delete))
	}
	for _, it := range c.Put {
		put, err := v.put(it)
		if err != nil {
			return err
		}
		texts = append(texts, put...)
	}
	return db.Exec(v.ctx, v.q, texts...)
}

// put returns the statements that store an item.
func (v *boardView) put(it *teamv1.WorkItem) ([]db.Stmt, error) {
	body, err := proto.Marshal(it)
	if err != nil {
		return nil, err
	}
	var lease int64
	if it.GetLeaseExpires() != nil {
		lease = it.GetLeaseExpires().AsTime().UnixMilli()
	}
	account, team := v.key.Account, v.key.Team
	texts := []db.Stmt{db.With(putItem, account, team, it.GetId(), it.GetNumber(), int64(it.GetState()), int64(it.GetPriority()), board.Name(it.GetAssignee()), lease,
		boardSum(v.key, "item "+it.GetId(), body), body)}
	for _, need := range it.GetDependsOn() {
		texts = append(texts, db.With(insertNeed, account, team, need, it.GetId()))
	}
	return texts, nil
}

// boardSum returns the checksum of a record of a board. It also covers the board and what, the kind
// and id of the record, so that the bytes of another record do not match.
func boardSum(k board.Key, what string, body []byte) int64 {
	return db.SumOf(k.Account+"\x00"+k.Team, 0, what, body)
}

// decodeBoard decodes a record of a board. The error is runs.ErrDataLoss.
func decodeBoard(k board.Key, what string, sum int64, body []byte, m proto.Message) error {
	if boardSum(k, what, body) != sum || proto.Unmarshal(body, m) != nil {
		return fmt.Errorf("%s of the board of %s: %w", what, k.Team, runs.ErrDataLoss)
	}
	return nil
}

// eventName returns what identifies an event, for its checksum.
func eventName(seq int64) string { return "event " + strconv.FormatInt(seq, 10) }

// decodeEvent decodes an event. The error is runs.ErrDataLoss.
func decodeEvent(k board.Key, seq, sum int64, body []byte) (*teamv1.BoardEvent, error) {
	ev := &teamv1.BoardEvent{}
	return ev, decodeBoard(k, eventName(seq), sum, body, ev)
}

// scanItem reads the columns id, sum and body of an item. The error may be runs.ErrDataLoss.
func scanItem(r *sql.Rows, k board.Key) (it *teamv1.WorkItem, id string, err error) {
	var sum int64
	var body []byte
	it = &teamv1.WorkItem{}
	if err = r.Scan(&id, &sum, &body); err == nil {
		err = decodeBoard(k, "item "+id, sum, body, it)
	}
	return it, id, err
}

// inProgress is the stored state of items that are claimed, including those whose lease has
// expired.
const inProgress = int64(teamv1.WorkItem_STATE_IN_PROGRESS)

// WorkItem implements board.Store.
func (s *Boards) WorkItem(ctx context.Context, k board.Key, id string) (*teamv1.WorkItem, error) {
	return workItem(ctx, s.DB.Reader(), k, id)
}

// workItem reads an item. The error is runs.ErrNotFound or runs.ErrDataLoss.
func workItem(ctx context.Context, q db.Querier, k board.Key, id string) (*teamv1.WorkItem, error) {
	var sum int64
	var body []byte
	err := q.Scan(ctx, []any{&sum, &body}, selectItem, k.Account, k.Team, id)
	if err != nil {
		return nil, db.NotFound(err)
	}
	it := &teamv1.WorkItem{}
	return it, decodeBoard(k, "item "+id, sum, body, it)
}

// WorkItems implements board.Store.
func (s *Boards) WorkItems(ctx context.Context, k board.Key, f board.Filter) ([]*teamv1.WorkItem, error) {
	now := s.DB.Now()
	w, order := &db.Where{}, `n`
	w.And(`account = ? AND team = ?`, k.Account, k.Team)
	lapsed := func() string { return fmt.Sprintf(`(state = %d AND lease <= %s)`, inProgress, w.Arg(now.UnixMilli())) }
	if f.ByPriority {
		order = `priority DESC, n`
	}
	switch {
	case f.AfterNumber != 0 && f.ByPriority:
		w.And(`(priority < ? OR priority = ? AND n > ?)`, int64(f.AfterPriority), int64(f.AfterPriority), f.AfterNumber)
	case f.AfterNumber != 0:
		w.And(`n > ?`, f.AfterNumber)
	}
	if f.State != 0 {
		w.And(fmt.Sprintf(`CASE WHEN %s THEN %d ELSE state END = ?`, lapsed(), teamv1.WorkItem_STATE_PENDING), int64(f.State))
	}
	if f.Assignee != "" {
		w.And(`assignee = ? AND NOT `+lapsed(), f.Assignee)
	}
	limit := w.Arg(int64(f.Limit))
	return db.List(ctx, s.DB.Reader(), func(r *sql.Rows) (*teamv1.WorkItem, error) {
		it, _, err := scanItem(r, k)
		return board.AsOf(it, now), err
	}, `SELECT id, sum, body FROM work_item WHERE `+w.Text+` ORDER BY `+order+` LIMIT `+limit, w.Args...)
}

// BoardEvents implements board.Store.
func (s *Boards) BoardEvents(ctx context.Context, k board.Key, after int64, limit int) ([]*teamv1.BoardEvent, error) {
	return s.boardEvents(ctx, k, `seq > $3 ORDER BY seq LIMIT $4`, after, int64(limit))
}

// boardEvents returns the events of a board that a condition selects. The arguments of the
// condition are $3 and following.
func (s *Boards) boardEvents(ctx context.Context, k board.Key, where string, args ...any) ([]*teamv1.BoardEvent, error) {
	return db.List(ctx, s.DB.Reader(), func(r *sql.Rows) (*teamv1.BoardEvent, error) {
		var seq, sum int64
		var body []byte
		if err := r.Scan(&seq, &sum, &body); err != nil {
			return nil, err
		}
		return decodeEvent(k, seq, sum, body)
	}, `SELECT seq, sum, body FROM board_event WHERE account = $1 AND team = $2 AND `+where, append([]any{k.Account, k.Team}, args...)...)
}

// BoardMessages implements board.Store.
func (s *Boards) BoardMessages(ctx context.Context, k board.Key, f board.MessageFilter) ([]*teamv1.BoardMessage, error) {
	read, err := s.boardRead(ctx, k)
	if err != nil {
		return nil, err
	}
	after := f.After
	if f.Unread {
		after = max(after, read[f.Reader])
	}
	// The condition selects the same messages as MessageFilter.Takes.
	const whose = `($5 = '' OR sender <> $5 AND (recipient = '' OR recipient = $5) OR sender = $5 AND $6 = 0)`
	events, err := s.boardEvents(ctx, k, `seq > $3 AND recipient IS NOT NULL AND `+whose+` ORDER BY seq LIMIT $4`, after, int64(f.Limit), f.Reader, db.Flag(f.Unread))
	var list []*teamv1.BoardMessage
	for _, ev := range events {
		m := ev.GetMessage()
		m.AcknowledgedBy = board.Acknowledged(m, read)
		list = append(list, m)
	}
	return list, err
}

// boardRead returns the sequence number up to which each reader has read.
func (s *Boards) boardRead(ctx context.Context, k board.Key) (map[string]int64, error) {
	read := map[string]int64{}
	err := db.Each(ctx, s.DB.Reader(), func() { clear(read) }, func(r *sql.Rows) error {
		var reader string
		var seq int64
		err := r.Scan(&reader, &seq)
		read[reader] = seq
		return err
	}, selectReaders, k.Account, k.Team)
	return read, err
}

// BoardOverview implements board.Store. It uses a single statement, so that the items match the
// sequence number.
func (s *Boards) BoardOverview(ctx context.Context, k board.Key) (board.Overview, error) {
	now := s.DB.Now()
	var seq int64
	var items []*teamv1.WorkItem
	err := db.Each(ctx, s.DB.Reader(), func() { items = nil }, func(r *sql.Rows) error {
		var id sql.NullString
		var state, sum sql.NullInt64
		var body []byte
		if err := r.Scan(&seq, &id, &state, &sum, &body); err != nil || !id.Valid {
			return err
		}
		it := &teamv1.WorkItem{State: teamv1.WorkItem_State(state.Int64)} //nolint:gosec // one of few
		items = append(items, it)
		if body == nil {
			return nil
		}
		err := decodeBoard(k, "item "+id.String, sum.Int64, body, it)
		board.AsOf(it, now)
		return err
	}, selectOverview, k.Account, k.Team, inProgress)
	return board.Look(seq, items), err
}

// AckBoard implements board.Store.
func (s *Boards) AckBoard(ctx context.Context, k board.Key, reader string, upTo int64) (noted int64, err error) {
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		_, err := q.Exec(ctx, putReader, k.Account, k.Team, reader, upTo)
		if err != nil {
			return err
		}
		return q.Scan(ctx, []any{&noted}, selectReader, k.Account, k.Team, reader)
	})
	return noted, err
}
