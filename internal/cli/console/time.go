package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxDays is the most days before now that a time may be given as.
const MaxDays = 36_500

// Time parses a day in UTC, a time as in RFC 3339, or a duration before now, for which a day has 24
// hours.
func Time(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 64)
		if n > MaxDays {
			err = strconv.ErrRange
		}
		return now.Add(-time.Duration(min(n, MaxDays)) * 24 * time.Hour), err
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", text)
	}
	return now.Add(-d), err
}
