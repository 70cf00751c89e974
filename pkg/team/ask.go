package team

import (
	"context"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// infoTimeout bounds how long a member is waited for when it is asked for its
// info or health.
const infoTimeout = 2 * time.Second

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
