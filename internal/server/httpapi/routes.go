package httpapi

import (
	"net/http"
	"net/url"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/openai"
)

func (s *API) routes() []route {
	var routes []route
	for _, tenant := range []string{"", "/{tenant}"} {
		routes = append(routes,
			route{"POST", tenant + "/message:stream", restStream(s, a2av1.A2AService_SendStreamingMessage_FullMethodName,
				func(*a2av1.SendMessageRequest, map[string]string, url.Values) error { return nil })},
			route{"GET POST", tenant + "/tasks/{id=*}:subscribe", restStream(s, a2av1.A2AService_SubscribeToTask_FullMethodName,
				func(req *a2av1.SubscribeToTaskRequest, params map[string]string, _ url.Values) error {
					req.Id = params["id"]
					return nil
				})},
			route{"GET", tenant + "/tasks/{id=*}:cancel", s.wrongMethod},
			route{"GET", tenant + cardPath, s.serveCard},
			route{"OPTIONS", tenant + cardPath, preflight},
		)
	}
	routes = append(routes, s.routesV03()...)
	routes = append(routes, s.partRoutes()...)
	routes = append(routes, s.monitorRoutes()...)
	routes = append(routes, s.pages.routes()...)
	routes = append(routes, s.collaborationRoutes()...)
	routes = append(routes, s.boardRoutes()...)
	routes = append(routes, openAIRoutes(s.config.OpenAI)...)
	routes = append(routes, s.config.mcpRoutes()...)
	const agents = "/team/v1/agents/{agent_id}"
	return append(routes,
		route{"POST", agents + ":processStream", restStream(s, teamv1.AgentService_ProcessStream_FullMethodName,
			func(req *teamv1.ProcessStreamRequest, params map[string]string, _ url.Values) error {
				if req.GetRequest() == nil {
					req.Request = &teamv1.ProcessRequest{}
				}
				req.Request.AgentId = params["agent_id"]
				return nil
			})},
		route{"GET", agents + ":process", s.wrongMethod},
		route{"GET", agents + ":processStream", s.wrongMethod},
		route{"GET", agents + ":cancel", s.wrongMethod},
		route{"GET", jwksPath, s.serveJWKS},
		route{"OPTIONS", jwksPath, preflight},
		route{"POST", "/{tenant}/rpc", s.serveRPC}, // registered before /rpc, which therefore wins
		route{"POST", "/rpc", s.serveRPC},
	)
}

// monitorRoutes returns the routes of the streams, and one that rejects GET on the path of
// AnswerQuestion: the generated routes would take its suffix :answer for a part of the task id.
func (s *API) monitorRoutes() []route {
	if s.table.Monitor == nil {
		return nil
	}
	const base = "/team/v1/monitor"
	return []route{
		{"GET", base + "/teams/{team_id}:watch", restStream(s, teamv1.MonitorService_WatchTeam_FullMethodName, func(req *teamv1.WatchTeamRequest, params map[string]string, query url.Values) error {
			req.TeamId, req.Cursor = params["team_id"], query.Get("cursor")
			return nil
		})},
		{"GET", base + "/tasks/{task_id}:watch", restStream(s, teamv1.MonitorService_WatchTask_FullMethodName, func(req *teamv1.WatchTaskRequest, params map[string]string, query url.Values) (err error) {
			req.TaskId = params["task_id"]
			req.After, err = call.Number("after", query["after"])
			return err
		})},
		{"GET", base + "/tasks/{task_id}:answer", s.wrongMethod},
	}
}

// collaborationRoutes returns the routes that reject GET on the actions of collaborations,
// which the generated routes would read as part of an id, and the routes of contract calls.
func (s *API) collaborationRoutes() []route {
	if s.table.Collaborations == nil {
		return nil
	}
	var routes []route
	for _, verb := range []string{"pause", "resume", "stop"} {
		routes = append(routes, route{"GET", "/team/v1/collaborations/{collaboration_id}:" + verb, s.wrongMethod})
	}
	return append(routes, s.contractRoutes()...)
}

// boardRoutes returns the routes that reject GET on the actions of work items. Without them
// the generated routes would read the action as a part of the item's id.
func (s *API) boardRoutes() (routes []route) {
	if s.table.Board == nil {
		return nil
	}
	for _, verb := range []string{"claim", "update", "complete", "fail", "cancel"} {
		routes = append(routes, route{"GET", "/team/v1/teams/{team_id}/board/items/{item_id}:" + verb, s.wrongMethod})
	}
	return routes
}

// openAIRoutes returns the routes of the door for clients of OpenAI's API, none without it.
func openAIRoutes(door *openai.Door) (routes []route) {
	if door == nil {
		return nil
	}
	for _, of := range door.Routes() {
		routes = append(routes, route{of.Method, of.Path, func(w http.ResponseWriter, r *http.Request, params map[string]string) {
			of.Serve(w, r, params, bodyOf(r))
		}})
	}
	return routes
}
