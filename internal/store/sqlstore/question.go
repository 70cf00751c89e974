package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

var _ a2a.Approvals = (*Store)(nil)

const insertQuestion = `INSERT INTO question (id, seq, role, account)
SELECT id, $4, $5, $6 FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT DO NOTHING`

const deleteQuestion = `DELETE FROM question
WHERE id = $1 AND seq = $4 AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3)`

// ask adds what an event makes of the questions that roles may answer.
func (b *batch) ask(e entry, add func(text string, args ...any)) {
	for _, role := range store.RolesOf(e.ev) {
		add(insertQuestion, e.ev.GetSeq(), role, a2a.AccountOf(b.j.owner))
	}
	for _, seq := range e.closes {
		add(deleteQuestion, seq)
	}
}

// Questions implements a2a.Approvals. What is read is found in the journals: of the
// question there is only its place.
func (s *Store) Questions(ctx context.Context, f a2a.QuestionFilter) (list []a2a.RoleQuestion, more bool, err error) {
	found := &where{}
	found.and("account = ?", f.Account)
	found.and("(id, seq) > (?, ?)", f.After, f.AfterSeq)
	if !f.EveryRole {
		roles := make([]any, len(f.Roles))
		for i, r := range f.Roles {
			roles[i] = r
		}
		found.and("role IN (?"+strings.Repeat(", ?", len(roles)-1)+")", roles...)
	}
	if f.Root != "" {
		found.and("id = ?", f.Root)
	}
	w := &where{text: "1 = 1", args: found.args}
	w.and("task.owner <> ?", f.Except)
	if f.Agent != "" {
		w.and("agent = ?", f.Agent)
	}
	if f.Scope != "" {
		w.and("(scope = ? OR substr(scope, 1, ?) = ?)", f.Scope, int64(len(f.Scope)+1), f.Scope+".")
	}
	args := append(w.args, int64(f.Limit)+1)
	text := `SELECT task.id, owner, agent, event.seq, scope, sum, body
FROM (SELECT DISTINCT id, seq FROM question WHERE ` + found.text + `) AS found
JOIN task ON task.id = found.id JOIN event ON event.id = found.id AND event.seq = found.seq
WHERE ` + w.text + ` ORDER BY task.id, event.seq LIMIT $` + strconv.Itoa(len(args))
	rows := 0
	err = each(ctx, s.db.reader(), func() { list, rows = nil, 0 }, func(r *sql.Rows) error {
		if rows++; rows > f.Limit {
			return nil
		}
		q, err := s.scanQuestion(r)
		switch {
		case errors.Is(err, a2a.ErrDataLoss): // a list of the others is worth more than none
			s.cfg.Log.Error("a question is left out of a list", zap.String("task", q.Task.ID), zap.Error(err))
			return nil
		case err != nil:
			return err
		}
		if q.Asked.GetSeq() <= s.shown(q.Task.ID) {
			list = append(list, q)
		}
		return nil
	}, text, args...)
	return list, rows > f.Limit, damaged(err)
}

func (s *Store) scanQuestion(r *sql.Rows) (q a2a.RoleQuestion, err error) {
	var seq, sum int64
	var scope string
	var body []byte
	if err := r.Scan(&q.Task.ID, &q.Task.Owner, &q.Agent, &seq, &scope, &sum, &body); err != nil {
		return q, err
	}
	q.Asked, err = decodeEvent(q.Task.ID, seq, scope, sum, body)
	return q, err
}
