package server

import (
	"context"
	"errors"
	"sync"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Local runs the tasks of agents in this process and listens nowhere: a
// TeamServer without its bindings. It is used once: NewLocal, then Serve.
type Local struct{ core }

// NewLocal returns a Local; its tasks go on once Serve is called. Of the
// configuration everything counts that is not about listening and callers.
// Errors: a configuration that makes no sense.
func NewLocal(c Config) (*Local, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	sign, err := signing(&c)
	if err != nil {
		return nil, err
	}
	k, err := newCore(&c, Addrs{}, sign)
	if err != nil {
		return nil, err
	}
	return &Local{k}, nil
}

// Handler answers calls. Their context says who calls: a2a.WithCaller.
func (l *Local) Handler() *a2a.Handler { return l.handler }

// Serve drives tasks until ctx ends, which is no error, or the store fails. The
// store stays open.
func (l *Local) Serve(ctx context.Context) error {
	runs, stop := context.WithCancel(ctx)
	defer stop()
	var guarding sync.WaitGroup
	guarding.Go(func() { guard(runs, l.store, stop) })
	guarding.Go(func() { l.telling.serve(runs) })
	err := l.engine.Serve(runs, l.runner.Drive)
	stop()
	guarding.Wait()
	return errors.Join(err, failure(l.store))
}
