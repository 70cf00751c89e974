package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
)

// races tests inputs that arrive while an engine drives the runs.
func races(t *testing.T, open Open) {
	t.Run("A-16 what was acknowledged is on record once, and the end is last", func(t *testing.T) {
		r := newRig(t, open)
		e := engine.New(engine.Config{Leases: r, Slots: 4})
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- e.Serve(ctx, takeFive) }()
		var wg sync.WaitGroup
		for i := range 12 {
			r.create(task(id(i)))
			wg.Go(func() { r.storm(t, e, id(i)) })
		}
		wg.Wait()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// takeFive drives a run: it records inputs, and ends the run after the fifth.
func takeFive(ctx context.Context, c runs.Claim) (runs.Park, error) {
	events, err := c.Journal.Load(ctx)
	if err != nil {
		return runs.Park{}, err
	}
	n := 0
	for _, ev := range events {
		if ev.GetReceived() != nil {
			n++
		}
	}
	rows, err := c.Journal.Inbound(ctx)
	if err != nil {
		return runs.Park{}, err
	}
	for _, in := range rows {
		if err := c.Journal.Append(ctx, taken(in)); err != nil {
			return runs.Park{}, err
		}
		n++
	}
	if n < 5 {
		return runs.Park{Until: time.Now().AddDate(10, 0, 0)}, nil
	}
	return runs.Park{Done: true}, c.Journal.Append(ctx, succeeded())
}

// storm adds inputs to a run from several goroutines until it has ended, and checks its events.
func (r *rig) storm(t *testing.T, e engine.Engine, root string) {
	acked := make(chan string, 40)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 10 {
				in := followUp(fmt.Sprintf("%s-%d-%d", root, w, i))
				_, _, err := r.Put(r.ctx(), key(root), in, []byte("d"), nil)
				switch {
				case err == nil:
					acked <- in.GetKey()
					e.Wake()
				case !errors.Is(err, runs.ErrTerminal):
					t.Errorf("Put: %v", err)
				}
			}
		})
	}
	record := r.untilEnd(t, root)
	wg.Wait()
	close(acked)
	counts := map[string]int{}
	for _, ev := range record {
		if m := ev.GetReceived().GetMessage(); m != nil {
			counts[m.GetMessageId()]++
		}
	}
	n := 0
	for id := range acked {
		if n++; counts[id] != 1 {
			t.Errorf("%s is on record %d times", id, counts[id])
		}
	}
	if n != len(counts) || record[len(record)-1].GetEnded() == nil || len(r.events(root)) != len(record) {
		t.Errorf("%d acknowledged, %d on record, last %v", n, len(counts), record[len(record)-1])
	}
}

// untilEnd reads a run's events until its end.
func (r *rig) untilEnd(t *testing.T, root string) []*teamv1.Event {
	wake, stop := r.Watch(root)
	defer stop()
	for {
		events := r.events(root)
		if events[len(events)-1].GetEnded() != nil {
			return events
		}
		select {
		case <-wake:
		case <-t.Context().Done():
			return events
		}
	}
}
