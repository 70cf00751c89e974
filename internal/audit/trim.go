package audit

import "time"

// MaxTrim is the maximum number of records that are deleted together.
const MaxTrim = 1000

// Trim returns the last entry to delete of the entries that follow dropped, the last entry that is no longer
// stored. ok is false if nothing is to be deleted, because no entry is older than keep. The last entry of
// entries is never deleted, so that a chain is not empty. The error wraps ErrBroken if the entries to delete are
// not what was written: they are the only proof of that, and their times may be wrong.
func Trim(dropped Entry, entries []Entry, now time.Time, keep time.Duration) (last Entry, ok bool, err error) {
	n := 0
	for ; n+1 < len(entries) && n < MaxTrim; n++ {
		r, err := entries[n].Record()
		if err != nil {
			return Entry{}, false, err
		}
		if !r.GetTime().AsTime().Before(now.Add(-keep)) {
			break
		}
	}
	if n == 0 {
		return Entry{}, false, nil
	}
	if err := checkEntries(dropped, entries[:n]); err != nil {
		return Entry{}, false, err
	}
	return entries[n-1], true, nil
}
