//go:build linux

package durable

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// bindings are those of a client, in the order of rig.Clients.
const bindings = 3

// front is where clients find the server that runs now.
type front struct {
	mu      sync.Mutex
	now     *endpoint     // nil while none runs; guarded by mu
	changed chan struct{} // closed and replaced when now changes; guarded by mu
}

// endpoint are the clients of one life of the server.
type endpoint struct {
	clients [][]rig.Client // by principal and binding
	close   []func() error
}

func newFront() *front { return &front{changed: make(chan struct{})} }

// serve makes a server known.
func (f *front) serve(target rig.Target) error {
	e, err := newEndpoint(target)
	if err == nil {
		f.set(e)
	}
	return err
}

func newEndpoint(target rig.Target) (*endpoint, error) {
	e := &endpoint{}
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	for _, p := range principals {
		as := target.As(p[0], p[1])
		g, err := rig.NewGRPC(as)
		if err != nil {
			return nil, err
		}
		e.close = append(e.close, g.Close)
		e.clients = append(e.clients, []rig.Client{g, rig.NewREST(as), rig.NewJSONRPC(as)})
	}
	return e, nil
}

// gone says that no server runs.
func (f *front) gone() { f.set(nil) }

func (f *front) set(e *endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil {
		for _, c := range f.now.close {
			_ = c() // its peer may be dead
		}
	}
	f.now = e
	close(f.changed)
	f.changed = make(chan struct{})
}

// await returns the clients of a server that runs, another than the last.
func (f *front) await(ctx context.Context, last *endpoint) (*endpoint, error) {
	for {
		f.mu.Lock()
		now, changed := f.now, f.changed
		f.mu.Unlock()
		if now != nil && now != last {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for a server: %w", context.Cause(ctx))
		}
	}
}
