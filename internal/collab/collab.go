// Package collab says what collaborations are: tasks of teams with a brief. How one
// stands, what it brought and what it took is computed from its journal, the
// definition that it is tied to, and nothing else (I5).
package collab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Teams knows teams and their definitions. Safe for concurrent use.
type Teams interface {
	// Ready returns nil where a team is served, the error for a caller where it is not:
	// TEAM_NOT_FOUND, TEAM_NOT_READY.
	Ready(ctx context.Context, id string) error
	// Definition returns the definition of a team: that of a revision, for an empty one
	// as it is served. Nil where there is none any more.
	Definition(ctx context.Context, id, revision string) (*teamv1.TeamConfig, error)
	// Entry returns the catalog entry that defines a team, which another replica can
	// delete; empty means that no entry defines it.
	Entry(id string) string
}

// Slots are the places that collaborations take; stores keep them.
type Slots interface {
	// Collaborations are those of a team that have not ended, of all owners.
	Collaborations(ctx context.Context, team string) ([]a2a.Key, error)
}

// Config of a Service. Handler is required.
type Config struct {
	// Handler has the tasks.
	Handler *a2a.Handler
	// Teams are what collaborations are of; nil: the teams that the handler serves,
	// whose definitions are not known.
	Teams Teams
	// Slots says which of them run; nil: nobody knows.
	Slots Slots
	// Full reports whether the server has no capacity for one more; nil: it always has.
	Full func() bool
	// Clock tells the time of the store; unset is time.Now.
	Clock func() time.Time
}

// Service answers the calls of the collaboration service. Every call has a caller in
// its context, and is shown the collaborations of that caller. Errors are *a2a.Error
// and *agent.Error. Safe for concurrent use.
type Service struct {
	c Config
	h *a2a.Handler
}

// New returns a service.
func New(c Config) *Service {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Teams == nil {
		c.Teams = served{c.Handler}
	}
	return &Service{c: c, h: c.Handler}
}

// served are the teams of a handler, without their definitions.
type served struct{ h *a2a.Handler }

func (s served) Ready(ctx context.Context, id string) error {
	a, err := s.h.Find(ctx, id)
	if err != nil && agent.AsError(err).Reason != agent.ReasonAgentNotFound {
		return err
	}
	if _, isTeam := a.(agent.Composite); isTeam {
		return nil
	}
	return agent.Errorf(agent.CodeNotFound, agent.ReasonTeamNotFound, "there is no team %.64q", id)
}

func (served) Definition(context.Context, string, string) (*teamv1.TeamConfig, error) {
	return &teamv1.TeamConfig{}, nil
}

func (served) Entry(string) string { return "" }

// StartCollaboration implements the service.
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

// begin records a collaboration and returns its id.
func (s *Service) begin(ctx context.Context, req *teamv1.StartCollaborationRequest) (string, error) {
	if err := s.c.Teams.Ready(ctx, req.GetTeamId()); err != nil {
		return "", err
	}
	if s.c.Full != nil && s.c.Full() {
		return "", &agent.Error{
			Reason: agent.ReasonInsufficientResources, Code: agent.CodeResourceExhausted, Retry: true, RetryAfter: againAfter,
			Message: "as many runs are under way as this server drives at once; try again when one has ended",
		}
	}
	def, err := s.c.Teams.Definition(ctx, req.GetTeamId(), "")
	if err != nil {
		return "", err
	}
	start := s.start(req, def)
	start.Entry = s.c.Teams.Entry(req.GetTeamId())
	f, err := s.h.Start(ctx, start)
	if err != nil {
		return "", ofRequest(err, req.GetTeamId(), start.Concurrent)
	}
	return f.Task().GetId(), nil
}

// start is what a request wants of a team.
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

// ofRequest is an error of the message that a request was made into, in words of the
// request.
func ofRequest(err error, team string, most int) error {
	var bad *a2a.Error
	var of *agent.Error
	switch {
	case errors.As(err, &bad) && len(bad.Violations) == 1 && bad.Violations[0].Field == "message.messageId":
		return a2a.Invalid(a2a.Violation{Field: "requestId", Description: bad.Violations[0].Description})
	case errors.As(err, &of) && of.Reason == agent.ReasonCollaborationInProgress:
		busy := *of
		busy.Message = underWay(team, most) + ", as many as its max_concurrent_collaborations allows; wait for the end of one, or stop one"
		return &busy
	case errors.Is(err, a2a.ErrDeleted), errors.As(err, &of) && of.Reason == agent.ReasonAgentNotFound: // deleted meanwhile, here or by another replica
		return agent.Errorf(agent.CodeNotFound, agent.ReasonTeamNotFound, "there is no team %.64q", team)
	case errors.As(err, &of) && of.Reason == agent.ReasonMessageIDReused:
		return agent.Errorf(of.Code, of.Reason, "requestId was used before with other content; use a new id for a new collaboration")
	}
	return err
}

// underWay says how many collaborations a team has, of all callers.
func underWay(team string, n int) string {
	s := "s"
	if n == 1 {
		s = ""
	}
	return fmt.Sprintf("team %q has %d collaboration%s under way", team, n, s)
}

// task is what a team is given: the text for whoever knows no briefs.
func task(req *teamv1.StartCollaborationRequest) string {
	return req.GetTaskDescription() + "\n\nExpected output: " + req.GetExpectedOutput()
}

// concurrent is how many collaborations a team may have.
func concurrent(def *teamv1.TeamConfig) int {
	return max(int(def.GetMaxConcurrentCollaborations()), 1)
}

// GetCollaborationStatus implements the service.
func (s *Service) GetCollaborationStatus(ctx context.Context, req *teamv1.GetCollaborationStatusRequest) (*teamv1.GetCollaborationStatusResponse, error) {
	r, err := s.read(ctx, req.GetCollaborationId())
	if err != nil {
		return nil, err
	}
	return r.status(req.GetIncludeDetails()), nil
}

// PauseCollaboration implements the service.
func (s *Service) PauseCollaboration(ctx context.Context, req *teamv1.PauseCollaborationRequest) (*teamv1.PauseCollaborationResponse, error) {
	st, err := s.command(ctx, req.GetCollaborationId(), s.h.Pause)
	return &teamv1.PauseCollaborationResponse{Collaboration: st}, err
}

// ResumeCollaboration implements the service.
func (s *Service) ResumeCollaboration(ctx context.Context, req *teamv1.ResumeCollaborationRequest) (*teamv1.ResumeCollaborationResponse, error) {
	st, err := s.command(ctx, req.GetCollaborationId(), s.h.Resume)
	return &teamv1.ResumeCollaborationResponse{Collaboration: st}, err
}

// command gives one that has not ended a command.
func (s *Service) command(ctx context.Context, id string, do func(context.Context, string) (*project.Fold, error)) (*teamv1.GetCollaborationStatusResponse, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.ended() {
		return nil, a2a.UnsupportedOperation("collaboration %q has ended", id)
	}
	if _, err := do(ctx, id); err != nil {
		return nil, notFound(id, err)
	}
	if r, err = s.read(ctx, id); err != nil {
		return nil, err
	}
	return r.status(false), nil
}

// StopCollaboration implements the service. It waits for the end as long as ctx does.
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
		if err := s.ended(ctx, id); err != nil {
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

// ended waits for the end of a collaboration of the caller.
func (s *Service) ended(ctx context.Context, id string) error {
	who, err := s.h.Caller(ctx)
	if err != nil {
		return err
	}
	for t, err := range s.h.Tell(ctx, a2a.Key{Owner: who.Owner(), ID: id}, 0) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout,
				"collaboration %q is being stopped and has not ended yet; ask for it again", id).With("task_id", id)
		case err != nil:
			return notFound(id, err)
		case t.Event.GetScope() == "" && t.Event.GetEnded() != nil:
			return nil
		}
	}
	return context.Cause(ctx)
}

// read folds the journal of a collaboration of the caller.
func (s *Service) read(ctx context.Context, id string) (*run, error) {
	who, err := s.h.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	if !agent.ValidID(id) { // nothing that a store has to know: a part's has a ~, others come from no server
		return nil, unknown(id)
	}
	r, err := s.fold(ctx, a2a.Key{Owner: who.Owner(), ID: id})
	switch {
	case err != nil:
		return nil, notFound(id, err)
	case r.Accepted.GetCollaboration() == nil:
		return nil, unknown(id)
	}
	return r, nil
}

// fold folds a journal.
func (s *Service) fold(ctx context.Context, k a2a.Key) (*run, error) {
	r := newRun(k.ID)
	for more, after := true, int64(0); more; {
		page, next, err := s.h.Page(ctx, k, after)
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			if r.take(rec.Event); r.Seq == 1 && r.Accepted.GetCollaboration() == nil {
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

func unknown(id string) error {
	return agent.Errorf(agent.CodeNotFound, agent.ReasonCollaborationNotFound, "there is no collaboration %.64q", id)
}

// lost reports whether a task has been deleted meanwhile, or is damaged on record.
func lost(err error) bool { return a2a.IsNotFound(err) || a2a.IsDamaged(err) }

// notFound is the error for a task that is not there as that for a collaboration.
func notFound(id string, err error) error {
	if a2a.IsNotFound(err) {
		return unknown(id)
	}
	return err
}

// maxLooks limits how many tasks are read for one page: some tasks of an earlier version
// are not collaborations.
const maxLooks = 1000

// ListCollaborations implements the service.
func (s *Service) ListCollaborations(ctx context.Context, req *teamv1.ListCollaborationsRequest) (*teamv1.ListCollaborationsResponse, error) {
	who, err := s.h.Caller(ctx)
	if err != nil {
		return nil, err
	}
	size, err := a2a.PageSize("pageSize", req.GetPageSize())
	if err != nil {
		return nil, err
	}
	last := req.GetPageToken()
	if last != "" && uuid.Validate(last) != nil { // not an id of this server
		return nil, a2a.StoreError("", a2a.ErrPageToken)
	}
	resp := &teamv1.ListCollaborationsResponse{}
	for looks := 0; ; {
		most := size - len(resp.GetCollaborations()) + 1 // one extra, to know whether there is a next page
		roots, err := s.roots(ctx, who.Owner(), a2a.RootFilter{Agent: req.GetTeamId(), Before: last, Limit: most})
		if err != nil {
			return nil, err
		}
		for _, root := range roots {
			if len(resp.GetCollaborations()) == size || looks == maxLooks {
				resp.NextPageToken = last
				return resp, nil
			}
			r, err := s.fold(ctx, a2a.Key{Owner: who.Owner(), ID: root})
			switch {
			case lost(err): // return the others without it
			case err != nil:
				return nil, err
			case r.Accepted.GetCollaboration() != nil:
				resp.Collaborations = append(resp.Collaborations, r.status(false))
			}
			last = root
			looks++
		}
		if len(roots) < most {
			return resp, nil
		}
	}
}

// roots returns tasks of an owner that may be collaborations, newest first.
func (s *Service) roots(ctx context.Context, owner string, f a2a.RootFilter) ([]string, error) {
	if f.Agent != "" && !agent.ValidID(f.Agent) {
		return nil, nil
	}
	o := s.h.Overview()
	if o == nil {
		return nil, a2a.UnsupportedOperation("the store of this server does not show tasks side by side")
	}
	roots, err := o.Collaborating(ctx, owner, f)
	if err != nil {
		return nil, a2a.StoreError("", err)
	}
	return roots, nil
}
