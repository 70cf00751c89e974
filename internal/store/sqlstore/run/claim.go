package run

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

// claim is a claim of runs in a transaction.
type claim struct {
	*outlook
	s       *Runs
	q       db.Querier
	replica string
	room    *engine.Room     // what is left
	owners  map[string][]any // of the due runs, if these are not few
	left    map[string]int   // how many more runs may be claimed of owners for which that is limited
	taken   []*journal
	over    map[string]int // how many of taken belonged to each replica whose lease has expired
}

// obeys is an SQL expression that is true if the replica $1 has applied the current halts. Other replicas claim no
// runs, because they could begin calls that the halts cover.
const obeys = `(SELECT version FROM halt_version) <= COALESCE((SELECT halts FROM replica WHERE id = $1), 0)`

// abandonedOwners selects the owners of runs that replicas hold whose lease has expired, with their lowest epochs.
const abandonedOwners = `SELECT owner, min(epoch) FROM run WHERE holder <> $2
AND holder NOT IN (SELECT id FROM replica WHERE expires > $1) GROUP BY owner`

// run claims the runs. If those that are due are few and none is abandoned, it consists of one statement.
func (c *claim) run(ctx context.Context) error {
	if c.outlook.due <= c.few {
		where := `due <= $3`
		if !c.s.db.Single {
			where += ` AND ` + obeys
		}
		err := c.take(ctx, `SELECT id FROM run WHERE `+where+` ORDER BY due LIMIT $2`+c.s.db.Skip, c.few, c.now)
		if err != nil || !c.outlook.abandoned {
			return err
		}
	}
	if !c.s.db.Single {
		may, err := db.Value[bool](ctx, c.q, `SELECT `+obeys, c.replica)
		if err != nil || !may {
			return err
		}
	}
	if c.outlook.due > c.few {
		if err := c.due(ctx); err != nil {
			return err
		}
	}
	if !c.outlook.abandoned || c.room.Free() == 0 {
		return nil
	}
	return c.abandoned(ctx)
}

// due claims runs that are due, in the shares of their accounts.
func (c *claim) due(ctx context.Context) error {
	most, err := c.limits(ctx, c.owners)
	if err != nil {
		return err
	}
	return c.share(ctx, c.owners, most, func(who []any, n int) error {
		who = padded(who)
		args := make([]any, 0, 1+2*len(who))
		args = append(args, c.now)
		for _, owner := range who {
			args = append(args, owner, c.mostOf(owner, n))
		}
		return c.take(ctx, dueOf(len(who), 2, `id, due`, ``, c.s.db.Skip), n, args...)
	})
}

// mostOf returns how many of n runs may be claimed of an owner.
func (c *claim) mostOf(owner any, n int) int64 {
	name, _ := owner.(string)
	if left, limited := c.left[name]; limited {
		n = min(n, left)
	}
	return int64(n)
}

// dueOf selects columns, of which due is one, of the runs of a number of owners that have been due longest. The arguments
// are, from $first, the number of runs, the time, and each owner with the number of its runs at most. It reads as
// many entries of the index for each owner, however many of its runs are due. condition
// is a further one that begins with AND, and skip the clause that leaves out locked rows; both may be empty.
func dueOf(owners, first int, columns, condition, skip string) string {
	arg := func(n int) string { return `$` + strconv.Itoa(first+n) }
	var b strings.Builder
	b.WriteString(`SELECT ` + columns + ` FROM (`)
	for i := range owners {
		if i > 0 {
			b.WriteString(` UNION ALL `)
		}
		b.WriteString(`SELECT ` + columns + ` FROM (SELECT ` + columns + ` FROM run WHERE due <= ` + arg(1) + ` AND owner = ` + arg(2+2*i) + condition + ` ORDER BY due LIMIT ` + arg(3+2*i) + skip + `) AS o` + strconv.Itoa(i))
	}
	b.WriteString(`) AS d ORDER BY due LIMIT ` + arg(0))
	return b.String()
}

// abandoned claims runs of replicas whose lease has expired.
func (c *claim) abandoned(ctx context.Context) error {
	const of = `SELECT id, holder FROM run WHERE holder <> $1 AND holder NOT IN (SELECT id FROM replica WHERE expires > $3)`
	owners, err := owners(ctx, c.q, abandonedOwners, c.now, c.replica)
	if err != nil || len(owners) == 0 {
		return err
	}
	most := map[string]int{}
	for account := range owners {
		most[account] = unlimited // they count as running already
	}
	c.left, c.over = nil, map[string]int{}
	return c.share(ctx, owners, most, func(who []any, n int) error {
		who = padded(who)
		return c.takeFrom(ctx, `(SELECT c.holder FROM c WHERE c.id = run.id)`,
			of+` AND owner IN (`+db.Numbered(4, len(who))+`) LIMIT $2`+c.s.db.Skip, n, append([]any{c.now}, who...)...)
	})
}

// dueOwners returns the owners of due runs, each with the time at which its first one was due. It looks
// up one entry of the index for each owner, however many runs are due.
const dueOwners = `WITH RECURSIVE o (owner) AS (
  SELECT min(owner) FROM run WHERE due IS NOT NULL
  UNION ALL SELECT (SELECT min(owner) FROM run WHERE due IS NOT NULL AND owner > o.owner) FROM o WHERE o.owner IS NOT NULL
), f (owner, first) AS (
  SELECT o.owner, (SELECT min(due) FROM run WHERE due IS NOT NULL AND run.owner = o.owner) FROM o WHERE o.owner IS NOT NULL
) SELECT owner, first FROM f WHERE first <= $1`

// owners returns the owners that a query selects with a number, by account. Those of an account are
// ordered by the number, the lowest first.
func owners(ctx context.Context, q db.Querier, query string, args ...any) (map[string][]any, error) {
	type owner struct {
		name  string
		first int64
	}
	all, err := db.Rows(ctx, q, func(o *owner) []any { return []any{&o.name, &o.first} }, query, args...)
	slices.SortFunc(all, func(a, b owner) int { return cmp.Compare(a.first, b.first) })
	by := map[string][]any{}
	for _, o := range all {
		account := identity.AccountOf(o.name)
		by[account] = append(by[account], o.name)
	}
	return by, err
}

// share claims runs of accounts as the room says, and at most so many as most has for the account. take
// claims up to n runs of some owners.
func (c *claim) share(ctx context.Context, owners map[string][]any, most map[string]int, take func(who []any, n int) error) error {
	for {
		parts := c.room.Divide(most)
		if len(parts) == 0 {
			c.room.Waiting = c.room.Waiting || len(most) > 0
			return nil
		}
		for account, n := range parts {
			n = min(n, mostOwners)
			before := len(c.taken)
			if who := c.first(owners[account], n); len(who) > 0 {
				if err := take(who, n); err != nil {
					return err
				}
			}
			got := len(c.taken) - before
			if most[account] -= got; got < n { // there are no more, or other replicas have them
				delete(most, account)
			}
		}
	}
}

// first returns up to n owners of which runs may be claimed, those with the oldest due runs first. The n oldest runs
// that may be claimed belong to them.
func (c *claim) first(owners []any, n int) []any {
	var who []any
	for _, owner := range owners {
		if len(who) == n {
			break
		}
		if c.mostOf(owner, 1) > 0 {
			who = append(who, owner)
		}
	}
	return who
}

// mostOwners is the number of owners of a statement at most.
const mostOwners = 256

// padded returns a number of owners for which there is a statement: 1, 8, 64 or mostOwners. NULL is the
// owner of no run.
func padded(owners []any) []any {
	size := 1
	for size < len(owners) {
		size = min(8*size, mostOwners)
	}
	return append(slices.Clone(owners), make([]any, size-len(owners))...)
}

// unlimited is more than the slots of a replica.
const unlimited = 1 << 30

// limits returns how many runs of each account may be claimed, and sets left, which depend on those that
// all replicas drive.
func (c *claim) limits(ctx context.Context, owners map[string][]any) (map[string]int, error) {
	most, limited := map[string]int{}, false
	for account := range owners {
		most[account] = unlimited
		limited = limited || c.room.LimitedIn(account)
	}
	if !limited {
		return most, nil
	}
	if err := admin.LockVersion(ctx, c.q, c.s.db); err != nil {
		return nil, err
	}
	running, ofOwner := map[string]int{}, map[string]int{}
	err := db.Each(ctx, c.q, func() { clear(running); clear(ofOwner) }, func(r *sql.Rows) error {
		var owner string
		var n int
		err := r.Scan(&owner, &n)
		running[identity.AccountOf(owner)] += n
		ofOwner[owner] = n
		return err
	}, runningOf)
	for account := range most {
		if limit := c.room.MaxRunning(account); limit > 0 {
			most[account] = max(limit-running[account], 0)
		}
		if limit := c.room.MaxRunningEach(account); limit > 0 {
			c.limitEach(owners[account], limit, ofOwner)
		}
	}
	return most, err
}

// runningOf counts the runs that all replicas drive, by owner.
const runningOf = `SELECT owner, count(*) FROM run WHERE holder IS NOT NULL GROUP BY owner`

// limitEach sets how many more runs of each owner may be claimed.
func (c *claim) limitEach(owners []any, limit int, running map[string]int) {
	if c.left == nil {
		c.left = map[string]int{}
	}
	for _, owner := range owners {
		name, _ := owner.(string)
		c.left[name] = max(limit-running[name], 0)
		c.room.Waiting = c.room.Waiting || c.left[name] == 0
	}
}

// take claims up to limit runs that no replica has, those whose ids a query selects, whose arguments begin at $3.
func (c *claim) take(ctx context.Context, query string, limit int, args ...any) error {
	return c.takeFrom(ctx, `NULL`, query, limit, args...)
}

// takeFrom is take for runs of other replicas, whose names the expression holder selects.
func (c *claim) takeFrom(ctx context.Context, holder, query string, limit int, args ...any) error {
	before := len(c.taken)
	err := db.Each(ctx, c.q, func() { c.taken = c.taken[:before] }, func(r *sql.Rows) error {
		j := &journal{s: c.s, wake: make(chan struct{}, 1), named: map[int64]bool{}}
		j.view.turn = make(chan struct{}, 1)
		var sum sql.NullInt64
		var first []byte
		if err := r.Scan(&j.root, &j.owner, &j.epoch, &j.seq, &j.bytes, &j.pushed, &j.inputs, &sum, &first, &j.former); err != nil {
			return err
		}
		j.durable, j.unread = j.seq, j.inputs > 0
		j.view.fold = project.New(j.root, "")
		j.begin(sum.Int64, first)
		c.taken = append(c.taken, j)
		return nil
	}, `WITH c AS MATERIALIZED (`+query+`)
UPDATE run SET holder = $1, epoch = epoch + 1, due = NULL, told = NULL, parked = NULL WHERE id IN (SELECT id FROM c)
RETURNING id, owner, epoch, seq, bytes, push, inputs, `+firstOf("sum")+`, `+firstOf("body")+`, `+holder, append([]any{c.replica, int64(limit)}, args...)...)
	for _, j := range c.taken[before:] {
		c.room.Take(j.owner)
		if j.former.Valid {
			c.over[j.former.String]++
		}
		if _, limited := c.left[j.owner]; limited {
			c.left[j.owner]--
			c.room.Waiting = c.room.Waiting || c.left[j.owner] == 0 // it may have more
		}
	}
	return err
}

// firstOf returns an SQL expression for a column of the first event of a run. It is NULL if the run has more events.
func firstOf(column string) string {
	return `(SELECT event.` + column + ` FROM event WHERE event.id = run.id AND event.seq = 1 AND run.seq = 1)`
}

// begin loads a journal that has only one event. It leaves an event that is damaged or has blobs to Load.
func (j *journal) begin(sum int64, body []byte) {
	if len(body) == 0 {
		return
	}
	ev, err := record.Decode(j.root, 1, "", sum, body)
	if err != nil {
		return
	}
	f := project.New(j.root, "")
	f.Apply(ev)
	j.opened(f, []*teamv1.Event{ev})
	j.first = &entry{Entry: record.Entry{Event: ev, Body: body, Size: len(body), Sum: sum}}
}
