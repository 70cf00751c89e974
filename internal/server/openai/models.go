package openai

import (
	"net/http"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/call"
)

// model is an agent or a team.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// modelOf returns an agent as a model.
func modelOf(a *teamv1.RegisteredAgent) model {
	return model{ID: a.GetId(), Object: "model", Created: max(a.GetChanged().GetSeconds(), 0), OwnedBy: "team-server"}
}

// models serves GET /v1/models.
func (d *Door) models(w http.ResponseWriter, r *http.Request, _ map[string]string, _ []byte) {
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", []model{}}
	ctx, req := call.Translated(r.Context()), &teamv1.ListAgentsRequest{PageSize: 100}
	for {
		page, err := d.registry.ListAgents(ctx, req)
		if err != nil {
			fail(w, err)
			return
		}
		for _, a := range page.GetAgents() {
			list.Data = append(list.Data, modelOf(a))
		}
		if page.GetNextPageToken() == "" {
			reply(w, list)
			return
		}
		req = &teamv1.ListAgentsRequest{PageSize: 100, PageToken: page.GetNextPageToken()}
	}
}

// model serves GET /v1/models/{id}.
func (d *Door) model(w http.ResponseWriter, r *http.Request, params map[string]string, _ []byte) {
	id, err := url.PathUnescape(params["id"])
	if err != nil {
		id = params["id"]
	}
	a, err := d.registry.GetAgent(call.Translated(r.Context()), &teamv1.GetAgentRequest{AgentId: modelID(id)})
	if err != nil {
		fail(w, err)
		return
	}
	m := modelOf(a.GetAgent())
	m.ID = id
	reply(w, m)
}
