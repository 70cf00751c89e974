package run

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/internal/testkit/dbtest"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// rig is the runs of a database, without work in the background.
type rig struct {
	*Runs
	*Intake
	db     *db.DB
	pushes *push.Pushes
}

func opened(t testing.TB, url string) *rig {
	t.Helper()
	d := dbtest.Open(t, url)
	s := &rig{db: d, pushes: push.New(d)}
	s.Runs = New(d, s.pushes)
	s.Intake = &Intake{DB: d, Claims: s.Runs, Pushes: s.pushes}
	if s.Stale() {
		if err := s.AdoptOrphans(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// shown returns the task of a root as readers see it: as this process has recorded it, or as it is stored at its end.
func (s *rig) shown(t testing.TB, root string) (*a2av1.Task, int64, error) {
	t.Helper()
	if task, seq, ok, err := s.LiveTask(context.Background(), root); ok {
		return task, seq, err
	}
	var seq int64
	var snap []byte
	q, ctx := s.db.Reader(), context.Background()
	if err := q.Scan(ctx, []any{&seq, &snap}, `SELECT snap_seq, snap FROM task WHERE id = $1`, root); err != nil {
		return nil, 0, err
	}
	task := &a2av1.Task{}
	err := record.Decoded(ctx, q, root, seq, snap, func(body []byte) error { return proto.Unmarshal(body, task) })
	return task, seq, err
}

// TestPostgres_R_003_30_ALookWakesTheOwner: what a look finds changed wakes the watchers of the owner of that root, and no
// others. Once a database begins to listen for changes of others, it wakes all of them, which may be during one of the looks.
func TestPostgres_R_003_30_ALookWakesTheOwner(t *testing.T) {
	s := opened(t, pgtest.URL(t))
	anns, bobs := 0, 0
	for _, root := range []string{"one", "two", "three"} {
		accepted := &teamv1.Accepted{TaskId: root, Agent: "a", Message: agent.UserMessage(root, "do it")}
		if _, _, err := s.Create(t.Context(), runs.New{Owner: "acme/bob", Accepted: accepted}); err != nil {
			t.Fatal(err)
		}
		if claims, _, err := s.Claim(t.Context(), "r", engine.NewRoom(1, nil)); err != nil || len(claims) != 1 { // it is looked at
			t.Fatal(claims, err)
		}
		ann, stopAnn := s.db.WatchAll("acme/ann")
		bob, stopBob := s.db.WatchAll("acme/bob")
		if seen, err := s.look(t.Context(), nil); err != nil || len(seen) == 0 {
			t.Fatal(seen, err)
		}
		anns, bobs = anns+len(ann), bobs+len(bob)
		stopAnn()
		stopBob()
	}
	if bobs != 3 || anns > 1 {
		t.Errorf("the watcher of the owner has %d signals of 3 looks, that of another one %d, want at most 1", bobs, anns)
	}
}
