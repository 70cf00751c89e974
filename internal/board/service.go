package board

import (
	"context"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// Teams looks up the members and workflows of teams. It is safe for concurrent use.
type Teams interface {
	// BoardOf returns the IDs of a team's members, and whether it has a board. The error is
	// TEAM_NOT_FOUND.
	BoardOf(ctx context.Context, team string) (members []string, has bool, err error)
	// AccountOf returns the account that has made a team by the API, "" for one of the configuration file.
	AccountOf(team string) string
	// PlanOf returns the steps of the workflow in a revision of a team, each with its name
	// as the title, its member as the assignee, and the names of the steps that it depends
	// on. The assignee of a step for a person is unset. PlanOf returns nil if the steps are
	// not known in advance.
	PlanOf(team, revision string) []*teamv1.WorkItem
}

// Steps lists the steps of a team in the caller's tasks as work items. The board shows them
// but does not store them.
type Steps interface {
	// Steps returns at most 100 items, those of the newest tasks first.
	Steps(ctx context.Context, team string) ([]*teamv1.WorkItem, error)
}

// Service implements BoardService. The context of each call carries the caller. Service is
// safe for concurrent use.
type Service struct {
	board *Board
	teams Teams
	steps Steps
}

// NewService returns the service for the boards of teams.
func NewService(b *Board, t Teams, s Steps) *Service { return &Service{board: b, teams: t, steps: s} }

// place returns the board and the actor of a call: the caller, acting for a member if one
// is named.
func (s *Service) place(ctx context.Context, team, member string) (Place, error) {
	who, ok := identity.CallerOf(ctx)
	if !ok {
		return Place{}, agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "the caller is not authenticated")
	}
	p := Place{Key: Key{Account: who.Account, Team: agent.KeyOf(s.teams.AccountOf(team), team)}, Actor: &teamv1.BoardActor{Principal: who.Owner(), Agent: member}}
	members, has, err := s.teams.BoardOf(ctx, team)
	p.Members = members
	switch {
	case err != nil:
		return p, err
	case !has:
		return p, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "team %q has no board; set board: true in its definition", team)
	case member != "" && !p.in(member):
		return p, invalid("agent", "is %.64q, which is not a member of team %q; its members are %s, and its leader is %q", member, team, strings.Join(members, ", "), team)
	}
	return p, nil
}

// on calls do with the place of a request.
func on[Req interface {
	GetTeamId() string
	GetAgent() string
}, T any](ctx context.Context, s *Service, req Req, do func(context.Context, Place, Req) (T, error)) (zero T, err error) {
	p, err := s.place(ctx, req.GetTeamId(), req.GetAgent())
	if err != nil {
		return zero, err
	}
	return do(ctx, p, req)
}

// AddWorkItem implements BoardService.
func (s *Service) AddWorkItem(ctx context.Context, req *teamv1.AddWorkItemRequest) (*teamv1.AddWorkItemResponse, error) {
	it, err := on(ctx, s, req, s.board.AddWorkItem)
	return &teamv1.AddWorkItemResponse{Item: it}, err
}

// GetWorkItem implements BoardService.
func (s *Service) GetWorkItem(ctx context.Context, req *teamv1.GetWorkItemRequest) (*teamv1.GetWorkItemResponse, error) {
	p, err := s.place(ctx, req.GetTeamId(), "")
	if err != nil {
		return nil, err
	}
	it, err := s.board.GetWorkItem(ctx, p, req.GetItemId())
	return &teamv1.GetWorkItemResponse{Item: it}, err
}

// ListWorkItems implements BoardService. The first page also lists the steps of the team,
// unless the caller asks for claimable items.
func (s *Service) ListWorkItems(ctx context.Context, req *teamv1.ListWorkItemsRequest) (*teamv1.ListWorkItemsResponse, error) {
	p, err := s.place(ctx, req.GetTeamId(), "")
	if err != nil {
		return nil, err
	}
	resp := &teamv1.ListWorkItemsResponse{}
	if resp.Items, resp.NextPageToken, err = s.board.ListWorkItems(ctx, p, req); err != nil || req.GetClaimable() || req.GetPageToken() != "" {
		return resp, err
	}
	steps, err := s.steps.Steps(ctx, req.GetTeamId())
	for _, it := range steps {
		if (req.GetState() == 0 || it.GetState() == req.GetState()) && (req.GetAssignee() == "" || Name(it.GetAssignee()) == req.GetAssignee()) {
			resp.Steps = append(resp.Steps, it)
		}
	}
	return resp, err
}

// ClaimWorkItem implements BoardService.
func (s *Service) ClaimWorkItem(ctx context.Context, req *teamv1.ClaimWorkItemRequest) (*teamv1.ClaimWorkItemResponse, error) {
	it, err := on(ctx, s, req, s.board.ClaimWorkItem)
	return &teamv1.ClaimWorkItemResponse{Item: it}, err
}

// UpdateWorkItem implements BoardService.
func (s *Service) UpdateWorkItem(ctx context.Context, req *teamv1.UpdateWorkItemRequest) (*teamv1.UpdateWorkItemResponse, error) {
	it, err := on(ctx, s, req, s.board.UpdateWorkItem)
	return &teamv1.UpdateWorkItemResponse{Item: it}, err
}

// CompleteWorkItem implements BoardService.
func (s *Service) CompleteWorkItem(ctx context.Context, req *teamv1.CompleteWorkItemRequest) (*teamv1.CompleteWorkItemResponse, error) {
	it, err := on(ctx, s, req, s.board.CompleteWorkItem)
	return &teamv1.CompleteWorkItemResponse{Item: it}, err
}

// FailWorkItem implements BoardService.
func (s *Service) FailWorkItem(ctx context.Context, req *teamv1.FailWorkItemRequest) (*teamv1.FailWorkItemResponse, error) {
	it, err := on(ctx, s, req, s.board.FailWorkItem)
	return &teamv1.FailWorkItemResponse{Item: it}, err
}

// CancelWorkItem implements BoardService.
func (s *Service) CancelWorkItem(ctx context.Context, req *teamv1.CancelWorkItemRequest) (*teamv1.CancelWorkItemResponse, error) {
	it, err := on(ctx, s, req, s.board.CancelWorkItem)
	return &teamv1.CancelWorkItemResponse{Item: it}, err
}

// PostMessage implements BoardService.
func (s *Service) PostMessage(ctx context.Context, req *teamv1.PostMessageRequest) (*teamv1.PostMessageResponse, error) {
	m, err := on(ctx, s, req, s.board.PostMessage)
	return &teamv1.PostMessageResponse{Message: m}, err
}

// ListMessages implements BoardService.
func (s *Service) ListMessages(ctx context.Context, req *teamv1.ListMessagesRequest) (*teamv1.ListMessagesResponse, error) {
	p, err := s.place(ctx, req.GetTeamId(), "")
	if err != nil {
		return nil, err
	}
	resp := &teamv1.ListMessagesResponse{}
	resp.Messages, resp.NextPageToken, err = s.board.ListMessages(ctx, p, req)
	return resp, err
}

// AckMessages implements BoardService.
func (s *Service) AckMessages(ctx context.Context, req *teamv1.AckMessagesRequest) (*teamv1.AckMessagesResponse, error) {
	upTo, err := on(ctx, s, req, s.board.AckMessages)
	return &teamv1.AckMessagesResponse{UpTo: upTo}, err
}
