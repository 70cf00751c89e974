package team_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// TestQuestion_Lapses has a human step, in the root team and in a nested one,
// that nobody answers: the run wakes when the question's time is over, and fails.
func TestQuestion_Lapses(t *testing.T) {
	human := next(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) > 0 {
			return team.Decision{Reply: agent.NewMessage("never")}, nil
		}
		return team.Decision{Steps: []*teamv1.Step{{
			Kind: teamv1.Step_KIND_HUMAN, Ask: &teamv1.Ask{Question: "well?"}, Timeout: durationpb.New(time.Hour),
		}}}, nil
	})
	reg := registry{}
	reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: human, Registry: reg})
	tops := map[string]*team.Team{
		"of the root":      newTeamWith(t, team.Config{ID: "root", Scheduler: human, Registry: reg}),
		"of a nested team": newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("inner"), Registry: reg, Members: members("inner")}),
	}
	for name, top := range tops {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			now := time.Now()
			r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }, Clock: func() time.Time { return now }}
			claim := runs.Claim{Root: crashRoot, Epoch: 1, Journal: w}
			park, err := r.Drive(t.Context(), claim)
			if err != nil || park.Done || park.Until.Sub(now).Round(time.Second) != time.Hour {
				t.Fatalf("parked %v for %s, %v", park, park.Until.Sub(now), err)
			}
			if w.committed != len(w.events) {
				t.Errorf("it waits, and of %d events %d are durable", len(w.events), w.committed)
			}
			if q := w.events[slices.IndexFunc(w.events, func(ev *teamv1.Event) bool { return ev.GetAsked() != nil })].GetAsked(); q.GetKind() != teamv1.Asked_KIND_INPUT {
				t.Error("without options it is no approval: ", q)
			}
			now = now.Add(2 * time.Hour)
			if park, err = r.Drive(t.Context(), claim); err != nil || !park.Done {
				t.Fatal(park, err)
			}
			end := w.events[len(w.events)-1].GetEnded()
			if end.GetError().GetReason() != agent.ReasonTimeout {
				t.Error(end)
			}
			if park, err = r.Drive(t.Context(), claim); err != nil || !park.Done {
				t.Error("a run that has ended goes on:", park, err)
			}
		})
	}
}

// TestQuestion_TimeStands has a team with a short time of its own that waits
// long for people: its clock stands meanwhile, in the root and nested.
func TestQuestion_TimeStands(t *testing.T) {
	human := next(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) == 0 {
			return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_HUMAN, Ask: &teamv1.Ask{Question: "well?"}}}}, nil
		}
		return team.Decision{Reply: s.Steps[0].Message}, nil
	})
	short := &teamv1.Limits{Timeout: durationpb.New(time.Minute), MemberTimeout: durationpb.New(time.Minute)}
	reg := registry{}
	reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: human, Registry: reg, Limits: short})
	top := newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("inner"), Registry: reg, Members: members("inner"), Limits: short})
	w := newWorld(t)
	now := time.Now()
	w.clock = func() time.Time { return now }
	r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }, Clock: w.clock}
	claim := runs.Claim{Root: crashRoot, Epoch: 1, Journal: w}
	if park, err := r.Drive(t.Context(), claim); err != nil || park.Done {
		t.Fatal(park, err)
	}
	now = now.Add(24 * time.Hour)
	if w.answer() != 1 {
		t.Fatal("nothing was asked")
	}
	if park, err := r.Drive(t.Context(), claim); err != nil || !park.Done {
		t.Fatal(park, err)
	}
	if end := w.events[len(w.events)-1].GetEnded(); end.GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
		t.Error(end)
	}
}
