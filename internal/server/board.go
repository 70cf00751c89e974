package server

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Board implements the board service, like *board.Service. The context carries the caller
// and errors are reported as described at Handler. Implementations are safe for concurrent
// use.
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

// boardService is the gRPC and REST service for boards.
type boardService struct {
	teamv1.UnimplementedBoardServiceServer
	*Server
}

// AddWorkItem adds a work item to the board of a team.
func (s boardService) AddWorkItem(ctx context.Context, req *teamv1.AddWorkItemRequest) (*teamv1.AddWorkItemResponse, error) {
	return unary(ctx, s.Server, "AddWorkItem", false, req, s.config.Board.AddWorkItem)
}

// GetWorkItem returns a work item.
func (s boardService) GetWorkItem(ctx context.Context, req *teamv1.GetWorkItemRequest) (*teamv1.GetWorkItemResponse, error) {
	return unary(ctx, s.Server, "GetWorkItem", false, req, s.config.Board.GetWorkItem)
}

// ListWorkItems returns a page of work items.
func (s boardService) ListWorkItems(ctx context.Context, req *teamv1.ListWorkItemsRequest) (*teamv1.ListWorkItemsResponse, error) {
	return unary(ctx, s.Server, "ListWorkItems", false, req, s.config.Board.ListWorkItems)
}

// ClaimWorkItem claims a work item.
func (s boardService) ClaimWorkItem(ctx context.Context, req *teamv1.ClaimWorkItemRequest) (*teamv1.ClaimWorkItemResponse, error) {
	return unary(ctx, s.Server, "ClaimWorkItem", false, req, s.config.Board.ClaimWorkItem)
}

// UpdateWorkItem records progress on a work item.
func (s boardService) UpdateWorkItem(ctx context.Context, req *teamv1.UpdateWorkItemRequest) (*teamv1.UpdateWorkItemResponse, error) {
	return unary(ctx, s.Server, "UpdateWorkItem", false, req, s.config.Board.UpdateWorkItem)
}

// CompleteWorkItem completes a work item with its result.
func (s boardService) CompleteWorkItem(ctx context.Context, req *teamv1.CompleteWorkItemRequest) (*teamv1.CompleteWorkItemResponse, error) {
	return unary(ctx, s.Server, "CompleteWorkItem", false, req, s.config.Board.CompleteWorkItem)
}

// FailWorkItem records that the work on an item failed.
func (s boardService) FailWorkItem(ctx context.Context, req *teamv1.FailWorkItemRequest) (*teamv1.FailWorkItemResponse, error) {
	return unary(ctx, s.Server, "FailWorkItem", false, req, s.config.Board.FailWorkItem)
}

// CancelWorkItem cancels a work item.
func (s boardService) CancelWorkItem(ctx context.Context, req *teamv1.CancelWorkItemRequest) (*teamv1.CancelWorkItemResponse, error) {
	return unary(ctx, s.Server, "CancelWorkItem", false, req, s.config.Board.CancelWorkItem)
}

// PostMessage adds a message to the board.
func (s boardService) PostMessage(ctx context.Context, req *teamv1.PostMessageRequest) (*teamv1.PostMessageResponse, error) {
	return unary(ctx, s.Server, "PostMessage", false, req, s.config.Board.PostMessage)
}

// ListMessages returns a page of messages.
func (s boardService) ListMessages(ctx context.Context, req *teamv1.ListMessagesRequest) (*teamv1.ListMessagesResponse, error) {
	return unary(ctx, s.Server, "ListMessages", false, req, s.config.Board.ListMessages)
}

// AckMessages records which messages the caller has read.
func (s boardService) AckMessages(ctx context.Context, req *teamv1.AckMessagesRequest) (*teamv1.AckMessagesResponse, error) {
	return unary(ctx, s.Server, "AckMessages", false, req, s.config.Board.AckMessages)
}

// boardRoutes returns the routes that reject GET on the actions of work items. Without them
// the generated routes would read the action as a part of the item's id.
func (s *Server) boardRoutes() (routes []route) {
	if s.config.Board == nil {
		return nil
	}
	for _, verb := range []string{"claim", "update", "complete", "fail", "cancel"} {
		routes = append(routes, route{"GET", "/team/v1/teams/{team_id}/board/items/{item_id}:" + verb, s.wrongMethod})
	}
	return routes
}
