package task

import (
	"context"
	"errors"
	"strconv"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

// selectOwner selects the owner of a root.
const selectOwner = `SELECT owner FROM run WHERE id = $1`

// Questions implements runs.Approvals.
func (s *Tasks) Questions(ctx context.Context, f runs.QuestionFilter) (list []runs.RoleQuestion, more bool, err error) {
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

// Root implements runs.Approvals.
func (s *Tasks) Root(ctx context.Context, account, id string) (runs.Key, error) {
	owner, err := db.Value[string](ctx, s.DB.Reader(), selectOwner, id)
	if err != nil {
		return runs.Key{}, db.NotFound(err)
	}
	if identity.AccountOf(owner) != account {
		return runs.Key{}, runs.ErrNotFound
	}
	return runs.Key{Owner: owner, ID: id}, nil
}

// asker is the position of a question.
type asker struct {
	id  string
	seq int64
}

// questions reads a page. last is the position after which the next page begins; it is empty on the
// last page. The questions themselves are read from the journals, because a row holds only their
// position.
func (s *Tasks) questions(ctx context.Context, f runs.QuestionFilter) (list []runs.RoleQuestion, last asker, err error) {
	text, args := selectQuestions(f)
	rows, err := db.Rows(ctx, s.DB.Reader(), (*questionRow).dest, text, args...)
	if err != nil {
		return nil, last, err
	}
	if len(rows) > f.Limit {
		rows, last = rows[:f.Limit], rows[f.Limit-1].asker
	}
	for _, row := range rows {
		if row.seq > s.Claims.Shown(row.id) {
			continue
		}
		q, err := s.questionOf(ctx, &row)
		switch {
		case errors.Is(err, runs.ErrDataLoss): // the rest of the list is better than none
			s.DB.Log.Error("a question is left out of a list", zap.String("task", row.id), zap.Error(err))
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
func selectQuestions(f runs.QuestionFilter) (text string, args []any) {
	w := &db.Where{}
	w.And("question.account = ?", f.Account)
	w.And("(question.id, question.seq) > (?, ?)", f.After, f.AfterSeq)
	if !f.EveryRole {
		roles := make([]any, len(f.Roles))
		for i, r := range f.Roles {
			roles[i] = r
		}
		w.And("role IN ("+db.Marks(len(roles))+")", roles...)
	}
	w.And("owner <> ?", f.Except)
	if f.Root != "" {
		w.And("question.id = ?", f.Root)
	}
	if f.Agent != "" {
		w.And("agent = ?", f.Agent)
	}
	if f.Scope != "" {
		w.And("(scope = ? OR substr(scope, 1, ?) = ?)", f.Scope, int64(len(f.Scope)+1), f.Scope+".")
	}
	args = append(w.Args, int64(f.Limit)+1)
	return `SELECT task.id, owner, agent, event.seq, scope, sum, body
FROM (
    SELECT DISTINCT question.id, question.seq
    FROM question JOIN task ON task.id = question.id JOIN event ON event.id = question.id AND event.seq = question.seq
    WHERE ` + w.Text + ` ORDER BY question.id, question.seq LIMIT $` + strconv.Itoa(len(args)) + `
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

// questionOf returns the question of a row as readers see it. The error may be runs.ErrDataLoss.
func (s *Tasks) questionOf(ctx context.Context, r *questionRow) (runs.RoleQuestion, error) {
	q := runs.RoleQuestion{Task: runs.Key{Owner: r.owner, ID: r.id}, Agent: r.agent}
	err := record.Decoded(ctx, s.DB.Reader(), r.id, r.seq, r.record, func(body []byte) (err error) {
		q.Asked, err = record.Decode(r.id, r.seq, r.scope, r.sum, body)
		return err
	})
	return q, err
}
