package logs

import (
	"time"

	"go.uber.org/zap"
)

// conditionEvery is the interval at which a Condition logs a failure that lasts.
const conditionEvery = 5 * time.Minute

// A Condition logs a failure that may occur many times in a row: when it begins, every five minutes while it lasts, and
// when it is over. The zero value is ready for use. It must not be used by several goroutines at the same time.
type Condition struct {
	logged  time.Time // when a line was last logged; zero if there is no failure
	skipped int       // failures since then
}

// Report reports that what was tried has ended with err. failing and over are the messages of the lines.
func (c *Condition) Report(log *zap.Logger, failing, over string, err error) {
	switch lasts := !c.logged.IsZero(); {
	case err == nil && lasts:
		log.Info(over)
		*c = Condition{}
	case err != nil && lasts && time.Since(c.logged) < conditionEvery:
		c.skipped++
	case err != nil:
		log.Warn(failing, zap.Int("not_logged", c.skipped), zap.Error(err))
		*c = Condition{logged: time.Now()}
	}
}
