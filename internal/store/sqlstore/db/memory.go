package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/agentteams/team-server/internal/metrics"
)

// openMemory opens an empty database in memory. All statements use its only connection: groups and readers take turns.
func openMemory(ctx context.Context, measure *metrics.Store, grown chan struct{}) (*sqliteDB, error) {
	ctx = context.WithoutCancel(ctx)
	pool, err := sql.Open("sqlite", "file::memory:?_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	d := &sqliteDB{inMemory: true, health: newHealth(), writePool: pool, stop: func() {}, grown: grown}
	d.writer = writer{ctx: ctx, write: d.write, metrics: measure}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a database in memory: %w", err)
	}
	d.writes = &statements{on: conn}
	files, err := migrations.ReadDir("migrations")
	for _, f := range files {
		var text []byte
		if text, err = fs.ReadFile(migrations, "migrations/"+f.Name()); err != nil {
			break
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		if _, err = conn.ExecContext(ctx, up); err != nil {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the schema of a database in memory: %w", err), d.disconnect())
	}
	return d, nil
}

// Reader implements Engine.
func (d *sqliteDB) Reader() Querier {
	if d.inMemory {
		return turns{d.writes, &d.turn}
	}
	return d.reads
}

// turns reads on the connection that also writes, between its transactions. No read waits for anything else, so that
// it needs no context.
type turns struct {
	*statements
	turn *sync.Mutex
}

func (t turns) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return t.statements.Query(context.WithoutCancel(ctx), text, args...)
}

func (t turns) Again(_ context.Context, read func() error) error {
	t.turn.Lock()
	defer t.turn.Unlock()
	return read()
}

func (t turns) Scan(ctx context.Context, dest []any, text string, args ...any) error {
	t.turn.Lock()
	defer t.turn.Unlock()
	return t.statements.Scan(context.WithoutCancel(ctx), dest, text, args...)
}
