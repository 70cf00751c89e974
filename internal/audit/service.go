package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// defaultPage and maxPage are the default and the maximum number of records of a page.
	defaultPage, maxPage = 100, 1000
)

// Service implements AuditService. It is safe for concurrent use.
type Service struct {
	// Store has the chains. Required.
	Store Store
	// Log receives why a chain is broken. Required.
	Log *zap.Logger
}

// ListAudit implements the RPC.
func (s *Service) ListAudit(ctx context.Context, req *teamv1.ListAuditRequest) (*teamv1.ListAuditResponse, error) {
	var faults a2aerror.Faults
	size := int(req.GetPageSize())
	if size == 0 {
		size = defaultPage
	}
	if size < 1 || size > maxPage {
		faults.Add("pageSize", "is %d; it must be 1 to %d", size, maxPage)
	}
	if req.GetAfter() < 0 {
		faults.Add("after", "is %d; it must be 0 or more", req.GetAfter())
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	entries, err := s.Store.Audit(ctx, req.GetAccount(), req.GetAfter(), size+1)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	resp := &teamv1.ListAuditResponse{More: len(entries) > size}
	for _, e := range entries[:min(size, len(entries))] {
		r, err := e.Record()
		if err != nil {
			return nil, s.broken(err)
		}
		resp.Records = append(resp.Records, r)
	}
	return resp, nil
}

// VerifyAudit implements the RPC.
func (s *Service) VerifyAudit(ctx context.Context, req *teamv1.VerifyAuditRequest) (*teamv1.VerifyAuditResponse, error) {
	if req.GetSeq() < 0 || (req.GetSeq() == 0) != (req.GetHash() == "") {
		return nil, a2aerror.Invalid(agent.Violation{Field: "seq", Description: "and hash belong together; send both, as an earlier answer has them, or neither"})
	}
	head, err := Verify(ctx, s.Store, req.GetAccount(), req.GetSeq(), req.GetHash())
	if errors.Is(err, ErrBroken) {
		return nil, s.broken(err)
	}
	if deleted := (*agent.Error)(nil); errors.As(err, &deleted) {
		return nil, deleted
	}
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	return &teamv1.VerifyAuditResponse{Seq: head.Seq, Hash: hex.EncodeToString(head.Hash)}, nil
}

// broken returns the error for a chain that is not as it was written.
func (s *Service) broken(err error) error {
	s.Log.Error("the audit log was changed outside of the server", zap.Error(err))
	return agent.Errorf(agent.CodeDataLoss, agent.ReasonDataLoss, "%s; compare it with a backup", err)
}

// head is the head of a chain as someone has noted it.
type head struct {
	seq   int64
	hash  string
	found bool // the chain has it, or none was noted
}

// match compares the head with the entry of its sequence number.
func (h *head) match(e Entry) error {
	if e.Seq != h.seq {
		return nil
	}
	if hex.EncodeToString(e.Hash) != h.hash {
		return fmt.Errorf("%w: record %d of account %q has another hash than the one that was noted", ErrBroken, h.seq, e.Account)
	}
	h.found = true
	return nil
}

// skip is like match, for the last of the records that were deleted.
func (h *head) skip(dropped Entry) error {
	if h.found || h.seq >= dropped.Seq {
		return h.match(dropped)
	}
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonAuditRecordDeleted,
		"record %d of account %q was deleted under keep.audit; verify with a head from %d or later", h.seq, dropped.Account, dropped.Seq)
}

// Verify checks the chain of an account from its first stored record. The chain must have the record seq with the
// given hash, unless seq is 0. Verify returns the last entry. The error is AUDIT_RECORD_DELETED if the hash of the record seq is no longer known, wraps
// ErrBroken, or is the store's.
func Verify(ctx context.Context, s Store, account string, seq int64, hash string) (Entry, error) {
	dropped, err := s.AuditDropped(ctx, account)
	if err != nil {
		return Entry{}, err
	}
	noted := &head{seq, hash, seq == 0}
	if err := noted.skip(dropped); err != nil {
		return Entry{}, err
	}
	last := dropped
	for {
		entries, err := s.Audit(ctx, account, last.Seq, maxPage)
		if err != nil {
			return Entry{}, err
		}
		now, err := s.AuditDropped(ctx, account)
		if err != nil {
			return Entry{}, err
		}
		if now.Seq > last.Seq { // records were deleted before they were read
			if err := noted.skip(now); err != nil {
				return Entry{}, err
			}
			last = now
			continue
		}
		if err := checkEntries(last, entries); err != nil {
			return Entry{}, err
		}
		for _, e := range entries {
			if _, err := e.Record(); err != nil {
				return Entry{}, err
			}
			if err := noted.match(e); err != nil {
				return Entry{}, err
			}
		}
		if len(entries) > 0 {
			last = entries[len(entries)-1]
			continue
		}
		if !noted.found {
			return Entry{}, fmt.Errorf("%w: account %q has %d records, and record %d was noted", ErrBroken, account, last.Seq, seq)
		}
		return last, nil
	}
}
