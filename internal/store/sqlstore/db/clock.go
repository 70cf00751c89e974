package db

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// clock estimates the database's time, from its last reading and the time since then on the
// monotonic clock. A jump of this machine's clock does not affect it.
type clock struct {
	fixed func() time.Time // returns the time instead of the database; nil without it

	mu   sync.RWMutex
	base time.Time // time of the database when last read; guarded by mu
	read time.Time // when base was read, by the monotonic clock; guarded by mu
}

// now returns the estimated time.
func (c *clock) now() time.Time {
	if c.fixed != nil {
		return c.fixed()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.Add(time.Since(c.read))
}

// maxJump is the largest plausible jump of a machine's clock, after a sleep or a correction. A
// larger one means that the clock was set wrongly, and would cause the deletion of data that only
// seems old.
const maxJump = 3 * 24 * time.Hour

// SyncClock reads the time of the database. For SQLite it ignores a jump of more than maxJump.
func (d *DB) SyncClock(ctx context.Context) error {
	if d.clock.fixed != nil {
		return nil
	}
	t, err := d.time(ctx)
	if err != nil {
		return fmt.Errorf("ask the database for the time: %w", err)
	}
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	if off := t.Sub(d.clock.base.Add(time.Since(d.clock.read))); d.Single && !d.clock.base.IsZero() && off.Abs() > maxJump {
		d.Log.Warn("the machine's clock has jumped; tasks keep the time they had", zap.Duration("by", off))
		return nil
	}
	d.clock.base, d.clock.read = t, time.Now()
	return nil
}
