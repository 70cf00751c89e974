package drive_test

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/scripted"
)

// slowEnd is a journal that gives the end of the run its place only when it is committed,
// as stores do that put on record before it what nobody has taken.
type slowEnd struct {
	runs.Journal
	placing sync.WaitGroup
}

func (j *slowEnd) Append(ctx context.Context, events ...*teamv1.Event) error {
	if err := j.Journal.Append(ctx, events...); err != nil || !taskstate.EndsRun(events[0]) {
		return err
	}
	end := events[0]
	j.placing.Go(func() { end.Time = timestamppb.New(end.GetTime().AsTime()) })
	return nil
}

func (j *slowEnd) Commit(ctx context.Context) error {
	j.placing.Wait()
	return j.Journal.Commit(ctx)
}

// TestDrive_DoesNotReadTheEndBehindItsAppend: the journal may still give it its place. The
// race detector reports a read of the end of a run that waited until then.
func TestDrive_DoesNotReadTheEndBehindItsAppend(t *testing.T) {
	asks, err := scripted.New(scripted.Config{ID: "asks", Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Ask{Ask: "which?"}}}})
	if err != nil {
		t.Fatal(err)
	}
	all := newAgents(t, asks)
	s := newSingle(t, "asks")
	c := s.take(t)
	park, err := all.runner().Drive(t.Context(), c)
	if err != nil || park.Done {
		t.Fatal(park, err)
	}
	if _, err := s.Park(t.Context(), c, park); err != nil {
		t.Fatal(err)
	}
	s.cancel(t)
	c = s.take(t)
	c.Journal = &slowEnd{Journal: c.Journal}
	if park, err = all.runner().Drive(t.Context(), c); err != nil || !park.Done {
		t.Fatal(park, err)
	}
	wantState(t, s.task(t), canceled)
}
