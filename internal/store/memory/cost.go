package memory

import (
	"context"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/cost"
)

// costs are what runs have spent. The zero value is empty.
type costs struct {
	mu     sync.Mutex
	sums   map[cost.Key]*cost.Amounts // guarded by mu
	pruned int64                      // hour in which old sums were last deleted; guarded by mu
}

// add adds costs at a time, and deletes sums that are too old.
func (c *costs) add(now time.Time, list []cost.Sum) {
	if len(list) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sums == nil {
		c.sums = map[cost.Key]*cost.Amounts{}
	}
	for _, s := range list {
		c.addOne(s)
	}
	if hour := cost.HourOf(now); hour != c.pruned {
		c.pruned = hour
		c.prune(cost.DayOf(cost.HourOf(now.Add(-cost.Hourly))), cost.DayOf(cost.HourOf(now.Add(-cost.Kept))))
	}
}

// addOne adds a cost. The caller must hold mu.
func (c *costs) addOne(s cost.Sum) {
	if c.sums[s.Key] == nil {
		c.sums[s.Key] = &cost.Amounts{}
	}
	c.sums[s.Key].Add(s.Amounts)
}

// prune adds up the hours of the days before an hour, and deletes the days before another one. The
// caller must hold mu.
func (c *costs) prune(hourly, kept int64) {
	var old []cost.Sum
	for k, a := range c.sums {
		if k.Hour < hourly && k.Hour != cost.DayOf(k.Hour) || k.Hour < kept {
			old = append(old, cost.Sum{Key: k, Amounts: *a})
			delete(c.sums, k)
		}
	}
	for _, s := range old {
		if s.Hour = cost.DayOf(s.Hour); s.Hour >= kept {
			c.addOne(s)
		}
	}
}

// Costs implements cost.Store.
func (s *Store) Costs(_ context.Context, q cost.Query) ([]cost.Sum, error) {
	c := &s.costs
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []cost.Sum
	for k, a := range c.sums {
		if k.Hour >= q.From && k.Hour < q.Until && (q.Account == nil || k.Account == *q.Account) && (q.Model == nil || k.Model == *q.Model) {
			list = append(list, cost.Sum{Key: k, Amounts: *a})
		}
	}
	return cost.Merge(list, func(k *cost.Key) {
		if k.Hour = cost.DayOf(k.Hour); !q.ByDay {
			k.Hour = 0
		}
	}), nil
}
