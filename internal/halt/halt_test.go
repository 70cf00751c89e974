package halt_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2aerror"
)

// shared is a store that has a second replica, which is behind until it is caught up.
type shared struct {
	*sqlstore.Store

	mu     sync.Mutex
	other  int64   // the version that the other replica has applied, or a very high one
	acked  []int64 // by this replica
	broken error   // of the next acknowledgement
}

func (s *shared) HaltsBehind(_ context.Context, version int64, _ string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.other < version {
		return []string{"other"}, nil
	}
	return nil, nil
}

func (s *shared) AcknowledgeHalts(ctx context.Context, replica string, version int64, stopped map[int64][]halt.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken; err != nil {
		s.broken = nil
		return err
	}
	s.acked = append(s.acked, version)
	return s.Store.AcknowledgeHalts(ctx, replica, version, stopped)
}

// acks returns the versions that this replica has acknowledged.
func (s *shared) acks() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acked)
}

// nothing is what became of tasks, of which there are none.
type nothing struct{}

func (nothing) Halted(context.Context, runs.Key) (*teamv1.HaltedTask, error) {
	return nil, a2aerror.TaskNotFound("")
}

// rig is a service on a shared store, with its keeper.
type rig struct {
	*testing.T
	store   *shared
	halts   *inforce.Halts
	keeper  *halt.Keeper
	service *halt.Service
	ctx     context.Context // of a manager
}

func newRig(t *testing.T) *rig {
	s := &shared{Store: memstore.Open(t), other: 1 << 60}
	halts := inforce.New()
	k := halt.NewKeeper(s, halts, "this", func() {}, zap.NewNop())
	return &rig{
		T: t, store: s, halts: halts, keeper: k, ctx: identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann", Permissions: identity.EveryPermission}),
		service: halt.NewService(halt.Config{Store: s, Keeper: k, Tasks: nothing{}, Clock: time.Now}),
	}
}

func (r *rig) halt() *teamv1.HaltResponse {
	r.Helper()
	resp, err := r.service.Halt(r.ctx, &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_MODEL, Name: "m", Reason: "x", Pause: true})
	if err != nil {
		r.Fatal(err)
	}
	return resp
}

// TestKeeper_Settles: a replica acknowledges a halt only when nothing is about to begin that it covers.
func TestKeeper_Settles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		use, _, err := r.halts.Begin(t.Context(), "1", inforce.Subject{Kind: teamv1.HaltKind_HALT_KIND_MODEL, Names: [][]string{{"m"}}})
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan *teamv1.HaltResponse, 1)
		go func() { answered <- r.halt() }()
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if acks := r.store.acks(); len(acks) > 0 || len(answered) > 0 {
			t.Errorf("acknowledged %v while a call is beginning", acks)
		}
		if err := use.Check(); err == nil {
			t.Error("the call may take effect")
		}
		use.End()
		resp := <-answered
		if acks := r.store.acks(); !slices.Equal(acks, []int64{resp.GetHalt().GetVersion()}) || len(resp.GetStragglers()) > 0 {
			t.Errorf("acknowledged %v, the answer is %v", acks, resp)
		}
	})
}

// TestKeeper_Run: changes by other replicas are applied, also if nobody tells of them, and an
// acknowledgement that fails is repeated.
func TestKeeper_Run(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.keeper.Run(ctx) })
		defer running.Wait()
		defer cancel()
		r.store.broken = runs.ErrStorage
		h := &teamv1.Halt{Kind: teamv1.HaltKind_HALT_KIND_SERVER, Reason: "x"}
		if err := r.store.Halt(t.Context(), h, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		if err := r.halts.Refusal("acme/ann", "", "desk"); err == nil || !slices.Equal(r.store.acks(), []int64{h.GetVersion()}) {
			t.Errorf("refusal %v, acknowledged %v", err, r.store.acks())
		}
		if _, err := r.store.EndHalt(t.Context(), h.GetKind(), "", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if err := r.halts.Refusal("acme/ann", "", "desk"); err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestService_Waits: the answer comes when another replica has applied the halt, and lists it as a
// straggler if it has not within 15 seconds.
func TestService_Waits(t *testing.T) {
	for _, c := range []struct {
		name       string
		caughtUp   time.Duration // 0 means never
		stragglers []string
		after      time.Duration
	}{{"in time", 4 * time.Second, nil, 4 * time.Second}, {"never", 0, []string{"other"}, 15 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.store.other = 0
				if c.caughtUp > 0 {
					time.AfterFunc(c.caughtUp, func() {
						r.store.mu.Lock()
						defer r.store.mu.Unlock()
						r.store.other = 1 << 60
					})
				}
				began := time.Now()
				resp := r.halt()
				if took := time.Since(began); !slices.Equal(resp.GetStragglers(), c.stragglers) || took < c.after || took > c.after+time.Second/5 {
					t.Errorf("stragglers %v after %v, want %v after %v", resp.GetStragglers(), took, c.stragglers, c.after)
				}
				if err := r.halts.InForce(resp.GetHalt().GetVersion()); err == nil {
					t.Error("the halt is not in force here")
				}
			})
		})
	}
}

func (nothing) Using(context.Context, runs.Key, teamv1.HaltKind, []string) ([]string, error) {
	return nil, nil
}
