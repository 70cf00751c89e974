package monitor

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestS_60_TeamsOfATrace: what the coordinator of a nested team spends counts for that team, also if it
// delegates nothing, in traces as across tasks. Across tasks, a detached task counts for the team that
// detached it.
func TestS_60_TeamsOfATrace(t *testing.T) {
	decided := func(id string, kind teamv1.Step_Kind) *teamv1.Event_Decided {
		return &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: id, Kind: kind, Member: "sub"}}}}
	}
	for from, want := range map[string]string{"": "desk/sub", "office": "office/desk/sub"} {
		acc := &teamv1.Accepted{TaskId: "t", Agent: "desk"}
		if from != "" {
			acc.Detached = &teamv1.Detached{Team: from}
		}
		prepared := &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: agent.NoteTeamPrepared}}
		r, book, sums := newRun("t", "", journal.Whole), cost.NewBook("acme"), []cost.Sum(nil)
		for i, ev := range []*teamv1.Event{
			{Agent: "desk", Kind: &teamv1.Event_Accepted{Accepted: acc}},
			{Agent: "desk", Kind: prepared},
			{Agent: "desk", Kind: decided("1", teamv1.Step_KIND_DELEGATE)},
			{Scope: "1", Agent: "desk/sub", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}},
			{Scope: "1", Agent: "desk/sub", Kind: prepared},
			{Scope: "1", Agent: "desk/sub", Kind: decided("1", teamv1.Step_KIND_MODEL)},
			{Scope: "1.1", Agent: "desk/sub", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1, Model: "m"}}},
			{Scope: "1.1", Agent: "desk/sub", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Spent: &teamv1.Spent{CostMicros: 5}}}},
		} {
			ev.Seq = int64(i + 1)
			r.Apply(ev)
			sums = append(sums, book.Apply(ev)...)
		}
		teams := map[string]int64{}
		for _, share := range r.rollup(r.Top, "acme").GetTeams() {
			if n := share.GetOwn().GetCostMicros(); n > 0 {
				teams[share.GetPath()] = n
			}
		}
		if len(teams) != 1 || teams["desk/sub"] != 5 || len(sums) != 1 || sums[0].Team != want {
			t.Errorf("detached by %q: the trace says %v, want desk/sub; across tasks it is %v, want %s", from, teams, sums, want)
		}
	}
}

// TestS_60_PeriodOfCosts: the period is widened to hours or, for what is long past, to days; and it ends
// where there is nothing.
func TestS_60_PeriodOfCosts(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 20, 0, 0, time.UTC)
	m := New(Config{Clock: func() time.Time { return now }})
	for _, c := range []struct{ name, since, until, wantSince, wantUntil string }{
		{"hours", "2026-03-10T08:30:00Z", "2026-03-10T10:00:01Z", "2026-03-10T08:00:00Z", "2026-03-10T11:00:00Z"},
		{"until now", "2026-03-10T08:30:00Z", "", "2026-03-10T08:00:00Z", "2026-03-10T13:00:00Z"},
		{"days", "2026-01-02T08:30:00Z", "2026-01-04T10:00:00Z", "2026-01-02T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"from days to hours", "2026-01-02T08:30:00Z", "2026-03-10T10:00:00Z", "2026-01-02T00:00:00Z", "2026-03-10T10:00:00Z"},
		{"whole days", "2026-01-02T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"from the first to the last time", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2025-02-03T00:00:00Z", "2026-03-10T13:00:00Z"},
		{"the future", "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z", "2026-03-10T13:00:00Z", "2026-03-10T13:00:00Z"},
		{"no longer kept", "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z", "2025-02-03T00:00:00Z", "2025-02-03T00:00:00Z"},
	} {
		req := &teamv1.ListCostsRequest{}
		for text, to := range map[string]**timestamppb.Timestamp{c.since: &req.Since, c.until: &req.Until} {
			if at, err := time.Parse(time.RFC3339, text); err == nil {
				*to = timestamppb.New(at)
			}
		}
		q, since, until, err := m.costQuery(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if since.Format(time.RFC3339) != c.wantSince || until.Format(time.RFC3339) != c.wantUntil || q.From*3600 != since.Unix() || q.Until*3600 != until.Unix() {
			t.Errorf("%s: %v to %v, hours %d to %d; want %s to %s", c.name, since, until, q.From, q.Until, c.wantSince, c.wantUntil)
		}
	}
	if _, _, _, err := m.costQuery(&teamv1.ListCostsRequest{Since: timestamppb.New(now.Add(time.Hour))}); err == nil {
		t.Error("since is after now without until: no error")
	}
}
