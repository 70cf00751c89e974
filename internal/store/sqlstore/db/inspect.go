package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/secret"
)

// Level says how serious a Finding is.
type Level int

// The levels of findings.
const (
	OK Level = iota
	Warning
	Failed
)

// Finding is the result of one check of a store.
type Finding struct {
	// Name is what was checked.
	Name  string
	Level Level
	// Text is what was found, and Do what to do about it; Do is "" if nothing.
	Text, Do string
}

// Inspection configures Inspect. URL is required.
type Inspection struct {
	// URL is the store, and Listen that for LISTEN, see Config.Listen.
	URL    string
	Listen secret.Secret
	// Keys are those of the server, see Config.Keys.
	Keys []secret.Key
	// Temporal reports whether Temporal schedules the runs of the server.
	Temporal bool
	// Clock returns the time of this machine; nil means time.Now.
	Clock func() time.Time
	// Disk returns the bytes that are free for the user on the disk of a folder, and the name of its file
	// system if that is not local; nil means that of the operating system.
	Disk func(folder string) (free uint64, remote string, err error)
}

// The bounds of findings: how far the clock of a store may be from that of this machine, and how much of the
// disk of a SQLite store must be free, in bytes.
const (
	skewWarning, skewFailed = 2 * time.Second, 30 * time.Second
	freeWarning, freeFailed = 1 << 30, 100 << 20
)

// inspector collects findings.
type inspector struct {
	Inspection
	found []Finding
}

// Inspect checks a store as a server would find it, and changes nothing. A server may use the store meanwhile.
// Texts have no passwords.
func Inspect(ctx context.Context, c Inspection) []Finding {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Disk == nil {
		c.Disk = diskOf
	}
	i := &inspector{Inspection: c}
	if file, ok := strings.CutPrefix(c.URL, store.SQLite); ok {
		i.sqlite(ctx, file)
	} else {
		i.postgres(ctx)
	}
	for n, f := range i.found {
		i.found[n].Text = strings.Join(strings.Fields(store.Conceal(store.Conceal(f.Text, c.URL), c.Listen.Reveal())), " ")
	}
	return i.found
}

func (i *inspector) add(level Level, name, do, format string, args ...any) {
	i.found = append(i.found, Finding{Name: name, Level: level, Text: fmt.Sprintf(format, args...), Do: do})
}

// sqlite checks a SQLite store.
func (i *inspector) sqlite(ctx context.Context, file string) {
	if err := checkName(file); err != nil {
		i.add(Failed, "store", "correct server.store or --store", "%s", err)
		return
	}
	i.folder(filepath.Dir(file))
	if !exists(file) {
		i.add(OK, "store", "", "%s does not exist; a server will make the store", file)
		return
	}
	db, err := openRead(ctx, file, !exists(file+"-wal"))
	switch {
	case errors.Is(err, errNoStore):
		i.add(OK, "store", "", "%s is empty; a server will make the store", file)
		return
	case err != nil:
		i.add(Failed, "store", "", "%s", err) // the error says what to do
		return
	}
	defer db.Close() //nolint:errcheck // only read
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 && permissions {
		i.add(Warning, "store permissions", makePrivate(file), "%s has mode %#o: other users of this machine can open it", file, info.Mode().Perm())
	}
	i.add(OK, "store", "", "%s can be read", file)
	i.content(ctx, db)
}

// folder checks the folder of a SQLite store and its disk.
func (i *inspector) folder(folder string) {
	for !exists(folder) && filepath.Dir(folder) != folder {
		folder = filepath.Dir(folder) // a server makes folders that do not exist
	}
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		i.add(Failed, "store folder", "check the path", "%s", err)
		return
	case !info.IsDir():
		i.add(Failed, "store folder", "name a file in a folder", "%s is not a folder", folder)
		return
	case !writable(folder):
		i.add(Failed, "store folder", "let the user of the server write to it", "%s cannot be written", folder)
	default:
		i.add(OK, "store folder", "", "%s can be written", folder)
	}
	free, remote, err := i.Disk(folder)
	const space = "disk space"
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		i.add(Warning, space, "check it yourself", "the free space of %s is unknown: %s", folder, err)
	case free < freeFailed:
		i.add(Failed, space, "free at least 1 GiB", "%d MiB are free on the disk of %s; on a full disk all writes are refused", free>>20, folder)
	case free < freeWarning:
		i.add(Warning, space, "free at least 1 GiB", "%d MiB are free on the disk of %s", free>>20, folder)
	default:
		i.add(OK, space, "", "%d GiB are free on the disk of %s", free>>30, folder)
	}
	if remote != "" {
		i.add(Warning, "disk", "put the file on a local disk, or use PostgreSQL", "%s is on a file system of type %s, whose locks and syncs may not be reliable", folder, remote)
	}
}

// content checks the schema and the keys of a store.
func (i *inspector) content(ctx context.Context, db *sql.DB) {
	known, err := knownSchema()
	var have int64
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT max(version_id) FROM goose_db_version`).Scan(&have)
	}
	switch {
	case err != nil:
		i.add(Failed, "store schema", "check the database", "the version of the schema cannot be read: %s", scrub(err))
		return
	case have < known:
		i.add(Warning, "store schema", "make a backup, and read the changelog about earlier versions that share the store", "the schema is %d; the next start of this version updates it to %d", have, known)
	case have > known && checkNewer(ctx, db, have, known) != nil:
		i.add(Failed, "store schema", "use the newer version of team-server", "the schema is %d, and this version knows %d", have, known)
		return
	case have > known:
		i.add(Warning, "store schema", "use the newer version of team-server", "the schema is %d; this version knows %d, and may use it", have, known)
	default:
		i.add(OK, "store schema", "", "the schema is %d, as in this version", have)
	}
	i.encryption(ctx, db)
	i.engine(ctx, db)
	i.backlog(ctx, db)
}

// engine checks the engine of the configuration against that of the store, which SQLite stores do not record.
func (i *inspector) engine(ctx context.Context, db *sql.DB) {
	kind := engine.StoreEngine
	if i.Temporal {
		kind = engine.TemporalEngine
	}
	used, err := setting(ctx, pgQuerier{db}, "engine")
	if err == nil && string(used) != kind {
		i.add(Failed, "store engine", UseEngine(string(used), kind), "the engine %q drives the runs of the store, not %q", used, kind)
	}
}

// late is how long after it was due a run counts as waiting for a server.
const late = time.Minute

// backlog checks that servers drive what is due, unless no server shares the store at present.
func (i *inspector) backlog(ctx context.Context, db *sql.DB) {
	now := i.Clock()
	var servers, waiting int64
	err := db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM replica WHERE expires > $1), (SELECT count(*) FROM (SELECT 1 FROM run WHERE due <= $2 LIMIT $3) AS d)`,
		now.UnixMilli(), now.Add(-late).UnixMilli(), engine.MaxBacklog).Scan(&servers, &waiting)
	switch {
	case err != nil:
		i.add(Failed, "store backlog", "check the database", "what waits cannot be read: %s", scrub(err))
	case servers > 0 && waiting > 0:
		i.add(Warning, "store backlog", "start servers with --role worker or all, unless the tasks wait for limits of their accounts", "%d tasks have been due for more than %v, and the servers that share the store, %d, do not drive them", waiting, late, servers)
	}
}

// encryption checks the keys of the configuration against those of the store.
func (i *inspector) encryption(ctx context.Context, db *sql.DB) {
	q := pgQuerier{db}
	stored, err := setting(ctx, q, storedKey)
	if errors.Is(err, sql.ErrNoRows) {
		return // no server has been started with the store
	}
	var ring *keyring
	if err == nil {
		ring, err = newKeyring(stored, i.Keys)
	}
	var known map[string][]byte
	if err == nil {
		known, err = RegisteredKeys(ctx, q)
	}
	if err == nil {
		err = ring.check(known)
	}
	switch {
	case err != nil:
		i.add(Failed, "encryption keys", "correct server.encryption.keys", "%s", scrub(err))
	case len(i.Keys) == 0:
		i.add(OK, "encryption keys", "", "none; the key of the store's secrets is in the store")
	case known[i.Keys[0].ID] == nil:
		i.add(OK, "encryption keys", "", "nothing in the store is encrypted under %q yet; servers encrypt with it", i.Keys[0].ID)
	default:
		i.add(OK, "encryption keys", "", "the keys fit the store")
	}
}

// postgres checks a database.
func (i *inspector) postgres(ctx context.Context) {
	pc, err := parsePostgres(i.URL)
	if err != nil {
		i.add(Failed, "store", "correct server.store or --store", "%s", err)
		return
	}
	configurePool(pc)
	servers := int(pc.MaxConns) + 2 // and one to send and one to receive notifications
	pc.MaxConns, pc.MinConns = 4, 0
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		i.add(Failed, "store", "correct server.store or --store", "%s", scrub(err))
		return
	}
	defer pool.Close()
	var version string
	if err := pool.QueryRow(ctx, `SHOW server_version`).Scan(&version); err != nil {
		i.add(Failed, "store", "", "%s", explainPostgres(err)) // which says what to do
		return
	}
	i.add(OK, "store", "", "PostgreSQL %s answers", version)
	for _, check := range []struct {
		name string
		run  func(context.Context, *pgxpool.Pool) error
	}{
		{"store settings", i.settings}, {"store role", i.role}, {"store clock", i.clock},
		{"store connections", func(ctx context.Context, p *pgxpool.Pool) error { return i.connections(ctx, p, servers) }},
		{"store statements", i.statements}, {"store notifications", i.listen},
	} {
		if err := check.run(ctx, pool); err != nil {
			i.add(Failed, check.name, "check the database and what is between it and the server", "%s", scrub(err))
		}
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() //nolint:errcheck // only read
	var ours bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL`).Scan(&ours); err == nil && !ours {
		i.add(OK, "store schema", "", "the database is empty; a server will make the schema")
		return
	}
	i.content(ctx, db)
}

// settings checks the settings of a database on which durability depends.
func (i *inspector) settings(ctx context.Context, p *pgxpool.Pool) error {
	var fsync, pages, isolation, readOnly string
	var standby bool
	err := p.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('default_transaction_isolation'),
current_setting('transaction_read_only'), pg_is_in_recovery()`).Scan(&fsync, &pages, &isolation, &readOnly, &standby)
	if err != nil {
		return err
	}
	before := len(i.found)
	const name = "store settings"
	if fsync != "on" {
		i.add(Failed, name, "set fsync=on", "fsync is %s, so what the database acknowledges can be lost; servers refuse it", fsync)
	}
	if standby || readOnly == "on" {
		i.add(Failed, name, "use the URL of the primary", "the database accepts no writes")
	}
	if pages != "on" {
		i.add(Warning, name, "set full_page_writes=on", "full_page_writes is %s, so a crash can damage the database", pages)
	}
	if isolation != "read committed" {
		i.add(Warning, name, "set default_transaction_isolation of the role to 'read committed'", "the default isolation is %s; conflicts cost repeated transactions", isolation)
	}
	if len(i.found) == before {
		i.add(OK, name, "", "fsync and full_page_writes are on; servers set synchronous_commit=on for their connections")
	}
	return nil
}

// role checks what the role may do.
func (i *inspector) role(ctx context.Context, p *pgxpool.Pool) error {
	var schema *string
	var create, lacks bool
	err := p.QueryRow(ctx, `SELECT current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename IN ('task', 'run', 'event', 'setting')
AND NOT has_table_privilege(quote_ident(schemaname) || '.' || quote_ident(tablename), 'SELECT, INSERT, UPDATE, DELETE'))`).Scan(&schema, &create, &lacks)
	switch {
	case err != nil:
		return err
	case schema == nil:
		i.add(Failed, "store role", "create the schema, or set search_path of the role", "no schema of the search path exists")
	case lacks:
		i.add(Failed, "store role", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES to it", "the role may not read and write the tables of the store")
	case !create:
		i.add(Failed, "store role", "GRANT CREATE ON SCHEMA to it", "the role may not create tables in the schema %s, which the schema of the store needs", *schema)
	default:
		i.add(OK, "store role", "", "the role may create, read and write tables in the schema %s", *schema)
	}
	return nil
}

// clock compares the clock of a database with that of this machine.
func (i *inspector) clock(ctx context.Context, p *pgxpool.Pool) error {
	var theirs time.Time
	sent := i.Clock()
	if err := p.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
		return err
	}
	took := i.Clock().Sub(sent)
	off := theirs.Sub(sent.Add(took/2)).Abs() - took/2
	const do = "synchronize both clocks, for example with NTP"
	switch {
	case off > skewFailed:
		i.add(Failed, "clock", do, "the clock of this machine is %s off that of the database; at most %s are expected, because tokens and certificates are checked by one and leases by the other", off.Round(time.Second), skewWarning)
	case off > skewWarning:
		i.add(Warning, "clock", do, "the clock of this machine is %s off that of the database; at most %s are expected", off.Round(100*time.Millisecond), skewWarning)
	default:
		i.add(OK, "clock", "", "the clocks of this machine and of the database differ by less than %s", skewWarning)
	}
	return nil
}

// connections compares the connections that a server opens with those that are left.
func (i *inspector) connections(ctx context.Context, p *pgxpool.Pool, needs int) error {
	var limit, reserved, used int
	var text string
	err := p.QueryRow(ctx, `SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections'),
(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> $1)`, applicationName).Scan(&limit, &text, &used)
	if err != nil {
		return err
	}
	if reserved, err = strconv.Atoi(text); err != nil {
		return err
	}
	left := limit - reserved - used
	switch {
	case left < needs:
		i.add(Warning, "store connections", "raise max_connections, or lower pool_max_conns in the URL, which is at least 16", "a server opens up to %d connections, and %d of %d are left for all servers", needs, max(left, 0), limit)
	default:
		i.add(OK, "store connections", "", "a server opens up to %d connections, and there is room for %d servers", needs, left/needs)
	}
	return nil
}

// statements checks that prepared statements are still there in the next transaction, which is not so behind some
// poolers.
func (i *inspector) statements(ctx context.Context, p *pgxpool.Pool) error {
	for range 3 {
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() {
				errs <- pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
					var n int
					return tx.QueryRow(ctx, `SELECT $1::int + 1`, 1).Scan(&n)
				})
			}()
		}
		var err error
		for range cap(errs) {
			err = errors.Join(err, <-errs)
		}
		if err != nil {
			i.add(Failed, "store statements", "let the pooler support prepared statements (max_prepared_statements of PgBouncer), or connect without it", "prepared statements fail: %s", scrub(err))
			return nil
		}
	}
	i.add(OK, "store statements", "", "prepared statements work")
	return nil
}

// listenWait is how long a notification is waited for.
const listenWait = 3 * time.Second

// listen sends a notification to itself, on a channel of its own.
func (i *inspector) listen(ctx context.Context, p *pgxpool.Pool) error {
	to := p.Config().ConnConfig
	if !i.Listen.IsZero() {
		var err error
		if to, err = pgx.ParseConfig(i.Listen.Reveal()); err != nil {
			i.add(Failed, "store notifications", "correct server.store_listen", "the URL for LISTEN is not understood")
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, listenWait)
	defer cancel()
	err := i.notified(ctx, p, to)
	if err != nil {
		do := "set server.store_listen to a URL of the database without the pooler"
		if !i.Listen.IsZero() {
			do = "correct server.store_listen: it must lead to the same database, without a pooler"
		}
		i.add(Warning, "store notifications", do, "no notification has arrived, so that servers learn of each other's changes up to a second late: %s", scrub(err))
		return nil
	}
	i.add(OK, "store notifications", "", "LISTEN receives what the store sends")
	return nil
}

// notified listens at one address, and returns when it has received what was sent through the pool.
func (i *inspector) notified(ctx context.Context, p *pgxpool.Pool, to *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, to.Copy())
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	name := "team_server_check_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := conn.Exec(ctx, `LISTEN `+name); err != nil {
		return err
	}
	if _, err := p.Exec(ctx, `SELECT pg_notify($1, '')`, name); err != nil {
		return err
	}
	_, err = conn.WaitForNotification(ctx)
	return err
}
