//go:build linux

package durable

import (
	"context"
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/a2a"
)

// journals are the events of tasks, by root.
type journals = map[string][]*teamv1.Event

// owner is what the tasks of a principal are kept under.
func owner(i int) string {
	return a2a.Caller{Account: principals[i][0], Principal: principals[i][1]}.Owner()
}

// events reads a journal; that of a task that is not there is empty.
func events(ctx context.Context, s a2a.Store, k a2a.Key) ([]*teamv1.Event, error) {
	const page = 500
	var all []*teamv1.Event
	for {
		next, err := s.Events(ctx, k, int64(len(all)), page)
		if errors.Is(err, a2a.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, r := range next {
			all = append(all, r.Event)
		}
		if len(next) < page {
			return all, nil
		}
	}
}

// read reads the journals of all tasks that were acknowledged, from the store
// itself: no server runs.
func (c *crash) read(entries []entry) record {
	c.Helper()
	ctx := context.Background()
	s, err := sqlstore.Open(ctx, c.store, sqlstore.Config{})
	if err != nil {
		c.Fatal(err)
	}
	defer s.Close()
	r := record{events: journals{}}
	for _, e := range entries {
		if e.Op == opTask {
			if r.events[e.Task], err = events(ctx, s, a2a.Key{Owner: owner(e.Owner), ID: e.Task}); err != nil {
				c.Fatal(err)
			}
		}
	}
	for i := range principals {
		page, err := s.List(ctx, owner(i), a2a.Filter{PageSize: 1})
		if err != nil {
			c.Fatal(err)
		}
		r.tasks += page.Total
	}
	return r
}
