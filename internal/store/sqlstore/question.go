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

// insertQuestion records a question for a role, in a batch that was admitted by fence.
const insertQuestion = `INSERT INTO question (id, seq, role, account)
SELECT id, $4, $5, $6 FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT DO NOTHING`

// deleteQuestion deletes a closed question, in a batch that was admitted by fence.
const deleteQuestion = `DELETE FROM question
WHERE id = $1 AND seq = $4 AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3)`

// ask adds the statements for the questions for roles that an event asks or closes.
func (b *batch) ask(e entry, add func(text string, args ...any)) {
	for _, role := range store.RolesOf(e.ev) {
		add(insertQuestion, e.ev.GetSeq(), role, a2a.AccountOf(b.j.owner))
	}
	for _, seq := range e.closes {
		add(deleteQuestion, seq)
	}
}

// Questions implements a2a.Approvals.
func (s *Store) Questions(ctx context.Context, f a2a.QuestionFilter) (list []a2a.RoleQuestion, more bool, err error) {
	for limit := f.Limit; ; { // questions may omit some
		f.Limit = limit - len(list)
		page, last, err := s.questions(ctx, f)
		list = append(list, page...)
		if more = last.id != ""; err != nil || !more || len(list) == limit {
			return list, more, err
		}
		f.After, f.AfterSeq = last.id, last.seq
	}
}

// Root implements a2a.Approvals.
func (s *Store) Root(ctx context.Context, account, id string) (a2a.Key, error) {
	var owner string
	if err := s.db.reader().scan(ctx, []any{&owner}, `SELECT owner FROM run WHERE id = $1`, id); err != nil {
		return a2a.Key{}, notFound(err)
	}
	if a2a.AccountOf(owner) != account {
		return a2a.Key{}, a2a.ErrNotFound
	}
	return a2a.Key{Owner: owner, ID: id}, nil
}

// asker is the position of a question.
type asker struct {
	id  string
	seq int64
}

// questions reads a page. last is the position after which the next page begins; it is empty on the
// last page. The questions themselves are read from the journals, because a row holds only their
// position.
func (s *Store) questions(ctx context.Context, f a2a.QuestionFilter) (list []a2a.RoleQuestion, last asker, err error) {
	text, args := selectQuestions(f)
	var rows []questionRow
	err = each(ctx, s.db.reader(), func() { rows = nil }, func(r *sql.Rows) error {
		var row questionRow
		err := r.Scan(row.dest()...)
		rows = append(rows, row)
		return err
	}, text, args...)
	if err != nil {
		return nil, last, err
	}
	if len(rows) > f.Limit {
		rows, last = rows[:f.Limit], rows[f.Limit-1].asker
	}
	for _, row := range rows {
		if row.seq > s.shown(row.id) {
			continue
		}
		q, err := s.questionOf(ctx, &row)
		switch {
		case errors.Is(err, a2a.ErrDataLoss): // the rest of the list is better than none
			s.cfg.Log.Error("a question is left out of a list", zap.String("task", row.id), zap.Error(err))
		case err != nil:
			return nil, last, err
		default:
			list = append(list, q)
		}
	}
	return list, last, nil
}

// selectQuestions returns the query for one question more than the filter's limit. It selects the
// positions first, and then reads the questions there.
func selectQuestions(f a2a.QuestionFilter) (text string, args []any) {
	w := &where{}
	w.and("account = ?", f.Account)
	w.and("(question.id, question.seq) > (?, ?)", f.After, f.AfterSeq)
	if !f.EveryRole {
		roles := make([]any, len(f.Roles))
		for i, r := range f.Roles {
			roles[i] = r
		}
		w.and("role IN (?"+strings.Repeat(", ?", len(roles)-1)+")", roles...)
	}
	w.and("owner <> ?", f.Except)
	if f.Root != "" {
		w.and("question.id = ?", f.Root)
	}
	if f.Agent != "" {
		w.and("agent = ?", f.Agent)
	}
	if f.Scope != "" {
		w.and("(scope = ? OR substr(scope, 1, ?) = ?)", f.Scope, int64(len(f.Scope)+1), f.Scope+".")
	}
	args = append(w.args, int64(f.Limit)+1)
	return `SELECT task.id, owner, agent, event.seq, scope, sum, body
FROM (
    SELECT DISTINCT question.id, question.seq
    FROM question JOIN task ON task.id = question.id JOIN event ON event.id = question.id AND event.seq = question.seq
    WHERE ` + w.text + ` ORDER BY question.id, question.seq LIMIT $` + strconv.Itoa(len(args)) + `
) AS found JOIN task ON task.id = found.id JOIN event ON event.id = found.id AND event.seq = found.seq
ORDER BY task.id, event.seq`, args
}

// questionRow is a row of selectQuestions.
type questionRow struct {
	asker
	owner, agent, scope string
	sum                 int64
	record              []byte
}

// dest returns the destinations for a scan of selectQuestions.
func (r *questionRow) dest() []any {
	return []any{&r.id, &r.owner, &r.agent, &r.seq, &r.scope, &r.sum, &r.record}
}

// questionOf returns the question of a row as readers see it. The error may be a2a.ErrDataLoss.
func (s *Store) questionOf(ctx context.Context, r *questionRow) (a2a.RoleQuestion, error) {
	q := a2a.RoleQuestion{Task: a2a.Key{Owner: r.owner, ID: r.id}, Agent: r.agent}
	body, err := s.joined(ctx, s.db.reader(), r.id, r.seq, r.record)
	if err != nil {
		return q, err
	}
	if q.Asked, err = decodeEvent(r.id, r.seq, r.scope, r.sum, body); err != nil {
		return q, err
	}
	return q, nil
}
