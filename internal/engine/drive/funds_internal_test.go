package drive

import (
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestC_07_EnvelopeOfTheCaller(t *testing.T) {
	ended := func(scope string, tokens, micros int64) *teamv1.Event {
		return &teamv1.Event{Scope: scope, Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Spent: &teamv1.Spent{OutputTokens: tokens, CostMicros: micros}}}}
	}
	decided := func(scope string) *teamv1.Event {
		return &teamv1.Event{Scope: scope, Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{}}}
	}
	f := &funds{rec: &record{accepted: &teamv1.Accepted{Limits: &teamv1.Limits{MaxTokens: proto.Int64(1000), MaxCost: proto.Float64(0.5)}}}}
	t.Run("C-07 what is on record as spent is gone after a restart, once", func(t *testing.T) {
		f.rec.events = []*teamv1.Event{
			decided(""), decided("1"), ended("1.1", 100, 1000), ended("1", 100, 1000), ended("2", 50, 500),
			{Scope: "3", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Reserved: &teamv1.Spent{OutputTokens: 700}}}}, // nothing came of it
			{Scope: "3", Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Spent: &teamv1.Spent{OutputTokens: 7}}}},
		}
		f.budget = f.envelope()
		if got := f.budget.Left(); got != (agent.Cost{Tokens: 843, Micros: 498_500}) {
			t.Error(got)
		}
		if l := f.left(); l.GetMaxTokens() != 843 || l.GetMaxCost() != 0.4985 {
			t.Error(l)
		}
	})
	t.Run("C-07 a caller that limits nothing leaves no budget", func(t *testing.T) {
		for _, l := range []*teamv1.Limits{nil, {MaxSteps: proto.Int32(3)}} {
			f := &funds{rec: &record{accepted: &teamv1.Accepted{Limits: l}}}
			if f.envelope() != nil || f.left() != nil {
				t.Error(l)
			}
		}
	})
	t.Run("C-07 a caller with nothing left leaves nothing", func(t *testing.T) {
		f := &funds{rec: &record{accepted: &teamv1.Accepted{Limits: &teamv1.Limits{MaxTokens: proto.Int64(-5)}}}}
		if got := f.envelope().Left(); got.Tokens != 0 {
			t.Error(got)
		}
	})
}
