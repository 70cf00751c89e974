package console

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// maxDays is the most days before now that a time may be given as.
const maxDays = 36_500

// Time returns the time of a flag: a day in UTC, a time as in RFC 3339, or a duration before now, for which a day has 24
// hours. It returns nil for an empty text. The error is a UsageError that names the flag.
func Time(flag, text string, now time.Time) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the flag is not set
	}
	at, err := parseTime(text, now)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return nil, Usagef("--%s %s: expected at most %dd", flag, text, maxDays)
	case err != nil:
		return nil, Usagef("--%s %s: expected a day (2026-03-01, in UTC), a time (2026-03-01T15:00:00Z) or a duration before now (24h, 7d)", flag, text)
	}
	return timestamppb.New(at), nil
}

// parseTime is Time for a text that is not empty. The error is strconv.ErrRange for too many days.
func parseTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 64)
		if n > maxDays {
			err = strconv.ErrRange
		}
		return now.Add(-time.Duration(min(n, maxDays)) * 24 * time.Hour), err
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", text)
	}
	return now.Add(-d), err
}
