package server

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Board answers the calls of the board service; a *board.Service. What holds for
// Handler holds for it.
type Board interface {
	AddWorkItem(context.Context, *teamv1.AddWorkItemRequest) (*teamv1.AddWorkItemResponse, error)
	GetWorkItem(context.Context, *teamv1.GetWorkItemRequest) (*teamv1.GetWorkItemResponse, error)
	ListWorkItems(context.Context, *teamv1.ListWorkItemsRequest) (*teamv1.ListWorkItemsResponse, error)
	ClaimWorkItem(context.Context, *teamv1.ClaimWorkItemRequest) (*teamv1.ClaimWorkItemResponse, error)
	UpdateWorkItem(context.Context, *teamv1.UpdateWorkItemRequest) (*teamv1.UpdateWorkItemResponse, error)
	CompleteWorkItem(context.Context, *teamv1.CompleteWorkItemRequest) (*teamv1.CompleteWorkItemResponse, error)
	FailWorkItem(context.Context, *teamv1.FailWorkItemRequest) (*teamv1.FailWorkItemResponse, error)
	CancelWorkItem(context.Context, *teamv1.CancelWorkItemRequest) (*teamv1.CancelWorkItemResponse, error)
	PostMessage(context.Context, *teamv1.PostMessageRequest) (*teamv1.PostMessageResponse, error)
	ListMessages(context.Context, *teamv1.ListMessagesRequest) (*teamv1.ListMessagesResponse, error)
	AckMessages(context.Context, *teamv1.AckMessagesRequest) (*teamv1.AckMessagesResponse, error)
}

// boards is the board service.
type boards struct {
	teamv1.UnimplementedBoardServiceServer
	*Server
}

// AddWorkItem adds an item.
func (s boards) AddWorkItem(ctx context.Context, req *teamv1.AddWorkItemRequest) (*teamv1.AddWorkItemResponse, error) {
	return unary(ctx, s.Server, "AddWorkItem", false, req, s.config.Board.AddWorkItem)
}

// GetWorkItem returns an item.
func (s boards) GetWorkItem(ctx context.Context, req *teamv1.GetWorkItemRequest) (*teamv1.GetWorkItemResponse, error) {
	return unary(ctx, s.Server, "GetWorkItem", false, req, s.config.Board.GetWorkItem)
}

// ListWorkItems lists items.
func (s boards) ListWorkItems(ctx context.Context, req *teamv1.ListWorkItemsRequest) (*teamv1.ListWorkItemsResponse, error) {
	return unary(ctx, s.Server, "ListWorkItems", false, req, s.config.Board.ListWorkItems)
}

// ClaimWorkItem takes an item.
func (s boards) ClaimWorkItem(ctx context.Context, req *teamv1.ClaimWorkItemRequest) (*teamv1.ClaimWorkItemResponse, error) {
	return unary(ctx, s.Server, "ClaimWorkItem", false, req, s.config.Board.ClaimWorkItem)
}

// UpdateWorkItem says what is new about an item.
func (s boards) UpdateWorkItem(ctx context.Context, req *teamv1.UpdateWorkItemRequest) (*teamv1.UpdateWorkItemResponse, error) {
	return unary(ctx, s.Server, "UpdateWorkItem", false, req, s.config.Board.UpdateWorkItem)
}

// CompleteWorkItem ends an item with its result.
func (s boards) CompleteWorkItem(ctx context.Context, req *teamv1.CompleteWorkItemRequest) (*teamv1.CompleteWorkItemResponse, error) {
	return unary(ctx, s.Server, "CompleteWorkItem", false, req, s.config.Board.CompleteWorkItem)
}

// FailWorkItem gives an item up.
func (s boards) FailWorkItem(ctx context.Context, req *teamv1.FailWorkItemRequest) (*teamv1.FailWorkItemResponse, error) {
	return unary(ctx, s.Server, "FailWorkItem", false, req, s.config.Board.FailWorkItem)
}

// CancelWorkItem ends an item.
func (s boards) CancelWorkItem(ctx context.Context, req *teamv1.CancelWorkItemRequest) (*teamv1.CancelWorkItemResponse, error) {
	return unary(ctx, s.Server, "CancelWorkItem", false, req, s.config.Board.CancelWorkItem)
}

// PostMessage leaves a message.
func (s boards) PostMessage(ctx context.Context, req *teamv1.PostMessageRequest) (*teamv1.PostMessageResponse, error) {
	return unary(ctx, s.Server, "PostMessage", false, req, s.config.Board.PostMessage)
}

// ListMessages lists messages.
func (s boards) ListMessages(ctx context.Context, req *teamv1.ListMessagesRequest) (*teamv1.ListMessagesResponse, error) {
	return unary(ctx, s.Server, "ListMessages", false, req, s.config.Board.ListMessages)
}

// AckMessages notes what was read.
func (s boards) AckMessages(ctx context.Context, req *teamv1.AckMessagesRequest) (*teamv1.AckMessagesResponse, error) {
	return unary(ctx, s.Server, "AckMessages", false, req, s.config.Board.AckMessages)
}

// boardRoutes are those that the generated ones would take amiss.
func (s *Server) boardRoutes() (routes []route) {
	if s.config.Board == nil {
		return nil
	}
	for _, verb := range []string{"claim", "update", "complete", "fail", "cancel"} {
		routes = append(routes, route{"GET", "/team/v1/teams/{team_id}/board/items/{item_id}:" + verb, s.wrongMethod})
	}
	return routes
}
