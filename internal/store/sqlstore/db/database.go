package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// Querier runs statements, either in a transaction or each on its own. Their arguments are $1, $2
// and so on.
type Querier interface {
	Exec(ctx context.Context, text string, args ...any) (affected int64, err error)
	Query(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	// Again runs a read. If the connection turns out to be lost and another one is available, it
	// runs the read again from the beginning.
	Again(ctx context.Context, read func() error) error
	// Scan reads the single row of a query. The error is sql.ErrNoRows if the query selects no row,
	// and runs.ErrDataLoss if the row is damaged.
	Scan(ctx context.Context, dest []any, text string, args ...any) error
}

// Engine is a database of one kind: SQLite or PostgreSQL.
type Engine interface {
	// Reader returns a querier for statements that change nothing.
	Reader() Querier
	// Do runs f in a transaction and returns when that is durable. f may run more than once, even
	// after an attempt that has succeeded but whose reply was lost. If f returns a refusal, it must
	// not have written anything.
	Do(ctx context.Context, f func(ctx context.Context, q Querier) error) error
	// Statement is like Do for an f that runs a single statement, which is a transaction of its own.
	Statement(ctx context.Context, f func(ctx context.Context, q Querier) error) error
	// Add queues a change, which is written together with others. The error wraps runs.ErrStorage.
	Add(s Source) error
	// Tell notifies other replicas of a change of a root or topic. audience is whom it concerns.
	Tell(root, audience string)

	dialect() Dialect
	// time returns the database's time.
	time(ctx context.Context) (time.Time, error)
	// check looks for what makes the database unusable for this process, and records it in its state.
	check(ctx context.Context)
	// listen calls heard with the topics that other replicas have changed, until the database is closed; without any, if
	// it has missed changes.
	listen(heard func(topics ...string))
	state() *health
	close() error
}

// Dialect has the differences between the statements of SQLite and those of PostgreSQL.
type Dialect struct {
	// Single says that this process has exclusive use of the database.
	Single bool
	// Lock is the clause that locks the rows of a SELECT; Skip the one that leaves out locked rows.
	Lock, Skip string
	// Binary is the name of the type of byte strings.
	Binary string
}

// Stmt is one statement with its arguments.
type Stmt struct {
	Text string
	Args []any
}

// size returns how many bytes the byte strings among the arguments have.
func (s Stmt) size() (n int) {
	for _, arg := range s.Args {
		if b, ok := arg.([]byte); ok {
			n += len(b)
		}
	}
	return n
}

// LargeChange is the size in bytes from which a change is written alone, after the small changes that are queued.
const LargeChange = 128 << 10

// Source provides a change when its turn to be written comes.
type Source interface {
	// Take returns the change to write now. It returns nil if nothing needs to be written.
	Take() *Op
	// IsLarge reports whether the change is written alone, and Of returns the account whose change it is, "" if that is
	// not known. They are called before Take.
	IsLarge() bool
	Of() string
}

// With returns a statement with its arguments.
func With(text string, args ...any) Stmt { return Stmt{text, args} }

// Exec runs statements in order.
func Exec(ctx context.Context, q Querier, stmts ...Stmt) error {
	return (&Op{Stmts: stmts}).Exec(ctx, q)
}

// Op is a change: statements that are applied together, or a plan, which can read first. Done is
// called once, when the change is durable or has failed. Early are statements of a large change that the writer
// executes before, in transactions of their own, so that small changes need not wait for all of them.
type Op struct {
	Root     string // id of the run that it locks
	Early    []Stmt
	Stmts    []Stmt
	Plan     func(ctx context.Context, q Querier) error // used instead of Stmts
	Affected []int64                                    // number of rows changed, by statement
	Again    bool                                       // an earlier attempt may have recorded it
	Size     int
	Account  string                                                // of the creation of a task and of what is remembered; "" of other changes, see Source
	Done     func(ctx context.Context, q Querier, err error) error // returns the final error
}

// Apply runs an op within a transaction, with what of Early was not written before.
func (o *Op) Apply(ctx context.Context, q Querier) error {
	if err := Exec(ctx, q, o.Early...); err != nil {
		return err
	}
	if o.Plan != nil {
		return o.Plan(ctx, q)
	}
	return o.Exec(ctx, q)
}

// Exec runs the statements of an op.
func (o *Op) Exec(ctx context.Context, q Querier) error {
	o.Affected = o.Affected[:0]
	for _, s := range o.Stmts {
		n, err := q.Exec(ctx, s.Text, s.Args...)
		if err != nil {
			return err
		}
		o.Affected = append(o.Affected, n)
	}
	return nil
}

// once is a change that is made when its turn comes, unless its caller has stopped waiting.
type once struct {
	*Op
	begun *atomic.Bool
}

// IsLarge implements Source.
func (o once) IsLarge() bool { return o.Size >= LargeChange }

// Of implements Source.
func (o once) Of() string { return o.Account }

// Take implements Source.
func (o once) Take() *Op {
	if o.begun.Swap(true) {
		return nil
	}
	return o.Op
}

// await queues a change and waits until it is made. If ctx ends before the turn of the change, the
// change is not made. If ctx ends later, await still waits, because the caller must know the
// outcome. The error has no mark of a refusal.
func await(ctx context.Context, e Engine, o *Op) error {
	result := make(chan error, 1)
	done := o.Done
	o.Done = func(ctx context.Context, q Querier, err error) error {
		if done != nil {
			err = done(ctx, q, err)
		}
		result <- Answer(err)
		return err
	}
	s := once{Op: o, begun: &atomic.Bool{}}
	if err := e.Add(s); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	if !s.begun.Swap(true) {
		return context.Cause(ctx)
	}
	return <-result
}

// Refuse marks an error as the result of a request, which is not a failure of the database; nil for nil.
func Refuse(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// RefuseNone converts sql.ErrNoRows to a refusal with runs.ErrNotFound.
func RefuseNone(err error) error {
	if err = NotFound(err); errors.Is(err, runs.ErrNotFound) {
		return refusal{err}
	}
	return err
}

// refusal is an error that is marked by Refuse.
type refusal struct{ error }

// Unwrap returns the error without the mark.
func (r refusal) Unwrap() error { return r.error }

// refused reports whether an error is marked as a refusal.
func refused(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// Answer returns an error without the mark of a refusal.
func Answer(err error) error {
	var r refusal
	if errors.As(err, &r) {
		return r.error
	}
	return err
}

// NotFound converts sql.ErrNoRows to runs.ErrNotFound.
func NotFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return runs.ErrNotFound
	}
	return err
}

// health is the state of a database. It is safe for concurrent use.
type health struct {
	failed chan struct{} // closed with the first permanent error

	mu     sync.Mutex
	fatal  error // the first permanent error; nil without one; guarded by mu
	frozen error // why writes are refused until an operator repairs the store; guarded by mu
	now    error // error of the last write, if it failed; guarded by mu
}

// newHealth returns the state of a healthy database.
func newHealth() *health { return &health{failed: make(chan struct{})} }

// latch records a permanent error, after which this process acknowledges nothing more. It returns
// the first such error.
func (h *health) latch(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal == nil {
		h.fatal = fmt.Errorf("%w: %w", runs.ErrStorage, err)
		close(h.failed)
	}
	return h.fatal
}

// latched returns the permanent error, nil without one.
func (h *health) latched() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fatal
}

// freeze makes this process refuse all writes; reads continue.
func (h *health) freeze(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen == nil {
		h.frozen = err
	}
}

// closed returns why writes are refused, nil if they are not.
func (h *health) closed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal != nil {
		return h.fatal
	}
	return h.frozen
}

// wrote records the result of the latest write.
func (h *health) wrote(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = err
}

// problem returns what is wrong with the database, nil if it is healthy.
func (h *health) problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.fatal != nil:
		return h.fatal
	case h.frozen != nil:
		return h.frozen
	}
	return h.now
}

// Each calls scan for each row of a query. It may start again from the first row; it calls reset
// before each start. The error may be runs.ErrDataLoss.
func Each(ctx context.Context, q Querier, reset func(), scan func(*sql.Rows) error, text string, args ...any) error {
	return damaged(q.Again(ctx, func() error {
		reset()
		rows, err := q.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // Err tells
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}))
}

// List returns what scan makes of each row of a query. The error may be runs.ErrDataLoss.
func List[T any](ctx context.Context, q Querier, scan func(*sql.Rows) (T, error), text string, args ...any) (list []T, err error) {
	err = Each(ctx, q, func() { list = nil }, func(rows *sql.Rows) error {
		v, err := scan(rows)
		list = append(list, v)
		return err
	}, text, args...)
	return list, err
}

// Rows returns the rows of a query. dest returns the destinations of the columns in a row.
func Rows[T any](ctx context.Context, q Querier, dest func(row *T) []any, text string, args ...any) ([]T, error) {
	return List(ctx, q, func(rows *sql.Rows) (row T, err error) {
		err = rows.Scan(dest(&row)...)
		return row, err
	}, text, args...)
}

// Values returns the column of a query that selects a single one.
func Values[T any](ctx context.Context, q Querier, text string, args ...any) ([]T, error) {
	return Rows(ctx, q, func(v *T) []any { return []any{v} }, text, args...)
}

// Value returns the single value of a query. The errors are those of Querier.Scan.
func Value[T any](ctx context.Context, q Querier, text string, args ...any) (v T, err error) {
	err = q.Scan(ctx, []any{&v}, text, args...)
	return v, err
}
