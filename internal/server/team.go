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
	teamv1.TeamServiceServer
	teamv1.RegistryServiceServer
	// Deletable returns the error with which DeleteTeam would reject the request, nil if it
	// would delete the team. It does not consider collaborations.
	Deletable(context.Context, *teamv1.DeleteTeamRequest) error
}

// teams returns the team service, nil if it is not served. If collaborations are served, it takes them into account.
func (c *Config) teams() any {
	if c.Teams == nil || c.Collaborations == nil {
		return c.Teams
	}
	return teamsWithCollaborations{c.Teams, c.Collaborations}
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
