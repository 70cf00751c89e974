package team

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// infoTimeout bounds how long a member is waited for when it is asked for its
// info or health.
const infoTimeout = 2 * time.Second

// askInfo asks all enabled members for their info at the same time. The error is
// that of a circle; the roster is whole all the same.
func (l *Loop) askInfo(ctx context.Context) ([]*teamv1.Observed_Member, error) {
	circles := make([]error, len(l.cfg.Members))
	roster := make([]*teamv1.Observed_Member, len(l.cfg.Members))
	l.each(ctx, func(ctx context.Context, i int, m *Member) {
		roster[i] = &teamv1.Observed_Member{Id: m.ID}
		if m.Disabled {
			return
		}
		info, err := l.memberInfo(ctx, m)
		if err != nil {
			if agent.AsError(err).Reason == agent.ReasonMaxDepth {
				circles[i] = err
			}
			l.cfg.Log.Warn("member unavailable", zap.String("team", l.cfg.ID), zap.String("member", m.ID), zap.Error(err))
			return
		}
		roster[i].Info = info
	})
	return roster, errors.Join(circles...)
}

func (l *Loop) memberInfo(ctx context.Context, m *Member) (info *teamv1.AgentInfo, err error) {
	a, err := l.cfg.Registry.Agent(m.Agent)
	if err != nil {
		return nil, err
	}
	defer l.guard(m.ID, &err)
	return a.Info(ctx)
}

// each calls f for every member at the same time, for at most infoTimeout; f
// must end with its context.
func (l *Loop) each(ctx context.Context, f func(ctx context.Context, i int, m *Member)) {
	if len(l.cfg.Members) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, infoTimeout, agent.ErrTimeout)
	defer cancel()
	var wg sync.WaitGroup
	last := len(l.cfg.Members) - 1
	for i := range last {
		wg.Go(func() { f(ctx, i, &l.cfg.Members[i]) })
	}
	f(ctx, last, &l.cfg.Members[last]) // right here: it is waited for anyway
	wg.Wait()
}

// guard turns a panic of a member into an error.
func (l *Loop) guard(member string, err *error) {
	if r := recover(); r != nil {
		*err = agent.Panicked(l.cfg.Log, member, r)
	}
}
