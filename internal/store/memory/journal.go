package memory

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// journal is the access of one claim to its run. After the claim was released, or another one was
// made, it returns agent.ErrFenced.
type journal struct {
	store *Store
	run   *run
	epoch int64
	wake  chan struct{}
}

// held returns an error if the claim is no longer valid. The caller must hold run.mu.
func (j *journal) held() error {
	if !j.run.claimed || j.run.epoch != j.epoch {
		return fmt.Errorf("epoch %d of %s: %w", j.epoch, j.run.root, agent.ErrFenced)
	}
	return nil
}

// Load returns the recorded events without streamed text, which no replay needs.
func (j *journal) Load(context.Context) ([]*teamv1.Event, error) {
	j.run.mu.Lock()
	defer j.run.mu.Unlock()
	if err := j.held(); err != nil {
		return nil, err
	}
	all := j.run.record.all()
	events := make([]*teamv1.Event, 0, len(all))
	for _, ev := range all {
		if ev.GetDelta() == nil {
			events = append(events, ev)
		}
	}
	return events, nil
}

// Append records events, either all of them or none. They are visible at once. The store keeps
// them, so they must not be changed afterwards.
func (j *journal) Append(_ context.Context, events ...*teamv1.Event) error {
	ended, err := j.append(events)
	if ended {
		j.store.retire(j.run)
	}
	return err
}

// append records events and reports whether they ended the run.
func (j *journal) append(events []*teamv1.Event) (ended bool, err error) {
	r := j.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := j.held(); err != nil {
		return false, err
	}
	size := j.store.sizes.of(events)
	if err := store.Admit(r.root, r.ended, r.record.len(), r.bytes, events, size); err != nil {
		return false, err
	}
	now := j.store.clock()
	r.extend(now, events, size)
	j.store.costs.add(now, r.costs)
	r.costs = nil
	if r.ended {
		r.book = nil
	}
	if r.pushed {
		j.store.pushes.wakeIdle(r.root, now)
	}
	if r.ended && r.collab {
		j.store.free(r)
	}
	j.store.relist(r)
	j.store.reask(r)
	j.store.all.Ring(r.owner)
	return r.ended, nil
}

// Commit returns an error if the claim is no longer valid. Appended events are already as durable
// as memory can be.
func (j *journal) Commit(context.Context) error {
	j.run.mu.Lock()
	defer j.run.mu.Unlock()
	return j.held()
}

// Inbound returns copies of the inbox rows that no event has recorded, in order.
func (j *journal) Inbound(context.Context) ([]*teamv1.Inbound, error) {
	j.run.mu.Lock()
	defer j.run.mu.Unlock()
	if err := j.held(); err != nil {
		return nil, err
	}
	var rows []*teamv1.Inbound
	for _, in := range j.run.inbox {
		rows = append(rows, proto.CloneOf(in))
	}
	return rows, nil
}

// Wake returns a channel that receives when the inbox may have changed.
func (j *journal) Wake() <-chan struct{} { return j.wake }
