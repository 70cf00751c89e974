package halt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// wait is how long Halt waits for the replicas, and for the end of what it cancels.
	wait = 15 * time.Second
	// look is how often it looks, in case a notification was lost.
	look = 100 * time.Millisecond
	// maxTasks is the number of tasks that a receipt lists.
	maxTasks = 1000
	// maxReason and maxName bound the texts of a request, in characters.
	maxReason = 500
	maxName   = 200
)

// Names are the teams, agents and models that a server has. Implementations are safe for concurrent
// use.
type Names interface {
	// HaltNames returns the names of a kind of subject that the caller of ctx may see, and whether the
	// server knows all of them.
	HaltNames(ctx context.Context, kind teamv1.HaltKind) (names []string, all bool)
	// ModelNames returns the names, as in journals, of the models that a halt of a model with a name covers.
	ModelNames(name string) []string
	// AccountOf returns the account that has made a team or an agent by the API, "" for one of the configuration file
	// and for one that is unknown.
	AccountOf(id string) string
}

// Config configures a Service. All fields but Names and Log are required.
type Config struct {
	Store Store
	// Keeper applies the halts to this replica.
	Keeper *Keeper
	// Tasks tells what became of tasks.
	Tasks interface {
		Halted(ctx context.Context, k runs.Key) (*teamv1.HaltedTask, error)
		// Using returns the ids of the steps of a task that use a subject of a kind with one of the names and have
		// not ended, or have ended because it is halted.
		Using(ctx context.Context, k runs.Key, kind teamv1.HaltKind, names []string) ([]string, error)
	}
	// Names are the names that may be halted; nil means any.
	Names Names
	// Clock returns the current time.
	Clock func() time.Time
	// Log receives the halts, and what the caller is not told; nil discards both.
	Log *zap.Logger
}

// Service implements HaltService. It is safe for concurrent use.
type Service struct{ c Config }

// NewService returns a service.
func NewService(c Config) *Service {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &Service{c}
}

// Halt implements HaltService.
func (s *Service) Halt(ctx context.Context, req *teamv1.HaltRequest) (*teamv1.HaltResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	made := cmp.Or(req.GetAccount(), s.accountOf(req.GetKind(), req.GetName()))
	if err := mayHalt(who, req.GetKind(), req.GetName(), made); err != nil {
		return nil, err
	}
	if err := s.checkName(ctx, req, made); err != nil { // only now, because the error lists names
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	h := &teamv1.Halt{
		Kind: req.GetKind(), Name: req.GetName(), Account: made, Reason: strings.TrimSpace(req.GetReason()), Pause: req.GetPause(),
		By: who.Owner(), At: timestamppb.New(s.c.Clock()),
		ByAccount: !who.May(identity.PermissionAdmin),
	}
	changed, stop := s.c.Store.WatchHalts()
	defer stop()
	if err := s.c.Store.Halt(Record(ctx, h), h, mayChange(who)); err != nil {
		return nil, storeError(err)
	}
	s.c.Log.Warn("halted", zap.String("subject", inforce.Describe(h)), zap.String("by", h.GetBy()), zap.String("reason", h.GetReason()), zap.Bool("pause", h.GetPause()))
	held, err := s.c.Store.HeldBehind(ctx, h.GetVersion(), s.c.Keeper.replica, maxTasks)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	resp := &teamv1.HaltResponse{Halt: h}
	if resp.Stragglers, err = s.await(ctx, h.GetVersion(), changed); err != nil {
		return nil, runs.StoreError("", err)
	}
	if err := s.recordFrozen(context.WithoutCancel(ctx), h, held); err != nil {
		return nil, runs.StoreError("", err)
	}
	if err := s.receipt(ctx, who, resp); err != nil {
		return nil, runs.StoreError("", err)
	}
	if !who.May(identity.PermissionAdmin) {
		for i := range resp.GetStragglers() {
			resp.Stragglers[i] = fmt.Sprintf("replica %d", i+1) // their names are of the server
		}
	}
	return resp, nil
}

// Record returns a context with which the store records in the audit log that it puts h in force.
func Record(ctx context.Context, h *teamv1.Halt) context.Context {
	details := map[string]string{"reason": h.GetReason()}
	if h.GetAccount() != "" {
		details["account"] = h.GetAccount()
	}
	return audit.Record(ctx, h.GetAt().AsTime(), "halt", inforce.Describe(h), details)
}

// storeError returns an error of a change of halts for the caller.
func storeError(err error) error {
	if refused := (*agent.Error)(nil); errors.As(err, &refused) && refused.Reason == agent.ReasonPermissionDenied {
		return refused // by a May
	}
	return runs.StoreError("", err)
}

// mayChange allows a caller who may not administer the server to end or replace only halts that such a
// caller of the same account has given.
func mayChange(who identity.Caller) May {
	return func(present *teamv1.Halt) error {
		if present == nil || who.May(identity.PermissionAdmin) || present.GetByAccount() && identity.AccountOf(present.GetBy()) == who.Account {
			return nil
		}
		return identity.Denied(identity.PermissionAdmin)
	}
}

// checkRequest returns INVALID_REQUEST with everything that is wrong with a request, except for a name
// that is unknown.
func checkRequest(req *teamv1.HaltRequest) error {
	var faults a2aerror.Faults
	checkSubject(&faults, req)
	switch n := utf8.RuneCountInString(strings.TrimSpace(req.GetReason())); {
	case n == 0:
		faults.Add("reason", "is required; callers whose messages are refused see it")
	case n > maxReason:
		faults.Add("reason", "has %d characters; at most %d are allowed", n, maxReason)
	}
	return faults.Err()
}

// checkName returns INVALID_REQUEST if the name of a request is unknown, or belongs to another account than made.
func (s *Service) checkName(ctx context.Context, req *teamv1.HaltRequest, made string) error {
	var faults a2aerror.Faults
	if s.c.Names == nil || req.GetAllowUnknown() {
		return nil
	}
	names, all := s.c.Names.HaltNames(ctx, req.GetKind())
	switch {
	case all && !slices.Contains(names, req.GetName()):
		faults.Add("name", "%.64q is unknown; use one of %s, or set allowUnknown", req.GetName(), cmp.Or(strings.Join(names, ", "), "none"))
	case made != s.accountOf(req.GetKind(), req.GetName()):
		faults.Add("account", "%.64q has no %.64q at the moment; set allowUnknown if it had", made, req.GetName())
	}
	return faults.Err()
}

// accountOf returns the account that has made the team or agent with a name by the API, if any.
func (s *Service) accountOf(kind teamv1.HaltKind, name string) string {
	if s.c.Names == nil || !isMade(kind) {
		return ""
	}
	return s.c.Names.AccountOf(name)
}

// isMade reports whether accounts can make subjects of a kind.
func isMade(kind teamv1.HaltKind) bool {
	return kind == teamv1.HaltKind_HALT_KIND_TEAM || kind == teamv1.HaltKind_HALT_KIND_AGENT
}

// mayHalt returns PERMISSION_DENIED if a caller may not halt a subject, which the account made has made. Callers who
// may not administer the server may halt their own account, its owners, and the teams and agents that it has made.
func mayHalt(who identity.Caller, kind teamv1.HaltKind, name, made string) error {
	if who.May(identity.PermissionAdmin) || kind == teamv1.HaltKind_HALT_KIND_ACCOUNT && name == who.Account ||
		kind == teamv1.HaltKind_HALT_KIND_OWNER && identity.AccountOf(name) == who.Account || isMade(kind) && made == who.Account {
		return nil
	}
	return identity.Denied(identity.PermissionAdmin)
}

// subject names what to halt or to resume.
type subject interface {
	GetKind() teamv1.HaltKind
	GetName() string
	GetAccount() string
}

// checkSubject adds the faults of a subject.
func checkSubject(faults *a2aerror.Faults, of subject) {
	kind, name := of.GetKind(), of.GetName()
	server := kind == teamv1.HaltKind_HALT_KIND_SERVER
	switch made := of.GetAccount(); {
	case made != "" && !isMade(kind):
		faults.Add("account", "is only for a team or an agent")
	case made != "" && !identity.ValidAccount(made):
		faults.Add("account", "must be an account: %s", identity.AccountRule)
	}
	switch _, known := teamv1.HaltKind_name[int32(kind)]; {
	case !known || kind == teamv1.HaltKind_HALT_KIND_UNSPECIFIED:
		faults.Add("kind", "is required; use HALT_KIND_SERVER, _ACCOUNT, _OWNER, _TEAM, _AGENT, _MODEL or _TOOL")
	case server && name != "":
		faults.Add("name", "must be empty for the server; halt a team, an agent, a model, a tool or an account by its name")
	case kind == teamv1.HaltKind_HALT_KIND_ACCOUNT && !identity.ValidAccount(name):
		faults.Add("name", "must be an account: %s", identity.AccountRule)
	case !server && (name == "" || utf8.RuneCountInString(name) > maxName):
		faults.Add("name", "must have 1 to %d characters", maxName)
	}
}

// await waits until all replicas have applied a version or lost their lease, or ctx ends. It returns
// those that have not.
func (s *Service) await(ctx context.Context, version int64, changed <-chan struct{}) ([]string, error) {
	mine, applied := make(chan error, 1), false
	var work sync.WaitGroup
	defer work.Wait()
	refreshing, cancel := context.WithCancel(ctx)
	defer cancel() // before the wait
	work.Go(func() { mine <- s.c.Keeper.Refresh(refreshing) })
	for {
		late := false
		select {
		case <-ctx.Done():
			late = true
		default:
		}
		behind, err := s.c.Store.HaltsBehind(context.WithoutCancel(ctx), version, s.c.Keeper.replica)
		if err != nil {
			return nil, err
		}
		switch {
		case applied && len(behind) == 0:
			return nil, nil
		case late && !applied:
			return append(behind, s.c.Keeper.replica), nil
		case late:
			return behind, nil
		}
		select {
		case err := <-mine:
			if err != nil && ctx.Err() == nil {
				return nil, err
			}
			applied = err == nil
			mine = nil
		case <-changed:
		case <-time.After(look):
		case <-ctx.Done():
		}
	}
}

// recordFrozen records the steps that a halt covers of the runs that were held by replicas which have not applied the
// halt: they are frozen or cut off from the store, and cannot say themselves what they have begun. A halt that covers whole runs has
// recorded these already, and one that pauses lets what has begun end.
func (s *Service) recordFrozen(ctx context.Context, h *teamv1.Halt, held []Held) error {
	if len(held) == 0 || h.GetPause() {
		return nil
	}
	names := []string{h.GetName()}
	switch h.GetKind() {
	case teamv1.HaltKind_HALT_KIND_TEAM, teamv1.HaltKind_HALT_KIND_AGENT, teamv1.HaltKind_HALT_KIND_TOOL:
	case teamv1.HaltKind_HALT_KIND_MODEL:
		if s.c.Names != nil {
			names = append(names, s.c.Names.ModelNames(h.GetName())...)
		}
	default:
		return nil
	}
	applied, err := s.c.Store.HaltsApplied(ctx, h.GetVersion())
	if err != nil {
		return err
	}
	var steps []Task
	for _, run := range held {
		if slices.Contains(applied, run.Replica) {
			continue
		}
		ids, err := s.c.Tasks.Using(ctx, runs.Key{Owner: run.Owner, ID: run.ID}, h.GetKind(), names)
		if err != nil && !a2aerror.IsNotFound(err) {
			return err
		}
		for _, id := range ids {
			steps = append(steps, Task{Owner: run.Owner, ID: id})
		}
	}
	return s.c.Store.RecordHalted(ctx, h.GetVersion(), steps)
}

// receipt adds what the halt has stopped to a response, once it has stopped or ctx has ended. Callers
// who may not administer the server see the tasks of their account; others only count.
func (s *Service) receipt(ctx context.Context, who identity.Caller, resp *teamv1.HaltResponse) error {
	reading := context.WithoutCancel(ctx)
	if err := s.c.Store.ReachRuns(reading, resp.GetHalt()); err != nil {
		return err
	}
	s.c.Keeper.wake()
	tasks, total, err := s.c.Store.HaltedTasks(reading, resp.GetHalt().GetVersion(), maxTasks)
	if err != nil {
		return err
	}
	resp.Total = int32(total) //nolint:gosec // far fewer
	for _, t := range tasks {
		if !who.May(identity.PermissionAdmin) && identity.AccountOf(t.Owner) != who.Account {
			continue
		}
		one, err := s.stopped(ctx, t, resp.GetHalt())
		switch {
		case a2aerror.IsNotFound(err): // it has been deleted since
			resp.Total--
		case err != nil:
			s.c.Log.Warn("cannot read what a halt has stopped", zap.String("task", t.ID), zap.Error(err))
			resp.Tasks = append(resp.Tasks, &teamv1.HaltedTask{TaskId: t.ID, Owner: t.Owner, State: teamv1.HaltedState_HALTED_STATE_STOPPING})
		default:
			resp.Tasks = append(resp.Tasks, one)
		}
	}
	return nil
}

// stopped returns what became of a task, once it has stopped or ctx has ended. A task that is paused
// has stopped only if the halt pauses tasks.
func (s *Service) stopped(ctx context.Context, t Task, by *teamv1.Halt) (*teamv1.HaltedTask, error) {
	for n := 1; ; n++ {
		one, err := s.c.Tasks.Halted(context.WithoutCancel(ctx), runs.Key{Owner: t.Owner, ID: t.ID})
		if one.GetState() == teamv1.HaltedState_HALTED_STATE_PAUSED && !by.GetPause() {
			one.State = teamv1.HaltedState_HALTED_STATE_STOPPING
		}
		if err != nil || one.GetState() != teamv1.HaltedState_HALTED_STATE_STOPPING || ctx.Err() != nil {
			return one, err
		}
		select {
		case <-time.After(look / 4):
		case <-ctx.Done():
		}
		if n%8 == 0 { // a run that was just parking may have been missed
			if err := s.c.Store.ReachRuns(context.WithoutCancel(ctx), by); err != nil {
				return one, err
			}
			s.c.Keeper.wake()
		}
	}
}

// Resume implements HaltService.
func (s *Service) Resume(ctx context.Context, req *teamv1.ResumeRequest) (*teamv1.ResumeResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	var faults a2aerror.Faults
	checkSubject(&faults, req)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	made, err := s.halted(ctx, who, req)
	if err != nil {
		return nil, err
	}
	if err := mayHalt(who, req.GetKind(), req.GetName(), made); err != nil {
		return nil, err
	}
	of := &teamv1.Halt{Kind: req.GetKind(), Name: req.GetName(), Account: made}
	h, err := s.c.Store.EndHalt(audit.Record(ctx, s.c.Clock(), "resume", inforce.Describe(of), nil), req.GetKind(), KeyOf(of), mayChange(who))
	if err != nil {
		return nil, storeError(err)
	}
	if h == nil {
		return &teamv1.ResumeResponse{}, nil
	}
	s.c.Log.Warn("resumed", zap.String("subject", inforce.Describe(h)), zap.String("by", who.Owner()))
	if err := s.c.Keeper.Refresh(ctx); err != nil {
		return nil, runs.StoreError("", err)
	}
	return &teamv1.ResumeResponse{Halt: h}, nil
}

// halted returns the account that has made the team or agent to resume. Without the name of an account that is the
// caller's or, if the caller may administer the server, that of the only halt of the name or else the one that has made
// the present one.
func (s *Service) halted(ctx context.Context, who identity.Caller, req *teamv1.ResumeRequest) (string, error) {
	made := s.accountOf(req.GetKind(), req.GetName())
	switch {
	case req.GetAccount() != "" || !isMade(req.GetKind()):
		return req.GetAccount(), nil
	case !who.May(identity.PermissionAdmin):
		return who.Account, nil
	}
	snap, err := s.c.Store.Halts(ctx)
	if err != nil {
		return "", runs.StoreError("", err)
	}
	of := slices.DeleteFunc(slices.Clone(snap.Halts), func(h *teamv1.Halt) bool { return h.GetKind() != req.GetKind() || h.GetName() != req.GetName() })
	if len(of) == 1 {
		return of[0].GetAccount(), nil
	}
	return made, nil
}

// ListHalts implements HaltService.
func (s *Service) ListHalts(ctx context.Context, _ *teamv1.ListHaltsRequest) (*teamv1.ListHaltsResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := s.c.Store.Halts(ctx)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	halts := slices.DeleteFunc(slices.Clone(snap.Halts), func(h *teamv1.Halt) bool {
		return h.GetKind() != teamv1.HaltKind_HALT_KIND_SERVER && mayHalt(who, h.GetKind(), h.GetName(), h.GetAccount()) != nil
	})
	for i, h := range halts {
		if !who.May(identity.PermissionAdmin) && identity.AccountOf(h.GetBy()) != who.Account {
			halts[i] = proto.CloneOf(h)
			halts[i].By = "" // owners of other accounts are not shown
		}
	}
	return &teamv1.ListHaltsResponse{Halts: halts}, nil
}
