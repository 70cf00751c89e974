// Package collab implements the collaboration service. A collaboration is a task of a team
// with a brief. Its status, results and metrics are computed from its journal and from the
// definition with which its run began; nothing else is stored.
package collab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Teams gives access to teams and their definitions. It is safe for concurrent use.
type Teams interface {
	// Ready returns nil if a team is served, otherwise TEAM_NOT_FOUND or TEAM_NOT_READY.
	Ready(ctx context.Context, id string) error
	// Definition returns a revision of the definition of a team, or the served one if
	// revision is empty. It returns nil if the definition no longer exists.
	Definition(ctx context.Context, id, revision string) (*teamv1.TeamConfig, error)
	// AccountOf returns the account that has made a team by the API, "" for one of the configuration file.
	AccountOf(id string) string
	// Entry returns the catalog entry that defines a team, which another replica can
	// delete; "" if no entry defines it.
	Entry(id string) string
}

// Slots lists running collaborations. Stores implement it.
type Slots interface {
	// Collaborations returns the collaborations of a team that have not ended, of all
	// owners; see agent.KeyOf.
	Collaborations(ctx context.Context, key string) ([]runs.Key, error)
}

// Config configures a Service. Handler is required.
type Config struct {
	// Handler gives access to the tasks.
	Handler *a2a.Handler
	// Teams gives access to teams. If Teams is nil, they are the teams that Handler serves,
	// and their definitions are unknown.
	Teams Teams
	// Slots lists running collaborations. If Slots is nil, none are listed.
	Slots Slots
	// Full reports whether the server has no capacity for another collaboration. If Full is
	// nil, it always has capacity.
	Full func() bool
	// Clock returns the time of the store; the default is time.Now.
	Clock func() time.Time
}

// Service implements the collaboration service. The context of each call carries the
// caller, who sees only its own collaborations. The errors are *a2aerror.Error and *agent.Error.
// Service is safe for concurrent use.
type Service struct {
	c Config
	h *a2a.Handler
}

// New returns a Service.
func New(c Config) *Service {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Teams == nil {
		c.Teams = handlerTeams{c.Handler}
	}
	return &Service{c: c, h: c.Handler}
}

// handlerTeams implements Teams for the teams of a handler, whose definitions are unknown.
type handlerTeams struct{ h *a2a.Handler }

func (s handlerTeams) Ready(ctx context.Context, id string) error {
	a, err := s.h.Find(ctx, id)
	if err != nil && agent.AsError(err).Reason != agent.ReasonAgentNotFound {
		return err
	}
	if _, isTeam := a.(agent.Composite); isTeam {
		return nil
	}
	return agent.Errorf(agent.CodeNotFound, agent.ReasonTeamNotFound, "there is no team %.64q", id)
}

func (handlerTeams) Definition(context.Context, string, string) (*teamv1.TeamConfig, error) {
	return &teamv1.TeamConfig{}, nil
}

func (handlerTeams) AccountOf(string) string { return "" }

func (handlerTeams) Entry(string) string { return "" }

// StartCollaboration starts a collaboration and returns its first assignments and an
// estimate of its end.
func (s *Service) StartCollaboration(ctx context.Context, req *teamv1.StartCollaborationRequest) (*teamv1.StartCollaborationResponse, error) {
	if err := check(req); err != nil {
		return nil, err
	}
	id, err := s.begin(ctx, req)
	if err != nil {
		return nil, err
	}
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	est, bound, err := s.estimate(ctx, r)
	if err != nil {
		return nil, err
	}
	return &teamv1.StartCollaborationResponse{
		CollaborationId: r.Root, WorkflowStatus: r.workflowStatus(), EstimatedCompletion: timestamppb.New(est), EstimateIsBound: bound,
		InitialAssignments: r.plan.first(r.Accepted),
	}, nil
}

// begin creates the task of a collaboration and returns its ID.
func (s *Service) begin(ctx context.Context, req *teamv1.StartCollaborationRequest) (string, error) {
	if err := s.c.Teams.Ready(ctx, req.GetTeamId()); err != nil {
		return "", err
	}
	if s.c.Full != nil && s.c.Full() {
		return "", &agent.Error{
			Reason: agent.ReasonInsufficientResources, Code: agent.CodeResourceExhausted, Retry: true, RetryAfter: retryAfter,
			Message: "this server has reached its maximum of concurrent runs; try again when one has ended",
		}
	}
	def, err := s.c.Teams.Definition(ctx, req.GetTeamId(), "")
	if err != nil {
		return "", err
	}
	start := s.start(req, def)
	start.Entry = s.c.Teams.Entry(req.GetTeamId())
	id, err := s.h.Start(ctx, start)
	if err != nil {
		return "", requestError(err, req.GetTeamId(), start.Concurrent)
	}
	return id, nil
}

// start converts a request to the start of a task.
func (s *Service) start(req *teamv1.StartCollaborationRequest, def *teamv1.TeamConfig) a2a.Start {
	bounds := req.GetConstraints()
	if bounds == nil {
		bounds = &teamv1.CollaborationConstraints{}
	}
	start := a2a.Start{
		Agent: req.GetTeamId(), Message: agent.UserMessage(req.GetRequestId(), task(req)), Limits: limits(req), Concurrent: concurrent(def),
		Brief: &teamv1.Brief{
			TaskDescription: req.GetTaskDescription(), ExpectedOutput: req.GetExpectedOutput(), Context: req.GetContext(), MaxDuration: bounds.GetMaxDuration(),
			QualityThreshold: bounds.QualityThreshold, //nolint:protogetter // set or not matters
		},
	}
	if start.Message.GetMessageId() == "" {
		start.Message.MessageId = uuid.NewString()
	}
	if most := bounds.GetMaxDuration(); most != nil {
		start.Deadline = s.c.Clock().Add(most.AsDuration())
	}
	return start
}

// requestError converts an error about the message of the task to one about the request.
func requestError(err error, team string, most int) error {
	var bad *a2aerror.Error
	var of *agent.Error
	switch {
	case errors.As(err, &bad) && len(bad.Violations) == 1 && bad.Violations[0].Field == "message.messageId":
		return a2aerror.Invalid(agent.Violation{Field: "requestId", Description: bad.Violations[0].Description})
	case errors.As(err, &of) && of.Reason == agent.ReasonCollaborationInProgress:
		busy := *of
		busy.Message = runningText(team, most) + ", the maximum (max_concurrent_collaborations); wait for one to end, or stop one"
		return &busy
	case errors.Is(err, runs.ErrDeleted), errors.As(err, &of) && of.Reason == agent.ReasonAgentNotFound: // deleted meanwhile by this replica or another one
		return agent.Errorf(agent.CodeNotFound, agent.ReasonTeamNotFound, "there is no team %.64q", team)
	case errors.As(err, &of) && of.Reason == agent.ReasonMessageIDReused:
		return agent.Errorf(of.Code, of.Reason, "requestId was already used with different content; use a new id")
	}
	return err
}

// runningText says how many collaborations of a team are running, for all callers.
func runningText(team string, n int) string {
	s := "s"
	if n == 1 {
		s = ""
	}
	return fmt.Sprintf("team %q has %d running collaboration%s", team, n, s)
}

// task returns the message for the team. It contains the brief as text, for agents that do
// not read briefs.
func task(req *teamv1.StartCollaborationRequest) string {
	return req.GetTaskDescription() + "\n\nExpected output: " + req.GetExpectedOutput()
}

// concurrent returns the maximum number of running collaborations of a team.
func concurrent(def *teamv1.TeamConfig) int {
	return max(int(def.GetMaxConcurrentCollaborations()), 1)
}

// GetCollaborationStatus returns the status of a collaboration.
func (s *Service) GetCollaborationStatus(ctx context.Context, req *teamv1.GetCollaborationStatusRequest) (*teamv1.GetCollaborationStatusResponse, error) {
	r, err := s.read(ctx, req.GetCollaborationId())
	if err != nil {
		return nil, err
	}
	return r.status(req.GetIncludeDetails()), nil
}

// PauseCollaboration pauses a collaboration: no new work starts, and running work finishes.
func (s *Service) PauseCollaboration(ctx context.Context, req *teamv1.PauseCollaborationRequest) (*teamv1.PauseCollaborationResponse, error) {
	st, err := s.command(ctx, req.GetCollaborationId(), s.h.Pause)
	return &teamv1.PauseCollaborationResponse{Collaboration: st}, err
}

// ResumeCollaboration resumes a paused collaboration.
func (s *Service) ResumeCollaboration(ctx context.Context, req *teamv1.ResumeCollaborationRequest) (*teamv1.ResumeCollaborationResponse, error) {
	st, err := s.command(ctx, req.GetCollaborationId(), s.h.Resume)
	return &teamv1.ResumeCollaborationResponse{Collaboration: st}, err
}

// command runs a command on a collaboration and returns its status. The error is
// UNSUPPORTED_OPERATION if it has ended.
func (s *Service) command(ctx context.Context, id string, do func(context.Context, string) (*a2av1.Task, error)) (*teamv1.GetCollaborationStatusResponse, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.ended() {
		return nil, a2aerror.UnsupportedOperation("collaboration %q has ended", id)
	}
	if _, err := do(ctx, id); err != nil {
		return nil, notFound(id, err)
	}
	if r, err = s.read(ctx, id); err != nil {
		return nil, err
	}
	return r.status(false), nil
}

// StopCollaboration stops a collaboration and returns its results. It waits until the
// collaboration has ended. The error is WAIT_TIMEOUT if the deadline of ctx passes first.
func (s *Service) StopCollaboration(ctx context.Context, req *teamv1.StopCollaborationRequest) (*teamv1.StopCollaborationResponse, error) {
	id := req.GetCollaborationId()
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.ended() {
		keep := req.SavePartial == nil || req.GetSavePartial() //nolint:protogetter // unset is true
		if _, err := s.h.Stop(ctx, id, a2a.Stop{Force: req.GetForceStop(), SavePartial: keep, Reason: req.GetReason()}); err != nil {
			return nil, notFound(id, err)
		}
		if err := s.waitForEnd(ctx, id); err != nil {
			return nil, err
		}
		if r, err = s.read(ctx, id); err != nil {
			return nil, err
		}
	}
	resp := &teamv1.StopCollaborationResponse{FinalStatus: r.finalStatus(), Results: r.results(), Metrics: r.metrics()}
	if resp.GetFinalStatus() == failed {
		resp.Error = r.failure()
	}
	return resp, nil
}

// waitForEnd waits until a collaboration of the caller has ended.
func (s *Service) waitForEnd(ctx context.Context, id string) error {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return err
	}
	for ev, err := range s.h.WatchEvents(ctx, runs.Key{Owner: who.Owner(), ID: id}, 0) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout,
				"collaboration %q is stopping but has not ended yet; call again to wait for it", id).With("task_id", id)
		case err != nil:
			return notFound(id, err)
		case ev.GetScope() == "" && ev.GetEnded() != nil:
			return nil
		}
	}
	return context.Cause(ctx)
}

// read returns the projected journal of a collaboration of the caller.
func (s *Service) read(ctx context.Context, id string) (*run, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	if !agent.ValidID(id) { // this server never assigns such an ID; spare the store the query
		return nil, collaborationNotFound(id)
	}
	r, err := s.fold(ctx, runs.Key{Owner: who.Owner(), ID: id})
	switch {
	case err != nil:
		return nil, notFound(id, err)
	case r.Accepted.GetCollaboration() == nil:
		return nil, collaborationNotFound(id)
	}
	return r, nil
}

// fold projects the journal of a task. For a task that is not a collaboration it stops
// after the first event.
func (s *Service) fold(ctx context.Context, k runs.Key) (*run, error) {
	r := newRun(k.ID)
	for more, after := true, int64(0); more; {
		page, next, err := s.h.Page(ctx, k, after)
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			if r.apply(rec.Event); r.Seq == 1 && r.Accepted.GetCollaboration() == nil {
				return r, nil
			}
			after = rec.Seq
		}
		more = next
	}
	team := r.Accepted.GetAgent()
	def, err := s.c.Teams.Definition(ctx, team, r.Accepted.GetPins().GetRevisions()[team])
	r.plan = planOf(team, def)
	return r, err
}

func collaborationNotFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonCollaborationNotFound, "there is no collaboration %.64q", id)
}

// unreadable reports whether err means that a task was deleted meanwhile or its journal is
// damaged.
func unreadable(err error) bool { return a2aerror.IsNotFound(err) || a2aerror.IsDamaged(err) }

// notFound replaces TASK_NOT_FOUND by COLLABORATION_NOT_FOUND.
func notFound(id string, err error) error {
	if a2aerror.IsNotFound(err) {
		return collaborationNotFound(id)
	}
	return err
}

// maxReads is the maximum number of tasks that are read for one page. Tasks of earlier
// versions may be listed although they are not collaborations.
const maxReads = 1000

// ListCollaborations returns a page of the caller's collaborations, newest first.
func (s *Service) ListCollaborations(ctx context.Context, req *teamv1.ListCollaborationsRequest) (*teamv1.ListCollaborationsResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	size, err := a2aerror.PageSize("pageSize", req.GetPageSize())
	if err != nil {
		return nil, err
	}
	last := req.GetPageToken()
	if last != "" && uuid.Validate(last) != nil { // not an id of this server
		return nil, runs.StoreError("", runs.ErrPageToken)
	}
	resp := &teamv1.ListCollaborationsResponse{}
	for reads := 0; ; {
		most := size - len(resp.GetCollaborations()) + 1 // one extra, to know whether there is a next page
		roots, err := s.roots(ctx, who.Owner(), runs.RootFilter{Agent: req.GetTeamId(), Before: last, Limit: most})
		if err != nil {
			return nil, err
		}
		for _, root := range roots {
			if len(resp.GetCollaborations()) == size || reads == maxReads {
				resp.NextPageToken = last
				return resp, nil
			}
			r, err := s.fold(ctx, runs.Key{Owner: who.Owner(), ID: root})
			switch {
			case unreadable(err): // return the others without it
			case err != nil:
				return nil, err
			case r.Accepted.GetCollaboration() != nil:
				resp.Collaborations = append(resp.Collaborations, r.status(false))
			}
			last = root
			reads++
		}
		if len(roots) < most {
			return resp, nil
		}
	}
}

// roots returns tasks of an owner that may be collaborations, newest first.
func (s *Service) roots(ctx context.Context, owner string, f runs.RootFilter) ([]string, error) {
	if f.Agent != "" && !agent.ValidID(f.Agent) {
		return nil, nil
	}
	o := s.h.Overview()
	if o == nil {
		return nil, a2aerror.UnsupportedOperation("the store of this server cannot list the tasks of a team")
	}
	roots, err := o.Collaborating(ctx, owner, f)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	return roots, nil
}
