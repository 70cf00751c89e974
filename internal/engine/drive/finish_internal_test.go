package drive

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestR_002_40_NotesOfOthers(t *testing.T) {
	details := &structpb.Struct{Fields: map[string]*structpb.Value{aboutKey: structpb.NewStringValue(aboutWrite)}}
	for scope, own := range map[string]bool{"": true, "1": false} {
		for _, code := range []string{agent.NoteStorage, agent.NoteRemembered} {
			d := &conversation{rec: &record{}}
			note := &teamv1.Event{Scope: scope, Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: code, Details: details}}}
			if got := d.noted(note); got != own || d.kept != (own && code == agent.NoteRemembered) {
				t.Errorf("%s of %q is taken for the driver's own: %v, %v", code, scope, got, d.kept)
			}
		}
	}
}

func TestEndOfARun(t *testing.T) {
	d := &drive{log: zap.NewNop(), rec: &record{run: &agent.Run{Root: "root"}, accepted: &teamv1.Accepted{}}}
	d.rec.events = []*teamv1.Event{{Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Spent: &teamv1.Spent{OutputTokens: 5}}}}}
	t.Run("C-07 what a failed run has spent: its own sum, else what is on record", func(t *testing.T) {
		sum := &agent.Error{Reason: agent.ReasonTeamError, Spent: &teamv1.Spent{OutputTokens: 8}}
		for err, want := range map[error]int64{errors.New("x"): 5, sum: 8} {
			if got := d.failed(err).GetSpent().GetOutputTokens(); got != want {
				t.Errorf("%v: %d, want %d", err, got, want)
			}
		}
	})
	t.Run("the outcome of a reply is the run's", func(t *testing.T) {
		for says, want := range map[teamv1.Outcome]teamv1.Outcome{
			teamv1.Outcome_OUTCOME_UNSPECIFIED: teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY: teamv1.Outcome_OUTCOME_EMPTY,
		} {
			d.reply = &teamv1.Reply{Outcome: says, Ref: 3}
			if got := d.succeeded().GetOutcome(); got != want {
				t.Errorf("%v: %v", says, got)
			}
		}
	})
}
