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

// querier runs statements, in a transaction or alone. $1 and so on are the arguments.
type querier interface {
	exec(ctx context.Context, text string, args ...any) (affected int64, err error)
	query(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	// again runs a read, once more from its beginning where the connection turns
	// out to be lost and there is another one.
	again(ctx context.Context, read func() error) error
	// scan reads the one row of a query; sql.ErrNoRows, a2a.ErrDataLoss.
	scan(ctx context.Context, dest []any, text string, args ...any) error
}

// database is what SQLite and PostgreSQL do differently.
type database interface {
	// single reports whether this process has the database alone.
	single() bool
	// reader runs statements that change nothing.
	reader() querier
	// do runs f in a transaction and returns when it is durable. f may run more
	// than once: after a failure, also one that came after its work was done. What f
	// refuses must have written nothing.
	do(ctx context.Context, f func(ctx context.Context, q querier) error) error
	// add queues a change for the next group of changes that is written together;
	// errClosed.
	add(s source) error
	// now returns the database's time.
	now(ctx context.Context) (time.Time, error)
	// lock locks the rows of a SELECT; skip leaves out those that are locked.
	lock() string
	skip() string
	// tell lets other replicas know that something about a root is new.
	tell(root, audience string)
	state() *health
	close() error
}

// stmt is one statement with its arguments.
type stmt struct {
	text string
	args []any
}

// source has something to write when its turn comes.
type source interface {
	// take returns what is to be written now, nil when there is nothing.
	take() *op
}

// op is a change: statements that are applied together, or a plan that looks
// first. done is called once, when it is durable or has failed.
type op struct {
	root     string // the run that it locks
	stmts    []stmt
	plan     func(ctx context.Context, q querier) error // instead of stmts
	affected []int64                                    // rows, by statement
	again    bool                                       // it was tried before, and may be on record
	size     int
	done     func(ctx context.Context, q querier, err error) error // may change the error
}

// once is a change that is made when its turn comes, unless its caller has left.
type once struct {
	*op
	begun *atomic.Bool
}

// take implements source.
func (o once) take() *op {
	if o.begun.Swap(true) {
		return nil
	}
	return o.op
}

// await queues a change and waits for it. When ctx ends before its turn it is not
// made; afterwards it is waited for: the caller has to know.
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

// refusal is an error that is an answer: nothing is wrong with the database.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func refused(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// answer takes the mark of a refusal off.
func answer(err error) error {
	var r refusal
	if errors.As(err, &r) {
		return r.error
	}
	return err
}

// notFound makes an empty result a2a.ErrNotFound.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return a2a.ErrNotFound
	}
	return err
}

// health is how a database does. Safe for concurrent use.
type health struct {
	failed chan struct{} // closed with the first error that nothing heals

	mu     sync.Mutex
	fatal  error // guarded by mu
	frozen error // why writes are refused until an operator repairs the store; guarded by mu
	now    error // error of the last write, if it failed; guarded by mu
}

func newHealth() *health { return &health{failed: make(chan struct{})} }

// latch ends all acknowledgement by this process.
func (h *health) latch(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal == nil {
		h.fatal = fmt.Errorf("%w: %w", a2a.ErrStorage, err)
		close(h.failed)
	}
	return h.fatal
}

func (h *health) latched() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fatal
}

// freeze stops all writes of this process; reads continue.
func (h *health) freeze(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen == nil {
		h.frozen = err
	}
}

// closed returns why writes are refused; nil means that a write may be tried.
func (h *health) closed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fatal != nil {
		return h.fatal
	}
	return h.frozen
}

// wrote notes how the last write went.
func (h *health) wrote(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = err
}

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

// each scans the rows of a query. It may begin again: reset is called before.
// a2a.ErrDataLoss.
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
