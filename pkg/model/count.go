package model

import (
	"strconv"
	"strings"
)

// Count is a number of tokens in JSON. Fractions and numbers in quotes are accepted, because some
// gateways send them; anything else counts as 0.
type Count int64

// UnmarshalJSON implements json.Unmarshaler. It returns no error.
func (c *Count) UnmarshalJSON(b []byte) error {
	if f, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64); err == nil {
		*c = Count(max(0, min(f, 1<<53)))
	}
	return nil
}
