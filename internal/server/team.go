package server

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Teams implements the team and registry services, like *manage.Manager. The context carries
// the caller and errors are reported as described at Handler.
type Teams interface {
	CreateTeam(context.Context, *teamv1.CreateTeamRequest) (*teamv1.CreateTeamResponse, error)
	GetTeam(context.Context, *teamv1.GetTeamRequest) (*teamv1.GetTeamResponse, error)
	ListTeams(context.Context, *teamv1.ListTeamsRequest) (*teamv1.ListTeamsResponse, error)
	UpdateTeam(context.Context, *teamv1.UpdateTeamRequest) (*teamv1.UpdateTeamResponse, error)
	DeleteTeam(context.Context, *teamv1.DeleteTeamRequest) (*teamv1.DeleteTeamResponse, error)
	// Deletable returns the error with which DeleteTeam would reject the request, nil if it
	// would delete the team. It does not consider collaborations.
	Deletable(context.Context, *teamv1.DeleteTeamRequest) error
	GetTeamStatus(context.Context, *teamv1.GetTeamStatusRequest) (*teamv1.GetTeamStatusResponse, error)
	RegisterAgent(context.Context, *teamv1.RegisterAgentRequest) (*teamv1.RegisterAgentResponse, error)
	GetAgent(context.Context, *teamv1.GetAgentRequest) (*teamv1.GetAgentResponse, error)
	ListAgents(context.Context, *teamv1.ListAgentsRequest) (*teamv1.ListAgentsResponse, error)
	UpdateAgent(context.Context, *teamv1.UpdateAgentRequest) (*teamv1.UpdateAgentResponse, error)
	UnregisterAgent(context.Context, *teamv1.UnregisterAgentRequest) (*teamv1.UnregisterAgentResponse, error)
}

// teamsServer is the gRPC and REST service for teams and agents.
type teamsServer struct {
	teamv1.UnimplementedTeamServiceServer
	teamv1.UnimplementedRegistryServiceServer

	s *Server
	t Teams
}

// teams returns the service. If collaborations are served, it takes them into account.
func (s *Server) teams() *teamsServer {
	t := &teamsServer{s: s, t: s.config.Teams}
	if c := s.config.Collaborations; c != nil {
		t.t = teamsWithCollaborations{s.config.Teams, c}
	}
	return t
}

// CreateTeam adds a team.
func (t *teamsServer) CreateTeam(ctx context.Context, req *teamv1.CreateTeamRequest) (*teamv1.CreateTeamResponse, error) {
	return unary(ctx, t.s, "CreateTeam", false, req, t.t.CreateTeam)
}

// GetTeam returns a team.
func (t *teamsServer) GetTeam(ctx context.Context, req *teamv1.GetTeamRequest) (*teamv1.GetTeamResponse, error) {
	return unary(ctx, t.s, "GetTeam", false, req, t.t.GetTeam)
}

// ListTeams returns a page of teams.
func (t *teamsServer) ListTeams(ctx context.Context, req *teamv1.ListTeamsRequest) (*teamv1.ListTeamsResponse, error) {
	return unary(ctx, t.s, "ListTeams", false, req, t.t.ListTeams)
}

// UpdateTeam changes a team.
func (t *teamsServer) UpdateTeam(ctx context.Context, req *teamv1.UpdateTeamRequest) (*teamv1.UpdateTeamResponse, error) {
	return unary(ctx, t.s, "UpdateTeam", false, req, t.t.UpdateTeam)
}

// DeleteTeam deletes a team.
func (t *teamsServer) DeleteTeam(ctx context.Context, req *teamv1.DeleteTeamRequest) (*teamv1.DeleteTeamResponse, error) {
	return unary(ctx, t.s, "DeleteTeam", false, req, t.t.DeleteTeam)
}

// GetTeamStatus returns the status of a team and of its agents.
func (t *teamsServer) GetTeamStatus(ctx context.Context, req *teamv1.GetTeamStatusRequest) (*teamv1.GetTeamStatusResponse, error) {
	return unary(ctx, t.s, "GetTeamStatus", false, req, t.t.GetTeamStatus)
}

// RegisterAgent adds an agent.
func (t *teamsServer) RegisterAgent(ctx context.Context, req *teamv1.RegisterAgentRequest) (*teamv1.RegisterAgentResponse, error) {
	return unary(ctx, t.s, "RegisterAgent", false, req, t.t.RegisterAgent)
}

// GetAgent returns an agent.
func (t *teamsServer) GetAgent(ctx context.Context, req *teamv1.GetAgentRequest) (*teamv1.GetAgentResponse, error) {
	return unary(ctx, t.s, "GetAgent", false, req, t.t.GetAgent)
}

// ListAgents returns a page of agents.
func (t *teamsServer) ListAgents(ctx context.Context, req *teamv1.ListAgentsRequest) (*teamv1.ListAgentsResponse, error) {
	return unary(ctx, t.s, "ListAgents", false, req, t.t.ListAgents)
}

// UpdateAgent changes an agent.
func (t *teamsServer) UpdateAgent(ctx context.Context, req *teamv1.UpdateAgentRequest) (*teamv1.UpdateAgentResponse, error) {
	return unary(ctx, t.s, "UpdateAgent", false, req, t.t.UpdateAgent)
}

// UnregisterAgent removes an agent.
func (t *teamsServer) UnregisterAgent(ctx context.Context, req *teamv1.UnregisterAgentRequest) (*teamv1.UnregisterAgentResponse, error) {
	return unary(ctx, t.s, "UnregisterAgent", false, req, t.t.UnregisterAgent)
}

// typeYAML is the media type of a request whose body is the file of a team.
const typeYAML = "application/yaml"

// takesYAML reports whether a request may have a body of typeYAML: it creates or updates a
// team.
func takesYAML(r *http.Request) bool {
	const teams = "/team/v1/teams"
	return r.Method == http.MethodPost && r.URL.Path == teams || r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, teams+"/")
}

// yamlBody reports whether the body of a request is a YAML file that the request may have.
func yamlBody(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == typeYAML && takesYAML(r)
}

// teamRequest returns the JSON of a request whose body is a YAML file and whose other
// fields are in the query.
func teamRequest(r *http.Request, file []byte) ([]byte, error) {
	if !utf8.Valid(file) {
		return nil, wire.Invalid("yaml", "must be UTF-8")
	}
	fields := map[string]any{"yaml": string(file)}
	for name, values := range r.URL.Query() {
		switch name {
		case "etag":
			fields[name] = values[0]
		case "validate_only", "validateOnly":
			dry, err := strconv.ParseBool(values[0])
			if err != nil {
				return nil, wire.Invalid("validateOnly", "must be true or false")
			}
			fields["validateOnly"] = dry
		}
	}
	return json.Marshal(fields)
}
