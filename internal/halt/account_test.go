package halt_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// crowded is a store in which every halt has stopped tasks of two accounts.
type crowded struct{ *sqlstore.Store }

func (crowded) HaltedTasks(context.Context, int64, int) ([]halt.Task, int, error) {
	return []halt.Task{{Owner: "acme/ann", ID: "1"}, {Owner: "other/eve", ID: "2"}}, 2, nil
}

func (crowded) HaltsBehind(context.Context, int64, string) ([]string, error) {
	return []string{"host-7"}, nil
}

// canceled says that all tasks were canceled.
type canceled struct{}

func (canceled) Halted(_ context.Context, k runs.Key) (*teamv1.HaltedTask, error) {
	return &teamv1.HaltedTask{TaskId: k.ID, Owner: k.Owner, State: teamv1.HaltedState_HALTED_STATE_CANCELED}, nil
}

// ofAcme says that the account acme has made all teams, and that there is a model.
type ofAcme struct{}

func (ofAcme) HaltNames(_ context.Context, kind teamv1.HaltKind) ([]string, bool) {
	if kind == teamv1.HaltKind_HALT_KIND_MODEL {
		return []string{"secret-model"}, true
	}
	return []string{"crew"}, true
}

func (ofAcme) AccountOf(string) string { return "acme" }

func serve(s halt.Store) *halt.Service {
	k := halt.NewKeeper(s, inforce.New(), "this", func() {}, zap.NewNop())
	return halt.NewService(halt.Config{Store: s, Keeper: k, Tasks: canceled{}, Names: ofAcme{}, Clock: time.Now})
}

func as(t *testing.T, owner string, p identity.Permissions) context.Context {
	return identity.WithCaller(t.Context(), identity.Caller{Account: identity.AccountOf(owner), Principal: owner[len(identity.AccountOf(owner))+1:], Permissions: p})
}

func isDenied(err error) bool {
	var e *agent.Error
	return errors.As(err, &e) && e.Reason == agent.ReasonPermissionDenied
}

// TestT_09_HaltsOfTheOperator: callers of an account can neither end nor replace a halt of it that an
// administrator or the server itself has given, and can those of each other.
func TestT_09_HaltsOfTheOperator(t *testing.T) {
	const halting = identity.PermissionHalt
	for _, subject := range []*teamv1.HaltRequest{
		{Kind: teamv1.HaltKind_HALT_KIND_ACCOUNT, Name: "acme"},
		{Kind: teamv1.HaltKind_HALT_KIND_OWNER, Name: "acme/ann"},
		{Kind: teamv1.HaltKind_HALT_KIND_TEAM, Name: "crew"},
	} {
		t.Run(subject.GetKind().String(), func(t *testing.T) {
			store := memstore.Open(t)
			s := serve(store)
			subject.Pause, subject.AllowUnknown = true, true
			put := func(ctx context.Context, reason string) error {
				subject.Reason = reason
				_, err := s.Halt(ctx, subject)
				return err
			}
			end := func(ctx context.Context) error {
				_, err := s.Resume(ctx, &teamv1.ResumeRequest{Kind: subject.GetKind(), Name: subject.GetName()})
				return err
			}
			unchanged := func(reason string) {
				t.Helper()
				snap, err := store.Halts(t.Context())
				if err != nil || len(snap.Halts) != 1 || snap.Halts[0].GetReason() != reason {
					t.Errorf("halts %v, %v", snap.Halts, err)
				}
			}
			admin, ann, bob := as(t, "acme/root", identity.EveryPermission), as(t, "acme/ann", halting), as(t, "acme/bob", halting)
			if err := put(admin, "abuse"); err != nil {
				t.Fatal(err)
			}
			if err := end(ann); !isDenied(err) {
				t.Errorf("ended by the account: %v", err)
			}
			if err := put(ann, "none"); !isDenied(err) {
				t.Errorf("replaced by the account: %v", err)
			}
			unchanged("abuse")
			if err := end(admin); err != nil {
				t.Fatal(err)
			}
			by := &teamv1.Halt{Kind: subject.GetKind(), Name: subject.GetName(), Reason: "rights", By: "team-server"}
			if subject.GetKind() == teamv1.HaltKind_HALT_KIND_TEAM {
				by.Account = "acme"
			}
			if err := store.Halt(t.Context(), by, nil); err != nil {
				t.Fatal(err)
			}
			if err := end(ann); !isDenied(err) {
				t.Errorf("a halt of the server was ended: %v", err)
			}
			if err := end(admin); err != nil {
				t.Fatal(err)
			}
			if err := put(ann, "first"); err != nil {
				t.Fatal(err)
			}
			if err := put(bob, "second"); err != nil {
				t.Errorf("a halt of the same account was not replaced: %v", err)
			}
			unchanged("second")
			if err := end(ann); err != nil {
				t.Errorf("a halt of the same account was not ended: %v", err)
			}
		})
	}
}

// TestT_09_ReceiptOfAnAccount: without ADMIN, the receipt of a halt has no tasks of other accounts and
// no names of replicas, a list no owners of other accounts, and an error no names of models.
func TestT_09_ReceiptOfAnAccount(t *testing.T) {
	s := serve(crowded{memstore.Open(t)})
	req := &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_TEAM, Name: "crew", Reason: "x"}
	short, cancel := context.WithTimeout(as(t, "acme/ann", identity.PermissionHalt), time.Second/2)
	defer cancel()
	resp, err := s.Halt(short, req)
	if err != nil || len(resp.GetTasks()) != 1 || resp.GetTasks()[0].GetOwner() != "acme/ann" || resp.GetTotal() != 2 {
		t.Errorf("the account got %v, %v", resp, err)
	}
	if !slices.Equal(resp.GetStragglers(), []string{"replica 1"}) {
		t.Errorf("the account got the stragglers %v", resp.GetStragglers())
	}
	short, cancel = context.WithTimeout(as(t, "ops/root", identity.EveryPermission), time.Second/2)
	defer cancel()
	if resp, err := s.Halt(short, req); err != nil || len(resp.GetTasks()) != 2 || !slices.Equal(resp.GetStragglers(), []string{"host-7"}) {
		t.Errorf("the administrator got %v, %v", resp, err)
	}
	list, err := s.ListHalts(as(t, "acme/ann", identity.PermissionHalt), nil)
	if err != nil || len(list.GetHalts()) != 1 || list.GetHalts()[0].GetBy() != "" {
		t.Errorf("the account got the list %v, %v", list, err)
	}
	req = &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_MODEL, Name: "m", Reason: "x"}
	if _, err := s.Halt(as(t, "acme/ann", identity.PermissionHalt), req); !isDenied(err) {
		t.Errorf("a model of another name: %v", err)
	}
}

func (canceled) Using(context.Context, runs.Key, teamv1.HaltKind, []string) ([]string, error) {
	return nil, nil
}

func (ofAcme) ModelNames(string) []string { return nil }
