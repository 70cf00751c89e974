package team

import (
	"context"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// infoTimeout bounds the wait for a member's info or health.
const infoTimeout = 2 * time.Second

func (l *Loop) memberInfo(ctx context.Context, m *Member) (info *teamv1.AgentInfo, err error) {
	a, err := l.cfg.Registry.Agent(m.Agent)
	if err != nil {
		return nil, err
	}
	defer l.guard(m.ID, &err)
	return a.Info(ctx)
}

// each calls f for every member at the same time, with a context that ends after infoTimeout, and
// waits for all calls. f must return when its context ends.
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
	f(ctx, last, &l.cfg.Members[last]) // in this goroutine, which waits for all of them anyway
	wg.Wait()
}

// guard is deferred around calls of a member. It recovers a panic and stores it in err.
func (l *Loop) guard(member string, err *error) {
	if r := recover(); r != nil {
		*err = agent.Panicked(l.cfg.Log, member, r)
	}
}
