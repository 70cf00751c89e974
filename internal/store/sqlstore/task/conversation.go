package task

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tables are the tables of this package whose rows are copied with a store.
var Tables = []string{"conversation", "history", "history_piece", "conversation_state"}

// Conversations are what runs remember of their contexts. It implements runs.Conversations.
type Conversations struct{ DB *db.DB }

// Statements of conversations.
const (
	selectLast    = `SELECT last FROM conversation WHERE owner = $1 AND context_id = $2`
	selectHistory = `SELECT n, sum, body FROM history WHERE owner = $1 AND context_id = $2 AND path = $3 AND n <= $4 ORDER BY n DESC LIMIT $5`
	selectState   = `SELECT n, sum, body FROM conversation_state
WHERE owner = $1 AND context_id = $2 AND path = $3 AND n <= $4 ORDER BY n DESC LIMIT 1`
	useConversation = `INSERT INTO conversation (owner, context_id, last, used) VALUES ($1, $2, 0, $3)
ON CONFLICT (owner, context_id) DO UPDATE SET used = excluded.used RETURNING last`
	countOfTask  = `SELECT count(*) FROM (SELECT 1 FROM history WHERE owner = $1 AND context_id = $2 AND task = $3 LIMIT 1) AS first`
	updateLast   = `UPDATE conversation SET last = $3 WHERE owner = $1 AND context_id = $2`
	selectPieces = `SELECT body FROM history_piece WHERE owner = $1 AND context_id = $2 AND path = $3 AND hash = $4 ORDER BY piece`
	countPieces  = `SELECT count(*) FROM history_piece WHERE owner = $1 AND context_id = $2 AND path = $3 AND hash = $4`
	insertPiece  = `INSERT INTO history_piece (owner, context_id, path, hash, piece, body) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	// deleteUnused deletes the pieces of entries that are no longer in the history of a path.
	deleteUnused = `DELETE FROM history_piece WHERE owner = $1 AND context_id = $2 AND path = $3
AND hash NOT IN (SELECT substr(body, 2) FROM history WHERE owner = $1 AND context_id = $2 AND path = $3 AND length(body) = 33)`
	insertEntry = `INSERT INTO history (owner, context_id, path, n, task, sum, body) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	putState    = `INSERT INTO conversation_state (owner, context_id, path, n, sum, body) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (owner, context_id, path, n) DO UPDATE SET sum = excluded.sum, body = excluded.body`
)

// threadID returns the id of a conversation for the checksums of its records.
func threadID(t runs.Thread) string { return t.Owner + "\x00" + t.ContextID }

// Position implements runs.Conversations.
func (s *Conversations) Position(ctx context.Context, t runs.Thread) (int64, error) {
	last, err := db.Value[int64](ctx, s.DB.Reader(), selectLast, t.Owner, t.ContextID)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return last, err
}

// Recall implements runs.Conversations.
func (s *Conversations) Recall(ctx context.Context, t runs.Thread, path string, upTo int64) (runs.Recollection, error) {
	var r runs.Recollection
	q := s.DB.Reader()
	rows, err := db.Rows(ctx, q, func(r *entryRow) []any { return []any{&r.n, &r.sum, &r.body} }, selectHistory, t.Owner, t.ContextID, path, upTo, int64(agent.HistoryLength))
	if err != nil {
		return runs.Recollection{}, err
	}
	for _, row := range slices.Backward(rows) {
		m, err := row.message(ctx, q, t, path)
		if err != nil {
			return runs.Recollection{}, err
		}
		r.History = append(r.History, m)
	}
	if r.State, err = stateOf(ctx, q, t, path, upTo); err != nil {
		return runs.Recollection{}, err
	}
	return r, nil
}

// entryRow is a row of history.
type entryRow struct {
	n, sum int64
	body   []byte
}

// message returns the message of an entry. The error may be runs.ErrDataLoss.
func (r entryRow) message(ctx context.Context, q db.Querier, t runs.Thread, path string) (*a2av1.Message, error) {
	body := r.body
	if len(body) > 0 && body[0] == inPieces {
		var err error
		if body, err = record.ReadPieces(ctx, q, 2*record.PieceSize, selectPieces, t.Owner, t.ContextID, path, r.body[1:]); err != nil {
			return nil, err
		}
	}
	m := &a2av1.Message{}
	if db.SumOf(threadID(t), r.n, path, body) != r.sum || proto.Unmarshal(body, m) != nil {
		return nil, db.DataLoss("entry", t.ContextID, r.n)
	}
	return m, nil
}

// stateOf returns the state of a path as of entry upTo, nil without one. The error may be
// runs.ErrDataLoss.
func stateOf(ctx context.Context, q db.Querier, t runs.Thread, path string, upTo int64) (map[string]*structpb.Value, error) {
	var n, sum int64
	var body []byte
	err := q.Scan(ctx, []any{&n, &sum, &body}, selectState, t.Owner, t.ContextID, path, upTo)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state := &structpb.Struct{}
	if db.SumOf(threadID(t), n, path, body) != sum || proto.Unmarshal(body, state) != nil {
		return nil, db.DataLoss("state", t.ContextID, n)
	}
	return state.GetFields(), nil
}

// Remember implements runs.Conversations.
func (s *Conversations) Remember(ctx context.Context, t runs.Thread, e runs.Exchange) error {
	if t.Owner == "" || t.ContextID == "" || e.Task == "" {
		return errors.New("remember an exchange: it needs an owner, a context and a task")
	}
	if err := s.DB.Ready(); err != nil { // fail at once, not after all attempts
		return err
	}
	w := &exchange{db: s.DB, thread: t, task: e.Task, by: e.By}
	size, early, err := w.encode()
	if err != nil {
		return err
	}
	plan := func(ctx context.Context, q db.Querier) error {
		w.q = q
		return w.write(ctx)
	}
	o := &db.Op{Size: size, Account: identity.AccountOf(t.Owner), Early: early, Plan: plan}
	if !s.DB.Single { // it ends with ctx, and no other change waits for it
		return s.DB.Do(ctx, o.Apply)
	}
	return s.DB.Await(ctx, o)
}

// inPieces is the first byte of the body of an entry that is stored in pieces. No encoded message begins with it.
const inPieces = 0

// exchange writes an exchange to its conversation, whose row it has locked.
type exchange struct {
	db     *db.DB
	thread runs.Thread
	task   string
	by     []runs.Contribution
	bodies [][]encoded // the messages, by contribution
	q      db.Querier
	last   int64
}

// encoded is a message as it is stored.
type encoded struct {
	body   []byte
	hash   []byte    // of a message that is stored in pieces
	pieces []db.Stmt // that store it
}

// encode encodes the messages, and returns their size in bytes, and the statements that may be executed early.
func (w *exchange) encode() (size int, early []db.Stmt, err error) {
	for _, c := range w.by {
		var list []encoded
		for _, m := range c.Messages {
			e, err := w.message(c.Path, m)
			if err != nil {
				return 0, nil, err
			}
			list = append(list, e)
			size += len(e.body)
			early = append(early, e.pieces...)
		}
		w.bodies = append(w.bodies, list)
	}
	if len(early) > 0 { // pieces belong to a conversation, with which they are deleted
		early = slices.Insert(early, 0, db.With(useConversation, w.thread.Owner, w.thread.ContextID, w.db.Millis()))
	}
	return size, early, nil
}

// message encodes a message of a path.
func (w *exchange) message(path string, m *a2av1.Message) (e encoded, err error) {
	if e.body, err = proto.Marshal(m); err != nil {
		return e, fmt.Errorf("encode an entry of %s: %w", w.task, err)
	}
	if len(e.body) <= record.PieceSize {
		return e, nil
	}
	sum := sha256.Sum256(e.body)
	e.hash = sum[:]
	for n, piece := range (record.Blob{Hash: e.hash, Value: e.body}).Pieces() {
		e.pieces = append(e.pieces, db.With(insertPiece, w.thread.Owner, w.thread.ContextID, path, e.hash, n, piece))
	}
	return e, nil
}

// write adds the exchange, unless an exchange of the task is recorded already: by an earlier
// attempt whose reply was lost, or by an earlier owner of the run.
func (w *exchange) write(ctx context.Context) error {
	t := w.thread
	err := w.q.Scan(ctx, []any{&w.last}, useConversation, t.Owner, t.ContextID, w.db.Millis())
	if err != nil {
		return err
	}
	known, err := db.Value[int](ctx, w.q, countOfTask, t.Owner, t.ContextID, w.task)
	if err != nil || known > 0 {
		return err
	}
	for i, c := range w.by {
		if err := w.entries(ctx, c.Path, w.bodies[i]); err != nil {
			return err
		}
	}
	for _, c := range w.by { // numbered like the last entry, so that readers see all or nothing
		if err := w.state(ctx, c); err != nil {
			return err
		}
	}
	return db.Exec(ctx, w.q, db.With(updateLast, t.Owner, t.ContextID, w.last))
}

// entries adds what a path was asked and answered, and deletes its oldest entries beyond the limit.
func (w *exchange) entries(ctx context.Context, path string, list []encoded) error {
	t := w.thread
	for _, e := range list {
		w.last++
		body := e.body
		if e.hash != nil {
			body = append([]byte{inPieces}, e.hash...)
			if err := w.complete(ctx, path, e); err != nil {
				return err
			}
		}
		if _, err := w.q.Exec(ctx, insertEntry, t.Owner, t.ContextID, path, w.last, w.task, db.SumOf(threadID(t), w.last, path, e.body), body); err != nil {
			return err
		}
	}
	if w.last <= runs.KeptEntries {
		return nil
	}
	if err := w.trim(ctx, "history", path); err != nil {
		return err
	}
	return db.Exec(ctx, w.q, db.With(deleteUnused, t.Owner, t.ContextID, path))
}

// complete stores the pieces of an entry if some are missing: those that were stored early may have been deleted since,
// because no entry needed them yet.
func (w *exchange) complete(ctx context.Context, path string, e encoded) error {
	have, err := db.Value[int](ctx, w.q, countPieces, w.thread.Owner, w.thread.ContextID, path, e.hash)
	if err != nil || have == len(e.pieces) {
		return err
	}
	return db.Exec(ctx, w.q, e.pieces...)
}

// state stores the changed state of a path.
func (w *exchange) state(ctx context.Context, c runs.Contribution) error {
	if len(c.State) == 0 {
		return nil
	}
	t := w.thread
	have, err := stateOf(ctx, w.q, t, c.Path, record.Everything)
	if errors.Is(err, runs.ErrDataLoss) { // start again, or nothing could be added any more
		w.db.Log.Warn("the state of a conversation is damaged; it begins anew", zap.String("owner", t.Owner), zap.String("path", c.Path), zap.Error(err))
	} else if err != nil {
		return err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(&structpb.Struct{Fields: runs.Merged(have, c.State)})
	if err != nil {
		return db.Refuse(fmt.Errorf("encode the state of %s: %w", w.task, err))
	}
	_, err = w.q.Exec(ctx, putState,
		t.Owner, t.ContextID, c.Path, w.last, db.SumOf(threadID(t), w.last, c.Path, body), body)
	if err != nil {
		return err
	}
	if w.last <= runs.KeptEntries {
		return nil
	}
	return w.trim(ctx, "conversation_state", c.Path)
}

// trim deletes the oldest rows of a path beyond the limit.
func (w *exchange) trim(ctx context.Context, table, path string) error {
	const rows = ` WHERE owner = $1 AND context_id = $2 AND path = $3`
	return db.Exec(ctx, w.q, db.With(`DELETE FROM `+table+rows+` AND n <= (SELECT n FROM `+table+rows+` ORDER BY n DESC LIMIT 1 OFFSET $4)`,
		w.thread.Owner, w.thread.ContextID, path, int64(runs.KeptEntries)))
}

// retainThreads is how many conversations are deleted in one transaction.
const retainThreads = 16

// unusedThread is the condition for conversations to which nothing was added since a time, $1, and in which no
// task is open.
var unusedThread = `used < $1 AND NOT EXISTS (SELECT 1 FROM task WHERE task.owner = conversation.owner AND task.context_id = conversation.context_id AND ` + record.OpenStates + `)`

// Surplus returns the time before which all conversations were used last that have more than a number of entries
// together with those that were used later. The conversation that was used last is never one of them.
func (s *Conversations) Surplus(ctx context.Context, entries int) (time.Time, error) {
	var at int64
	err := s.DB.Reader().Scan(ctx, []any{&at}, `SELECT COALESCE((SELECT used FROM (
  SELECT used, sum(n) OVER (ORDER BY used DESC) AS entries, row_number() OVER (ORDER BY used DESC) AS place FROM (
    SELECT conversation.used, count(*) AS n FROM conversation JOIN history USING (owner, context_id) GROUP BY owner, context_id, used
  ) AS counted) AS ranked WHERE entries > $1 AND place > 1 ORDER BY used DESC LIMIT 1), 0)`, int64(entries))
	return time.UnixMilli(at + 1), err
}

// Forget deletes conversations to which nothing was added since a time, unless a task in them is open.
func (s *Conversations) Forget(ctx context.Context, before time.Time) error {
	return db.Repeat(func() (more bool, err error) { return s.forgetThreads(ctx, before.UnixMilli()) })
}

// forgetThreads deletes a batch of conversations. more reports whether there may be further ones.
func (s *Conversations) forgetThreads(ctx context.Context, before int64) (more bool, err error) {
	threads, err := db.Rows(ctx, s.DB.Reader(), func(t *runs.Thread) []any { return []any{&t.Owner, &t.ContextID} }, `SELECT owner, context_id FROM conversation WHERE `+unusedThread+` ORDER BY used, owner, context_id LIMIT $2`, before, int64(retainThreads))
	if err != nil || len(threads) == 0 {
		return false, err
	}
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		for _, t := range threads {
			if err := forgetThread(ctx, q, t, before); err != nil {
				return err
			}
		}
		return nil
	})
	return len(threads) == retainThreads, err
}

// forgetThread deletes a conversation, unless it was used in the meantime.
func forgetThread(ctx context.Context, q db.Querier, t runs.Thread, before int64) error {
	gone, err := q.Exec(ctx, `DELETE FROM conversation WHERE owner = $2 AND context_id = $3 AND `+unusedThread, before, t.Owner, t.ContextID)
	if err != nil || gone == 0 {
		return err
	}
	for _, table := range []string{"history", "history_piece", "conversation_state"} {
		if _, err := q.Exec(ctx, `DELETE FROM `+table+` WHERE owner = $1 AND context_id = $2`, t.Owner, t.ContextID); err != nil {
			return err
		}
	}
	return nil
}
