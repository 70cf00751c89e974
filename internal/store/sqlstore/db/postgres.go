package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/agentteams/team-server/internal/runs"
)

const (
	// retryFor is how long a write is retried while the database cannot be reached. It is shorter
	// than the time after which a replica without heartbeats loses its runs.
	retryFor = 8 * time.Second
	// readFor is how long a read is retried.
	readFor = 2 * time.Second
	// notice is the time of retries after which the store is not ready.
	notice = time.Second
	// retryPause is the pause between two attempts.
	retryPause = 50 * time.Millisecond
	// connectWait is the timeout of one attempt to connect.
	connectWait = 5 * time.Second
	// groupFor is the timeout of one attempt to write a group. A connection that neither answers
	// nor breaks must not delay everything else.
	groupFor = 5 * time.Second
	// planFor is the timeout of one attempt of a transaction that reads before it writes.
	planFor = 30 * time.Second
	// idleFor is how long the database waits within a transaction for a replica that hangs, before
	// it ends the session and releases its locks.
	idleFor = "10000" // milliseconds
	// probe has the database find out within 10 seconds that a replica cannot be reached. A group
	// that has arrived in part holds its locks, and idleFor does not end it: the session is not
	// idle. It is no parameter of the connection, which poolers may refuse.
	probe = `SET tcp_keepalives_idle = 4; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000`
)

// postgresDB is a PostgreSQL database, which several replicas can share.
type postgresDB struct {
	pool   *pgxpool.Pool
	db     *sql.DB // uses pool
	writer writer
	health *health
	bell   *bell
	stop   context.CancelFunc

	patience time.Duration // how long a write is retried
}

// parsePostgres returns the configuration of the connections to a store. The error has no password.
func parsePostgres(url string) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the store's URL is not understood; use postgres://USER:PASSWORD@HOST:PORT/DATABASE: %w", scrub(err))
	}
	return pc, nil
}

// openPostgres connects, and checks that acknowledged writes are durable.
func openPostgres(ctx context.Context, url string, cfg Config) (_ *postgresDB, err error) {
	pc, err := parsePostgres(url)
	if err != nil {
		return nil, err
	}
	configurePool(pc)
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", scrub(err))
	}
	d := &postgresDB{pool: pool, db: stdlib.OpenDBFromPool(pool), health: newHealth(), patience: retryFor}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.db.Close())
			pool.Close()
		}
	}()
	if err := d.checkDurable(ctx); err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, d.db, goose.DialectPostgres, goose.WithSessionLocker(locker)); err != nil {
		return nil, scrub(err)
	}
	var sctx context.Context
	sctx, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.writer = writer{ctx: sctx, write: d.write, metrics: cfg.Metrics}
	d.bell, err = newBell(sctx, pc.ConnConfig, cfg)
	return d, err
}

// probed sets how soon the database notices that the peer of a new connection is gone. A database that
// does not know the settings keeps its own.
func probed(ctx context.Context, c *pgx.Conn) error {
	_, err := c.PgConn().Exec(ctx, probe).ReadAll()
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return nil
	}
	return err
}

// checkDurable returns an error if the database cannot be reached or does not make acknowledged writes
// durable.
func (d *postgresDB) checkDurable(ctx context.Context) error {
	var fsync string
	if err := d.pool.QueryRow(ctx, `SHOW fsync`).Scan(&fsync); err != nil {
		return explainPostgres(err)
	}
	if fsync != "on" {
		return errors.New("the database runs with fsync=off, so what it acknowledges can be lost; set fsync=on in its configuration")
	}
	return nil
}

// configurePool sets how the connections of a server work.
func configurePool(pc *pgxpool.Config) {
	pc.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	pc.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = idleFor
	pc.ConnConfig.RuntimeParams["application_name"] = applicationName
	pc.ConnConfig.ConnectTimeout = connectWait
	pc.MaxConns = max(pc.MaxConns, 16)
	pc.AfterConnect = probed
}

// applicationName is how the connections of servers are named in PostgreSQL.
const applicationName = "team-server"

// explainPostgres says what to do about an error of the first query.
func explainPostgres(err error) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return fmt.Errorf("the database refuses the connection: %s; check user, password and name of the database", pe.Message)
	}
	return fmt.Errorf("the database is not reached; check that it runs and that the URL is right: %w", scrub(err))
}

// scrub returns an error without the URL, which may hold a password.
func scrub(err error) error {
	var p *pgconn.ParseConfigError
	if errors.As(err, &p) {
		return errors.New("it cannot be parsed")
	}
	return err
}

func (d *postgresDB) Reader() Querier                     { return pgReader{pgQuerier{d.db}, d} }
func (d *postgresDB) Tell(root, audience string)          { d.bell.ring(change{root, audience}) }
func (d *postgresDB) listen(heard func(topics ...string)) { d.bell.start(heard) }
func (d *postgresDB) state() *health                      { return d.health }

// dialect implements Engine.
func (d *postgresDB) dialect() Dialect {
	return Dialect{Lock: " FOR UPDATE", Skip: " FOR UPDATE SKIP LOCKED", Binary: "BYTEA"}
}

// check implements Engine.
func (d *postgresDB) check(ctx context.Context) { _ = d.checkSchema(ctx) } // tried again with the next tick

// time implements Engine.
func (d *postgresDB) time(ctx context.Context) (time.Time, error) {
	var t time.Time
	start := time.Now()
	err := d.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&t)
	if err != nil && passing(err) {
		d.judge(ctx, err, start) // a heartbeat asks for the time before it writes
	}
	return t, err
}

// Add queues a change. A change with a plan gets a transaction of its own, because the database
// groups commits by itself.
func (d *postgresDB) Add(s Source) error { return d.writer.add(s) }

// Do implements Engine.
func (d *postgresDB) Do(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	return d.Statement(ctx, func(ctx context.Context, _ Querier) error {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(ctx, pgQuerier{tx}); err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	})
}

// Statement implements Engine.
func (d *postgresDB) Statement(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	err := d.persist(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, planFor)
		defer cancel()
		return f(ctx, pgQuerier{d.db})
	})
	return Answer(err)
}

// write writes a group: plain statements in one round trip, and each plan in a transaction of its
// own. Rows are locked in the order of their run ids, so that replicas do not deadlock. left are
// the changes that failed as a group, and that the writer tries one by one.
func (d *postgresDB) write(ctx context.Context, ops []*Op) (left []*Op, err error) {
	var plain []*Op
	for _, o := range ops {
		if o.Plan == nil {
			plain = append(plain, o)
			continue
		}
		d.writer.work.Go(func() {
			_ = o.Done(ctx, d.Reader(), d.Do(ctx, o.Plan)) // the caller gets the error from done
		})
	}
	if len(plain) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(plain, func(a, b *Op) int { return strings.Compare(a.Root, b.Root) })
	tries := 0
	err = d.persist(ctx, func() error {
		for _, o := range plain {
			o.Again = o.Again || tries > 0
		}
		tries++
		return d.batch(ctx, plain)
	})
	if err != nil && !errors.Is(err, runs.ErrStorage) {
		return plain, err
	}
	for _, o := range plain { // if the database cannot be reached, trying them one by one does not help
		_ = o.Done(ctx, d.Reader(), err) // the caller gets the error from done
	}
	return nil, nil
}

// batch sends all statements at once, as one transaction.
func (d *postgresDB) batch(ctx context.Context, ops []*Op) (err error) {
	b := &pgx.Batch{}
	for _, o := range ops {
		for _, s := range o.Stmts {
			b.Queue(s.Text, s.Args...)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, groupFor)
	defer cancel()
	r := d.pool.SendBatch(ctx, b)
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, o := range ops {
		o.Affected = o.Affected[:0]
		for range o.Stmts {
			tag, err := r.Exec()
			if err != nil {
				return err
			}
			o.Affected = append(o.Affected, tag.RowsAffected())
		}
	}
	return nil
}

// persist is like retry, for writes. The result of the latest write determines whether the store is
// ready.
func (d *postgresDB) persist(ctx context.Context, try func() error) error {
	var last error
	start := time.Now()
	err := d.retry(ctx, d.patience, func() error {
		if last = try(); time.Since(start) > notice {
			d.judge(ctx, last, start)
		}
		return last
	})
	d.judge(ctx, last, start)
	return err
}

// judge records the result of a write that began at start. err is the error of its last attempt. It
// ignores errors that only mean that the caller had no time left.
func (d *postgresDB) judge(ctx context.Context, err error, start time.Time) {
	hasty := ctx.Err() != nil && time.Since(start) < time.Second && errors.Is(err, context.DeadlineExceeded)
	switch {
	case hasty, errors.Is(err, context.Canceled):
	case err != nil && !refused(err) && passing(err):
		d.health.wrote(fmt.Errorf("%w: %w", runs.ErrStorage, err))
		d.pool.Reset() // other connections may be lost, too
	default:
		d.health.wrote(nil)
	}
}

// reading is like retry, for reads. It retries for a shorter time, and not at all while the
// database is known to be unavailable.
func (d *postgresDB) reading(ctx context.Context, try func() error) error {
	patience := readFor
	if d.health.problem() != nil {
		patience = 0
	}
	return d.retry(ctx, patience, try)
}

// retry repeats try while the database cannot be reached or asks for a retry, for at most patience;
// then the error is runs.ErrStorage. try must itself find out whether an earlier attempt with a lost
// reply has succeeded.
func (d *postgresDB) retry(ctx context.Context, patience time.Duration, try func() error) error {
	start := time.Now()
	for {
		err := try()
		switch {
		case err == nil, refused(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !passing(err):
			return d.explain(ctx, err)
		case time.Since(start) > patience:
			return fmt.Errorf("%w: %w", runs.ErrStorage, err)
		}
		d.pool.Reset() // other connections in the pool are likely lost, too
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// explain returns err, or the permanent error of the store if the database has refused a statement because a
// program with a later schema has changed the tables.
func (d *postgresDB) explain(ctx context.Context, err error) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		_ = d.checkSchema(ctx) // err tells as much as its own failure
	}
	return cmp.Or(d.health.latched(), err)
}

// checkSchema latches the error for a store whose schema a newer program has changed so that this one must
// not use it. Another error is that of a query.
func (d *postgresDB) checkSchema(ctx context.Context) error {
	known, err := knownSchema()
	if err != nil {
		return err
	}
	var have int64
	var oldest []byte
	err = d.db.QueryRowContext(ctx, `SELECT (SELECT max(version_id) FROM goose_db_version), (SELECT value FROM setting WHERE name = $1)`, oldestSetting).Scan(&have, &oldest)
	if err != nil {
		return err
	}
	if err := checkOldest(have, known, oldest); err != nil {
		return d.health.latch(err)
	}
	return nil
}

// passing reports whether an error may not occur in the next attempt: an error of the connection,
// of the state of the server, or a conflict between transactions.
func passing(err error) bool {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		switch {
		case strings.HasPrefix(pe.Code, "08"), strings.HasPrefix(pe.Code, "57P"), strings.HasPrefix(pe.Code, "53"), // connection, shutdown, resources
			pe.Code == "40001", pe.Code == "40P01", pe.Code == "25006", pe.Code == "25P03", pe.Code == "55P03": // conflicts; a standby; too slow
			return true
		}
		return false
	}
	var ne net.Error
	return errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, sql.ErrConnDone)
}

// close implements Engine. It first writes what is queued.
func (d *postgresDB) close() error {
	d.writer.close()
	d.stop()
	d.bell.work.Wait()
	err := d.db.Close()
	d.pool.Close()
	return err
}

// pgQuerier runs statements on the pool or in a transaction. pgx prepares the statements.
type pgQuerier struct {
	on interface {
		ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
	}
}

func (q pgQuerier) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	r, err := q.on.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (q pgQuerier) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return q.on.QueryContext(ctx, text, args...)
}

func (q pgQuerier) Again(_ context.Context, f func() error) error { return f() }

func (q pgQuerier) Scan(ctx context.Context, dest []any, text string, args ...any) error {
	return damaged(q.on.QueryRowContext(ctx, text, args...).Scan(dest...))
}

// pgReader is a Querier for reads, which retries them if the connection turns out to be lost.
type pgReader struct {
	pgQuerier
	d *postgresDB
}

func (r pgReader) Again(ctx context.Context, f func() error) error { return r.d.reading(ctx, f) }

func (r pgReader) Scan(ctx context.Context, dest []any, text string, args ...any) error {
	return r.d.reading(ctx, func() error { return r.pgQuerier.Scan(ctx, dest, text, args...) })
}
