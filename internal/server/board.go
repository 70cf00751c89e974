package server

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
