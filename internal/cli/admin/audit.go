package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
)

// AuditQuery selects records of the audit log.
type AuditQuery struct {
	Account string
	After   int64
}

// ListAudit prints records of the audit log.
func (c *Commands) ListAudit(ctx context.Context, q AuditQuery) error {
	records, err := console.Ask(c.Connection, "audit ls", func(server *client.Team) ([]*teamv1.AuditRecord, error) {
		return server.ListAudit(ctx, q.Account, q.After)
	})
	if err != nil {
		return err
	}
	return console.Table(c.Console, records, "SEQ\tTIME\tACTOR\tACTION\tSUBJECT\tDETAILS", func(r *teamv1.AuditRecord) []string {
		var details []string
		for _, name := range slices.Sorted(maps.Keys(r.GetDetails())) {
			details = append(details, name+"="+r.GetDetails()[name])
		}
		return []string{
			strconv.FormatInt(r.GetSeq(), 10), r.GetTime().AsTime().UTC().Format(time.RFC3339), cmp.Or(r.GetActor(), "-"),
			r.GetAction(), cmp.Or(r.GetSubject(), "-"), cmp.Or(strings.Join(details, ", "), "-"),
		}
	})
}

// VerifyAudit checks the audit log of an account and prints its head. head is one that was printed
// earlier; "" if none is known.
func (c *Commands) VerifyAudit(ctx context.Context, account, head string) error {
	var seq int64
	number, hash, _ := strings.Cut(head, ":")
	if head != "" {
		var err error
		if seq, err = strconv.ParseInt(number, 10, 64); err != nil || seq < 1 || hash == "" {
			return console.Usagef("--head %s: expected SEQ:HASH, as audit verify prints it", head)
		}
	}
	resp, err := console.Ask(c.Connection, "audit verify", func(server *client.Team) (*teamv1.VerifyAuditResponse, error) {
		return server.VerifyAudit(ctx, account, seq, hash)
	})
	if err != nil {
		return err
	}
	if c.Console.JSON {
		return c.Console.Print(resp)
	}
	if resp.GetSeq() == 0 {
		c.Console.Sayf("account %s has no records", account)
		return nil
	}
	fmt.Fprintf(c.Console.Text(), "%d:%s\n", resp.GetSeq(), resp.GetHash())
	c.Console.Sayf("account %s is intact; records: %d", account, resp.GetSeq())
	return nil
}
