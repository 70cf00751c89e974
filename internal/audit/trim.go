package audit

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// trimAction is the action of the record that says which records of its chain were deleted. Its details are
// the sequence number and the hash of the last of them, from which the rest of the chain continues.
const trimAction, trimSeq, trimHash = "audit.trim", "through", "hash"

// MaxTrim is the maximum number of records that are deleted together.
const MaxTrim = 1000

// Slack is how much longer than keep the oldest record may be stored, so that records are deleted together,
// and not one by one with one record about each: a tenth of keep, at most a day.
func Slack(keep time.Duration) time.Duration { return min(keep/10, 24*time.Hour) }

// Trim returns the last entry to delete of the entries that follow dropped, the last entry that is no longer
// stored, and the record about it, which must be appended to the chain in the same transaction. ok is false if
// nothing is to be deleted: no entry, or the oldest is not older than keep and its Slack. The last entry of
// entries is never deleted, so that a chain is not empty. The error wraps ErrBroken if the entries to delete are
// not what was written: they are the only proof of that, and their times may be wrong.
func Trim(dropped Entry, entries []Entry, now time.Time, keep time.Duration) (last Entry, r *teamv1.AuditRecord, ok bool, err error) {
	before := now.Add(-keep - Slack(keep))
	n := 0
	for ; n+1 < len(entries) && n < MaxTrim; n++ {
		of, err := entries[n].Record()
		if err != nil {
			return Entry{}, nil, false, err
		}
		if !of.GetTime().AsTime().Before(before) {
			break
		}
		before = now.Add(-keep)
	}
	if n == 0 {
		return Entry{}, nil, false, nil
	}
	if err := Check(dropped, entries[:n]); err != nil {
		return Entry{}, nil, false, err
	}
	last = entries[n-1]
	return last, Trimmed(last, now), true, nil
}

// Trimmed returns the record that says that the records of a chain up to last were deleted.
func Trimmed(last Entry, now time.Time) *teamv1.AuditRecord {
	return &teamv1.AuditRecord{
		Id: uuid.NewString(), Account: last.Account, Time: timestamppb.New(now), Action: trimAction, Subject: last.Account,
		Details: map[string]string{trimSeq: strconv.FormatInt(last.Seq, 10), trimHash: hex.EncodeToString(last.Hash)},
	}
}

// confirms reports whether a record says that the records up to last were deleted.
func confirms(r *teamv1.AuditRecord, last Entry) bool {
	hash, err := hex.DecodeString(r.GetDetails()[trimHash])
	return r.GetAction() == trimAction && r.GetDetails()[trimSeq] == strconv.FormatInt(last.Seq, 10) && err == nil && bytes.Equal(hash, last.Hash)
}

// errUnconfirmed returns the error for a chain whose first records are missing, without a record about it.
func errUnconfirmed(last Entry) error {
	return fmt.Errorf("%w: account %q has no records up to %d, and no record says that they were deleted", ErrBroken, last.Account, last.Seq)
}
