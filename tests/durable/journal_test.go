//go:build linux

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// journals are the events of tasks, by root.
type journals = map[string][]*teamv1.Event

// owner is what the tasks of a principal are kept under.
func owner(i int) string {
	return identity.Caller{Account: principals[i][0], Principal: principals[i][1]}.Owner()
}

// events reads a journal; that of a task that is not there is empty.
func events(ctx context.Context, s runs.Store, k runs.Key) ([]*teamv1.Event, error) {
	const page = 500
	var all []*teamv1.Event
	for {
		next, err := s.Events(ctx, k, int64(len(all)), page)
		if errors.Is(err, runs.ErrNotFound) {
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

// record reads the journals of all tasks that were acknowledged, from the store
// itself.
func (c command) record(entries []entry) (r record, err error) {
	ctx := context.Background()
	s, err := sqlstore.Open(ctx, c.store, sqlstore.Config{})
	if err != nil {
		return r, err
	}
	defer s.Close()
	r.events = journals{}
	for _, e := range entries {
		if e.Op != opTask {
			continue
		}
		if r.events[e.Task], err = events(ctx, s, runs.Key{Owner: owner(e.Owner), ID: e.Task}); err != nil {
			return r, err
		}
	}
	for i := range principals {
		page, err := s.List(ctx, owner(i), runs.Filter{PageSize: 1})
		if err != nil {
			return r, err
		}
		r.tasks += page.Total
	}
	return r, nil
}

// verdict checks a history against what the store holds.
func (c command) verdict(h *history) (*report, error) {
	entries, err := h.all()
	if err != nil {
		return nil, err
	}
	r, err := c.record(entries)
	if err != nil {
		return nil, err
	}
	found := check(entries, r)
	if found.err() != nil {
		err = r.save(filepath.Join(filepath.Dir(h.path), recordFile))
	}
	return found, err
}

// recordFile is what was on record, beside the history that it was compared with.
const recordFile = "record.json"

// saved is a record in a file.
type saved struct {
	Tasks  int                 `json:"tasks"`
	Events map[string][][]byte `json:"events"`
}

func (r record) save(path string) error {
	s := saved{Tasks: r.tasks, Events: map[string][][]byte{}}
	for task, events := range r.events {
		for _, ev := range events {
			b, err := proto.Marshal(ev)
			if err != nil {
				return err
			}
			s.Events[task] = append(s.Events[task], b)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func loadRecord(path string) (record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return record{}, err
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return record{}, err
	}
	r := record{tasks: s.Tasks, events: journals{}}
	for task, events := range s.Events {
		for _, b := range events {
			ev := &teamv1.Event{}
			if err := proto.Unmarshal(b, ev); err != nil {
				return record{}, err
			}
			r.events[task] = append(r.events[task], ev)
		}
	}
	return r, nil
}

// TestCheck_Saved checks a history again that a failed run has left, for instance
// with "go test -artifacts".
func TestCheck_Saved(t *testing.T) {
	dir := os.Getenv(historyVariable)
	if dir == "" {
		t.Skipf("%s names no saved history", historyVariable)
	}
	entries, err := read(filepath.Join(dir, historyFile))
	if err != nil {
		t.Fatal(err)
	}
	r, err := loadRecord(filepath.Join(dir, recordFile))
	if err != nil {
		t.Fatal(err)
	}
	found := check(entries, r)
	t.Log(found)
	if err := found.err(); err != nil {
		t.Error(err)
	}
}
