package collab

import (
	"context"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
)

// maxSamples is the maximum number of ended runs that an estimate is based on.
const maxSamples = 15

// estimate returns when a collaboration will probably have ended: the median duration of
// the caller's last completed runs of the team after its start. bound is true if there are
// no such runs; then the time is the latest possible one.
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
	if now := s.c.Clock(); at.Before(now) { // the request is a repeat, and the collaboration has run longer
		at = now
	}
	return at, len(lengths) == 0, nil
}

// lengths returns the durations of the last completed runs of a team.
func (s *Service) lengths(ctx context.Context, r *run) ([]time.Duration, error) {
	o := s.h.Overview()
	if o == nil {
		return nil, nil
	}
	owner := r.Accepted.GetOwner()
	marks, err := o.Runs(ctx, owner, runs.RunFilter{Agent: r.Accepted.GetAgent(), Ended: true, Limit: 10 * maxSamples})
	if err != nil {
		return nil, runs.StoreError(r.Root, err)
	}
	var lengths []time.Duration
	for _, m := range marks {
		if m.State != a2av1.TaskState_TASK_STATE_COMPLETED || m.Root == r.Root || len(lengths) == maxSamples {
			continue
		}
		page, _, err := s.h.Page(ctx, runs.Key{Owner: owner, ID: m.Root}, 0)
		switch {
		case unreadable(err) || err == nil && len(page) == 0:
			continue
		case err != nil:
			return nil, err
		}
		lengths = append(lengths, m.StatusAt.Sub(page[0].Event.GetTime().AsTime()))
	}
	return lengths, nil
}
