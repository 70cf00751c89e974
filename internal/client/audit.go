package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// ListAudit returns the records of an account after a position in the audit log, oldest first.
func (t *Team) ListAudit(ctx context.Context, account string, after int64) (records []*teamv1.AuditRecord, err error) {
	for {
		out := &teamv1.ListAuditResponse{}
		query := url.Values{"pageSize": {"1000"}, "after": {strconv.FormatInt(after, 10)}}
		if err := t.call(ctx, http.MethodGet, "/audit/"+url.PathEscape(account)+"?"+query.Encode(), nil, out); err != nil {
			return nil, err
		}
		records = append(records, out.GetRecords()...)
		if !out.GetMore() || len(out.GetRecords()) == 0 {
			return records, nil
		}
		after = out.GetRecords()[len(out.GetRecords())-1].GetSeq()
	}
}

// VerifyAudit checks the audit log of an account, and that it has the record seq with the given hash
// unless seq is 0.
func (t *Team) VerifyAudit(ctx context.Context, account string, seq int64, hash string) (*teamv1.VerifyAuditResponse, error) {
	query := url.Values{}
	if seq > 0 {
		query = url.Values{"seq": {strconv.FormatInt(seq, 10)}, "hash": {hash}}
	}
	out := &teamv1.VerifyAuditResponse{}
	err := t.call(ctx, http.MethodGet, "/audit/"+url.PathEscape(account)+":verify?"+query.Encode(), nil, out)
	return out, err
}
