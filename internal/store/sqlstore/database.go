package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// querier runs statements, either in a transaction or each on its own. Their arguments are $1, $2
// and so on.
type querier interface {
	exec(ctx context.Context, text string, args ...any) (affected int64, err error)
	query(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	// again runs a read. If the connection turns out to be lost and another one is available, it
	// runs the read again from the beginning.
	again(ctx context.Context, read func() error) error
	// scan reads the single row of a query. The error is sql.ErrNoRows if the query selects no row,
	// and a2a.ErrDataLoss if the row is damaged.
	scan(ctx context.Context, dest []any, text string, args ...any) error
}

// database abstracts from the differences between SQLite and PostgreSQL.
type database interface {
	// single reports whether this process has exclusive use of the database.
	single() bool
	// reader returns a querier for statements that change nothing.
	reader() querier
	// do runs f in a transaction and returns when that is durable. f may run more than once, even
	// after an attempt that has succeeded but whose reply was lost. If f returns a refusal, it must
	// not have written anything.
	do(ctx context.Context, f func(ctx context.Context, q querier) error) error
	// statement is like do for an f that runs a single statement, which is a transaction of its own.
	statement(ctx context.Context, f func(ctx context.Context, q querier) error) error
	// add queues a change, which is written together with others. The error is errClosed.
	add(s source) error
	// now returns the database's time.
	now(ctx context.Context) (time.Time, error)
	// lock returns the clause that locks the rows of a SELECT; skip returns the one that leaves out
	// locked rows.
	lock() string
	skip() string
	// binary returns the name of the type of byte strings.
	binary() string
	// tell notifies other replicas of a change of a root. audience is whom it concerns.
	tell(root, audience string)
	state() *health
	close() error
}

// stmt is one statement with its arguments.
type stmt struct {
	text string
	args []any
}

// source provides a change when its turn to be written comes.
type source interface {
	// take returns the change to write now. It returns nil if nothing needs to be written.
	take() *op
	// isLarge reports whether the change is written alone, and of returns the account whose change it is, "" if that is
	// not known. They are called before take.
	isLarge() bool
	of() string
}

// op is a change: statements that are applied together, or a plan, which can read first. done is
// called once, when the change is durable or has failed.
type op struct {
	root     string // id of the run that it locks
	stmts    []stmt
	plan     func(ctx context.Context, q querier) error // used instead of stmts
	affected []int64                                    // number of rows changed, by statement
	again    bool                                       // an earlier attempt may have recorded it
	size     int
	account  string                                                // of the creation of a task; "" of other changes, see source
	done     func(ctx context.Context, q querier, err error) error // returns the final error
}

// once is a change that is made when its turn comes, unless its caller has stopped waiting.
type once struct {
	*op
	begun *atomic.Bool
}

// isLarge implements source.
func (o once) isLarge() bool { return o.size >= largeChange }

// of implements source.
func (o once) of() string { return o.account }

// take implements source.
func (o once) take() *op {
	if o.begun.Swap(true) {
		return nil
	}
	return o.op
}

// await queues a change and waits until it is made. If ctx ends before the turn of the change, the
// change is not made. If ctx ends later, await still waits, because the caller must know the
// outcome.
func await(ctx context.Context, db database, o *op) error {
	result := make(chan error, 1)
	done := o.done
	o.done = func(ctx context.Context, q querier, err error) error {
		if done != nil {
			err = done(ctx, q, err)
		}
		result <- err
		return err
	}
	s := once{op: o, begun: &atomic.Bool{}}
	if err := db.add(s); err != nil {
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

// refusal marks an error that is the result of a request, and not a failure of the database.
type refusal struct{ error }

// Unwrap returns the error without the mark.
func (r refusal) Unwrap() error { return r.error }

// refused reports whether an error is marked as a refusal.
func refused(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// answer returns an error without the mark of a refusal.
func answer(err error) error {
	var r refusal
	if errors.As(err, &r) {
		return r.error
	}
	return err
}

// notFound converts sql.ErrNoRows to a2a.ErrNotFound.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return a2a.ErrNotFound
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
		h.fatal = fmt.Errorf("%w: %w", a2a.ErrStorage, err)
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

// each calls scan for each row of a query. It may start again from the first row; it calls reset
// before each start. The error may be a2a.ErrDataLoss.
func each(ctx context.Context, q querier, reset func(), scan func(*sql.Rows) error, text string, args ...any) error {
	return damaged(q.again(ctx, func() error {
		reset()
		rows, err := q.query(ctx, text, args...)
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
