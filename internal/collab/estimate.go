package collab

import (
	"context"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// looked is how many of the last runs of a team an estimate is made of.
const looked = 15

// estimate is when a collaboration will have ended: as long from its start as the
// median of the caller's last runs of the team that were completed; bound reports that
// there are none, and that it is the latest time.
func (s *Service) estimate(ctx context.Context, r *run) (at time.Time, bound bool, err error) {
	most := r.Accepted.GetCollaboration().GetMaxDuration().AsDuration()
	lengths, err := s.lengths(ctx, r)
	if err != nil {
		return time.Time{}, false, err
	}
	took := r.plan.bound(most)
	if len(lengths) > 0 {
		slices.Sort(lengths)
		took = lengths[len(lengths)/2]
	}
	if most > 0 {
		took = min(took, most)
	}
	at = r.Top.Since.Add(took)
	if now := s.c.Clock(); at.Before(now) { // it is long over, and is asked for again
		at = now
	}
	return at, len(lengths) == 0, nil
}

// lengths are how long the last runs of a team took.
func (s *Service) lengths(ctx context.Context, r *run) ([]time.Duration, error) {
	o := s.h.Overview()
	if o == nil {
		return nil, nil
	}
	owner := r.Accepted.GetOwner()
	marks, err := o.Runs(ctx, owner, a2a.RunFilter{Agent: r.Accepted.GetAgent(), Ended: true, Limit: 10 * looked})
	if err != nil {
		return nil, a2a.StoreError(r.Root, err)
	}
	var lengths []time.Duration
	for _, m := range marks {
		if m.State != a2av1.TaskState_TASK_STATE_COMPLETED || m.Root == r.Root || len(lengths) == looked {
			continue
		}
		page, _, err := s.h.Page(ctx, a2a.Key{Owner: owner, ID: m.Root}, 0)
		switch {
		case lost(err) || err == nil && len(page) == 0:
			continue
		case err != nil:
			return nil, err
		}
		lengths = append(lengths, m.StatusAt.Sub(page[0].Event.GetTime().AsTime()))
	}
	return lengths, nil
}
