// Package audit records who changed what, who was refused, and who approved what, in one chain of
// records for each account. Each record has the hash of the one before it, so a changed, removed or
// inserted record is found.
package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// ServerAccount is the account of records that belong to no account, such as sign-ins that failed.
const ServerAccount = "-"

// Store stores the chains. Stores implement it. It is safe for concurrent use, by several processes if
// the store is.
type Store interface {
	// AppendAudit appends records to the chains of their accounts. A record whose id is in the chain
	// already has no effect.
	AppendAudit(ctx context.Context, records ...*teamv1.AuditRecord) error
	// Audit returns records of an account with a sequence number greater than after, in order, at most
	// limit.
	Audit(ctx context.Context, account string, after int64, limit int) ([]Entry, error)
	// AuditDropped returns the last record of an account that is no longer stored, without its body if
	// the store keeps all.
	AuditDropped(ctx context.Context, account string) (Entry, error)
	// AuditAccounts returns the accounts that have a chain, sorted.
	AuditAccounts(ctx context.Context) ([]string, error)
}

// Entry is a record as it is stored.
type Entry struct {
	Account string
	// Seq is the position in the chain, from 1.
	Seq int64
	// Body is the encoded teamv1.AuditRecord.
	Body []byte
	// Hash is the hash of the record and of the one before it.
	Hash []byte
}

// Record returns the decoded record with its sequence number and hash.
func (e Entry) Record() (*teamv1.AuditRecord, error) {
	r := &teamv1.AuditRecord{}
	if err := proto.Unmarshal(e.Body, r); err != nil {
		return nil, fmt.Errorf("%w: record %d of account %q cannot be decoded: %w", ErrBroken, e.Seq, e.Account, err)
	}
	r.Seq, r.Hash = e.Seq, hex.EncodeToString(e.Hash)
	return r, nil
}

// Next returns the entry that follows a chain whose last entry is last; the zero Entry of the account
// for an empty chain.
func Next(last Entry, r *teamv1.AuditRecord) (Entry, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return Entry{}, fmt.Errorf("encode an audit record: %w", err)
	}
	e := Entry{Account: r.GetAccount(), Seq: last.Seq + 1, Body: body}
	e.Hash = sum(last.Hash, e)
	return e, nil
}

// sum returns the hash of an entry that follows one with the given hash.
func sum(previous []byte, e Entry) []byte {
	h := sha256.New()
	field := func(b []byte) { // with its length, so that fields cannot run into each other
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	field(previous)
	field([]byte(e.Account))
	var seq [8]byte
	binary.BigEndian.PutUint64(seq[:], uint64(e.Seq)) //nolint:gosec // it is positive
	field(seq[:])
	field(e.Body)
	return h.Sum(nil)
}

// ErrBroken means that a chain is not as it was written.
var ErrBroken = errors.New("the audit chain is broken")

// checkEntries reports whether entries continue a chain whose last entry is last. The error wraps ErrBroken
// and names the first entry that does not fit.
func checkEntries(last Entry, entries []Entry) error {
	for _, e := range entries {
		switch {
		case e.Seq != last.Seq+1:
			return fmt.Errorf("%w: account %q has record %d after %d", ErrBroken, e.Account, e.Seq, last.Seq)
		case !bytes.Equal(e.Hash, sum(last.Hash, e)):
			return fmt.Errorf("%w: record %d of account %q is not what was written", ErrBroken, e.Seq, e.Account)
		}
		last = e
	}
	return nil
}

type recordKey struct{}

// With returns a context for a change that a store makes: the store appends the record in the
// transaction of the change.
func With(ctx context.Context, r *teamv1.AuditRecord) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// Of returns the record that a change with ctx appends. ok is false if the change appends no record.
func Of(ctx context.Context) (r *teamv1.AuditRecord, ok bool) {
	r, ok = ctx.Value(recordKey{}).(*teamv1.AuditRecord)
	return r, ok
}

// Record returns a context with which a store records an action by the caller of ctx at a time, in the
// chain of the caller's account and in the transaction of the change that it makes.
func Record(ctx context.Context, at time.Time, action, subject string, details map[string]string) context.Context {
	r := New(ctx, at, action, subject)
	r.Details = details
	return With(ctx, r)
}

// New returns the record of an action by the caller of ctx on a subject, in the chain of the caller's
// account.
func New(ctx context.Context, at time.Time, action, subject string) *teamv1.AuditRecord {
	r := &teamv1.AuditRecord{Id: uuid.NewString(), Account: ServerAccount, Time: timestamppb.New(at), Action: action, Subject: subject}
	if who, ok := identity.CallerOf(ctx); ok {
		r.Account, r.Actor = who.Account, who.Owner()
	}
	return r
}
