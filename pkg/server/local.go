package server

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Local runs the tasks of agents in this process without listening: a TeamServer without
// bindings. Serve may be called once.
type Local struct {
	core
	own    Store // the default store, which Serve closes; nil if Config has one
	served atomic.Bool
}

// NewLocal returns a Local, which runs tasks once Serve is called. It ignores listeners, the role
// and the settings about callers and cards. The error says what is wrong with the
// configuration.
func NewLocal(c Config) (*Local, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	now, err := c.snapshot(Addrs{})
	if err != nil {
		return nil, err
	}
	own, err := c.ownStore()
	if err != nil {
		return nil, err
	}
	k, err := newCore(&c, now)
	if err != nil {
		return nil, errors.Join(err, closeStore(own))
	}
	return &Local{core: k, own: own}, nil
}

// Handler returns the handler for calls. The context of each call must carry the caller,
// see WithCaller.
func (l *Local) Handler() *a2a.Handler { return l.handler }

// WithCaller returns a context for calls of the Handler of a Local by a principal of an account, who may
// read tasks, make calls and answer questions.
func WithCaller(ctx context.Context, account, principal string) context.Context {
	return identity.WithCaller(ctx, identity.Caller{Account: account, Principal: principal, Permissions: identity.DefaultPermissions})
}

// Serve runs tasks until ctx ends, which is not an error, or the store fails. It does not
// close Config.Store.
func (l *Local) Serve(ctx context.Context) error {
	l.served.Store(true)
	return l.serve(ctx, l.own, wait)
}

// Close closes the default store of a Local that is never served. Otherwise Serve does.
func (l *Local) Close() error {
	if l.served.Swap(true) {
		return nil
	}
	return closeStore(l.own)
}
