package monitor

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// countedStore counts how often anybody asks how far tasks have come.
type countedStore struct {
	*sqlstore.Store
	looks atomic.Int64
}

func (s *countedStore) Runs(ctx context.Context, owner string, f runs.RunFilter) ([]runs.RunMark, error) {
	s.looks.Add(1)
	return s.Store.Runs(ctx, owner, f)
}

// TestR_003_30_WatcherSleepsWhileOthersWork: a watcher does not read the store while a
// task of another owner runs, and hears of its own owner's task.
func TestR_003_30_WatcherSleepsWhileOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &countedStore{Store: memstore.Open(t)}
		h := a2a.NewHandler(a2a.Config{Agents: registry{}, Store: st, Overview: st})
		m := New(Config{Handler: h, Poll: time.Hour})
		ctx, leave := context.WithCancel(identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann"}))
		told := make(chan struct{}, 100)
		seq, err := m.WatchTeam(ctx, &teamv1.WatchTeamRequest{TeamId: "a"})
		if err != nil {
			t.Fatal(err)
		}
		go hear(seq, told)
		rest := func() { // until the watcher waits to be woken
			time.Sleep(2 * pace)
			synctest.Wait()
		}
		rest()
		begun := st.looks.Load()
		works(t, st.Store, "acme/bob", rest)
		if n := st.looks.Load() - begun; n != 0 {
			t.Errorf("the watcher read the store %d times while the task of another owner ran", n)
		}
		if len(told) != 0 {
			t.Errorf("the watcher was told %d events of another owner", len(told))
		}
		works(t, st.Store, "acme/ann", rest)
		if len(told) < 3 || st.looks.Load() == begun {
			t.Errorf("the watcher was told %d events of its own owner", len(told))
		}
		leave()
		synctest.Wait()
	})
}

func hear(seq iter.Seq2[*teamv1.WatchTeamResponse, error], told chan<- struct{}) {
	for m, err := range seq {
		if err == nil && m.GetEvent() != nil {
			told <- struct{}{}
		}
	}
}

// works runs a task of an owner to its end, and rests after each event.
func works(t *testing.T, st *sqlstore.Store, owner string, rest func()) {
	t.Helper()
	id := "of " + owner
	if _, _, err := st.Create(t.Context(), runs.New{Owner: owner, Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Message: agent.UserMessage(id, "do it")}}); err != nil {
		t.Fatal(err)
	}
	rest()
	claims, _, err := st.Claim(t.Context(), "r", engine.NewRoom(1, nil))
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	events := []*teamv1.Event{{Agent: "a", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}}
	for range 10 {
		events = append(events, &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: "on"}}})
	}
	events = append(events, &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}}})
	for _, ev := range events {
		if err := claims[0].Journal.Append(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		rest()
	}
}
