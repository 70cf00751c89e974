package account

import (
	"context"
	"database/sql"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Costs are the costs of runs, and their sums. It implements cost.Store.
type Costs struct{ DB *db.DB }

// deleteCosts deletes sums that are older than the store keeps them.
const deleteCosts = `DELETE FROM cost WHERE root = '' AND hour < $1`

// costBatch is how many rows are added up in one transaction, so that others can write in between.
const costBatch = 500

// costKeys are the columns of the key of a cost without the root.
const costKeys = `hour, account, path, team, model`

// costColumns are the amounts of a cost.
var costColumns = strings.Join(cost.Columns[:], ", ")

// AddCost adds to the costs of a run in a batch that was admitted by fence. A batch that is written
// again, because the reply to the first attempt was lost, adds nothing.
var AddCost = `INSERT INTO cost (root, seq, ` + costKeys + `, ` + costColumns + `)
SELECT id, seq, ` + db.Numbered(4, 5+len(cost.Columns)) + ` FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT (root, ` + costKeys + `) DO UPDATE SET seq = excluded.seq, ` + added() + ` WHERE cost.seq < excluded.seq`

// addSum adds to the sums of runs that have ended.
var addSum = `INSERT INTO cost (root, seq, ` + costKeys + `, ` + costColumns + `) VALUES ('', 0, ` + db.Numbered(1, 5+len(cost.Columns)) + `)
ON CONFLICT (root, ` + costKeys + `) DO UPDATE SET ` + added()

// added returns the assignments that add the amounts of a conflicting row.
func added() string {
	list := make([]string, len(cost.Columns))
	for i, c := range cost.Columns {
		list[i] = c + " = cost." + c + " + excluded." + c
	}
	return strings.Join(list, ", ")
}

// CostArgs returns the arguments for the key and the amounts of a sum.
func CostArgs(s cost.Sum) []any {
	args := []any{s.Hour, s.Account, s.Path, s.Team, s.Model}
	for _, n := range s.Amounts {
		args = append(args, n)
	}
	return args
}

// scanCost reads a row of costKeys and costColumns.
func scanCost(rows *sql.Rows) (s cost.Sum, err error) {
	dest := []any{&s.Hour, &s.Account, &s.Path, &s.Team, &s.Model}
	for i := range s.Amounts {
		dest = append(dest, &s.Amounts[i])
	}
	err = rows.Scan(dest...)
	return s, err
}

// Costs implements cost.Store. One statement reads the costs of runs and the sums of ended ones, so
// that a sum that is being made is neither missing nor counted twice.
func (s *Costs) Costs(ctx context.Context, q cost.Query) ([]cost.Sum, error) {
	hour := `0`
	if q.ByDay {
		hour = `hour - hour % 24`
	}
	text, args := `SELECT CAST(`+hour+` AS BIGINT) AS at, account, path, team, model`, []any{q.From, q.Until}
	for _, c := range cost.Columns {
		text += `, CAST(sum(` + c + `) AS BIGINT)`
	}
	text += ` FROM cost WHERE hour >= $1 AND hour < $2`
	for _, only := range []struct {
		column string
		value  *string
	}{{"account", q.Account}, {"model", q.Model}} {
		if only.value != nil {
			args = append(args, *only.value)
			text += ` AND ` + only.column + ` = $` + strconv.Itoa(len(args))
		}
	}
	return db.List(ctx, s.DB.Reader(), scanCost, text+` GROUP BY 1, account, path, team, model`, args...)
}

// SumCosts adds up the costs of runs that have ended, and the hours of days that are long past, and
// deletes sums that are older than the store keeps them.
func (s *Costs) SumCosts(ctx context.Context, now time.Time) error {
	hourly := cost.DayOf(cost.HourOf(now.Add(-cost.Hourly)))
	for _, of := range []struct {
		rows   string
		before int64
		change func(*cost.Key)
	}{
		// The costs of runs are few, because those of ended ones are gone: it is cheaper to look each run up
		// than to go through all runs that have ended. Runs that were deleted are included.
		{`root > '' AND hour < $1 AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = cost.root AND run.ended IS NULL)`, math.MaxInt64, nil},
		{`root = '' AND hour < $1 AND hour % 24 <> 0`, hourly, func(k *cost.Key) { k.Hour = cost.DayOf(k.Hour) }},
	} {
		err := db.Repeat(func() (more bool, err error) { return s.moveCosts(ctx, of.rows, of.before, of.change) })
		if err != nil {
			return err
		}
	}
	return s.DB.Run(ctx, deleteCosts, cost.DayOf(cost.HourOf(now.Add(-cost.Kept))))
}

// moveCosts adds a batch of costs to the sums of ended runs. change, which may be nil, changes the keys.
// more reports whether there may be further ones. Replicas leave to each other what they move.
func (s *Costs) moveCosts(ctx context.Context, of string, before int64, change func(*cost.Key)) (more bool, err error) {
	err = s.DB.Do(ctx, func(ctx context.Context, q db.Querier) error {
		sums, err := db.List(ctx, q, scanCost, `WITH c AS MATERIALIZED (SELECT root, `+costKeys+` FROM cost WHERE `+of+` ORDER BY root, `+costKeys+` LIMIT $2`+s.DB.Skip+`)
DELETE FROM cost WHERE (root, `+costKeys+`) IN (SELECT root, `+costKeys+` FROM c) RETURNING `+costKeys+`, `+costColumns, before, int64(costBatch))
		if more = len(sums) == costBatch; err != nil {
			return err
		}
		for _, sum := range cost.Merge(sums, change) { // in order, so that replicas do not deadlock
			if _, err := q.Exec(ctx, addSum, CostArgs(sum)...); err != nil {
				return err
			}
		}
		return nil
	})
	return more, err
}
