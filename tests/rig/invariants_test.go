package rig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
)

func TestMain(m *testing.M) { VerifyMain(m) }

// told is a test that keeps what it is told.
type told struct {
	testing.TB
	errors []string
}

func (t *told) Helper() {}

func (t *told) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// doctored is a store that shows other events than it has.
type doctored struct {
	runs.Store
	change func([]runs.Record) []runs.Record
}

func (d doctored) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	all, err := d.Store.Events(ctx, k, after, limit)
	for i := range all {
		all[i].Event = proto.CloneOf(all[i].Event)
	}
	return d.change(all), err
}

// busy are models that are never quiet.
type busy struct{}

func (busy) Quiet(context.Context) error { return errors.New("busy") }

// TestInvariantsAreSeenBroken breaks each of them.
func TestInvariantsAreSeenBroken(t *testing.T) {
	kept := memstore.Open(t)
	target := Serve(t, server.Config{Store: kept, Agent: &agent.Func{ID: "echo", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage(agent.Text(m)), nil
	}}})
	resp, err := NewREST(target).Send(t.Context(), Text("", "m", "hi"))
	if err != nil {
		t.Fatal(err)
	}
	id := resp.GetTask().GetId()
	step := func(scope string, ev *teamv1.Event) func([]runs.Record) []runs.Record { // before the end
		return func(all []runs.Record) []runs.Record {
			ev.Scope = scope
			end := all[len(all)-1]
			all = append(all[:len(all)-1], runs.Record{Seq: end.Seq, Event: ev}, end)
			all[len(all)-1].Seq++
			for i := range all {
				all[i].Event.Seq = all[i].Seq
			}
			return all
		}
	}
	began := &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}
	ended := &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}}}
	for want, c := range map[string]struct {
		change func([]runs.Record) []runs.Record
		models []Models
		seen   []*teamv1.Event
	}{
		"": {}, // nothing is broken
		"I1: step \"1\" has begun and has no end":    {change: step("1", began)},
		"I1: step \"1\" has not begun and has ended": {change: step("1", ended)},
		"I1: step \"\" has 2 ends":                   {change: step("", ended)},
		"I2: record 1":                               {change: func(all []runs.Record) []runs.Record { return all[1:] }},
		"I2: event 1 was not shown":                  {seen: []*teamv1.Event{{Seq: 2}, {Seq: 3}, {Seq: 4}}},
		"I2: event 1 was shown behind 2":             {seen: []*teamv1.Event{{Seq: 2}, {Seq: 1}, {Seq: 3}, {Seq: 4}}},
		"I3: a model is still asked something":       {models: []Models{busy{}}},
		"I4: a secret is on record in event":         {change: step("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: Secret + "-1"}}})},
		"I5: task \"\" is not what its events say": {change: func(all []runs.Record) []runs.Record {
			all[0].Event.GetAccepted().Message = agent.NewMessage("no")
			return all
		}},
		"I5: the trace of": {change: func(all []runs.Record) []runs.Record {
			all[len(all)-1].Event.GetEnded().Spent = &teamv1.Spent{InputTokens: 1}
			return all
		}},
		"I6: there is an event behind the end": {change: func(all []runs.Record) []runs.Record {
			return append(all, runs.Record{Seq: all[len(all)-1].Seq + 1, Event: &teamv1.Event{Seq: all[len(all)-1].Seq + 1, Scope: "1"}})
		}},
	} {
		t.Run(want, func(t *testing.T) {
			if c.change == nil {
				c.change = func(all []runs.Record) []runs.Record { return all }
			}
			seen := &told{TB: t}
			Invariants{Target: target, Store: doctored{kept, c.change}, Models: c.models}.Check(seen, id, c.seen...)
			if got := strings.Join(seen.errors, "\n"); !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("want %q: %s", want, got)
			}
		})
	}
	t.Run("I4: a secret is in the log", func(t *testing.T) {
		seen := &told{TB: t}
		Logger(seen).Info("hello", zap.String("key", Secret))
		if len(seen.errors) != 1 {
			t.Error(seen.errors)
		}
	})
}
