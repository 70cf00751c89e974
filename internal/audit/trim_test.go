package audit_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/pkg/agent"
)

const day = 24 * time.Hour

var begin = time.Unix(1_700_000_000, 0)

// chain returns n records of an account, one a day.
func chain(t *testing.T, n int) []audit.Entry {
	t.Helper()
	entries := []audit.Entry{}
	last := audit.Entry{Account: "acme"}
	for i := range n {
		at := timestamppb.New(begin.Add(time.Duration(i) * day))
		e, err := audit.Next(last, &teamv1.AuditRecord{Id: fmt.Sprint(i), Account: "acme", Time: at, Action: "halt"})
		if err != nil {
			t.Fatal(err)
		}
		entries, last = append(entries, e), e
	}
	return entries
}

// aged returns an entry with another time in its record.
func aged(t *testing.T, e audit.Entry, at time.Time) audit.Entry {
	t.Helper()
	r, err := e.Record()
	if err != nil {
		t.Fatal(err)
	}
	r.Time, r.Seq, r.Hash = timestamppb.New(at), 0, ""
	e.Body, err = proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestT_49_TrimChecks: records that are not what was written are not deleted, whatever their times are.
func TestT_49_TrimChecks(t *testing.T) {
	now := begin.Add(20 * day)
	trim := func(entries []audit.Entry) (int64, error) {
		last, ok, err := audit.Trim(audit.Entry{Account: "acme"}, entries, now, 10*day)
		if ok != (last.Seq > 0) || ok && err != nil {
			t.Errorf("record %d, %v, %v", last.Seq, ok, err)
		}
		return last.Seq, err
	}
	if last, err := trim(chain(t, 20)); last != 10 || err != nil {
		t.Errorf("up to %d, %v, want 10", last, err)
	}
	for name, change := range map[string]func([]audit.Entry) []audit.Entry{
		"a time":         func(e []audit.Entry) []audit.Entry { e[10] = aged(t, e[10], begin); return e },
		"the first time": func(e []audit.Entry) []audit.Entry { e[0] = aged(t, e[0], begin.Add(-day)); return e },
		"a missing one":  func(e []audit.Entry) []audit.Entry { return append(e[:3:3], e[4:]...) },
		"no first one":   func(e []audit.Entry) []audit.Entry { return e[1:] },
	} {
		if last, err := trim(change(chain(t, 20))); last != 0 || !errors.Is(err, audit.ErrBroken) {
			t.Errorf("%s: up to %d, %v", name, last, err)
		}
	}
}

// written is a store as a person with write access to the database has left it.
type written struct {
	audit.Store
	dropped audit.Entry
	entries []audit.Entry
}

func (w *written) AuditDropped(context.Context, string) (audit.Entry, error) { return w.dropped, nil }

func (w *written) Audit(_ context.Context, _ string, after int64, limit int) (list []audit.Entry, _ error) {
	for _, e := range w.entries {
		if e.Seq > after && len(list) < limit {
			list = append(list, e)
		}
	}
	return list, nil
}

// TestT_49_HeadOfDeleted: a person who rewrites the chain, and has the store say that the records up to the noted one
// were deleted, is found, or the noted head proves nothing.
func TestT_49_HeadOfDeleted(t *testing.T) {
	noted := hex.EncodeToString(chain(t, 5)[4].Hash)
	for dropped, check := range map[int64]func(error) bool{
		5: func(err error) bool { return errors.Is(err, audit.ErrBroken) },
		6: func(err error) bool {
			e := agent.AsError(err)
			return e != nil && e.Code == agent.CodeFailedPrecondition && e.Reason == agent.ReasonAuditRecordDeleted && strings.Contains(e.Message, "from 6 or later")
		},
	} {
		w := &written{dropped: audit.Entry{Account: "acme", Seq: dropped, Hash: []byte("another")}}
		e, err := audit.Next(w.dropped, &teamv1.AuditRecord{Id: "later", Account: "acme", Time: timestamppb.New(begin), Action: "halt"})
		if err != nil {
			t.Fatal(err)
		}
		w.entries = []audit.Entry{e}
		if _, err := audit.Verify(t.Context(), w, "acme", 0, ""); err != nil {
			t.Errorf("without a head: %v", err)
		}
		if _, err := audit.Verify(t.Context(), w, "acme", 5, noted); !check(err) {
			t.Errorf("the chain continues from %d: %v", dropped, err)
		}
	}
}
