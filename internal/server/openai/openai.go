// Package openai is the door for clients of OpenAI's API: it translates their requests to calls of the A2A and registry
// services, which pass the same chain as those of the other bindings, and the answers back. The model of a request is an agent
// or a team.
package openai

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/service"
)

// Config configures a Door.
type Config struct {
	Settings *teamv1.OpenAiDoor
	// StallTime is how long the reader of a stream may accept no data.
	StallTime time.Duration
}

// Door answers clients of OpenAI's API. It is safe for concurrent use.
type Door struct {
	config   Config
	table    *service.Table
	tasks    a2av1.A2AServiceClient
	registry teamv1.RegistryServiceClient
	open     callers
}

// New returns the door to the services of a table.
func New(config Config, table *service.Table) *Door {
	return &Door{
		config: config, table: table, tasks: a2av1.NewA2AServiceClient(table.Conn()), registry: teamv1.NewRegistryServiceClient(table.Conn()),
		open: callers{calls: map[string]*caller{}},
	}
}

// Route is a path that a door serves. The body is that of the request.
type Route struct {
	Method, Path string
	Serve        func(w http.ResponseWriter, r *http.Request, params map[string]string, body []byte)
}

// Routes returns the paths that the door serves.
func (d *Door) Routes() []Route {
	return []Route{
		{http.MethodPost, "/v1/chat/completions", d.chat},
		{http.MethodPost, "/v1/responses", d.create},
		{http.MethodGet, "/v1/responses/{id}", d.retrieve},
		{http.MethodPost, "/v1/responses/{id}/cancel", d.cancelResponse},
		{http.MethodGet, "/v1/models", d.models},
		{http.MethodGet, "/v1/models/{id=**}", d.model},
	}
}

var paths = regexp.MustCompile(`^/v1/(chat/completions|models|responses)(/|$)`)

// Serves reports whether a path is one of a door. Those of A2A 0.3 begin with /v1, too.
func Serves(path string) bool { return paths.MatchString(path) }

// reply sends a JSON answer with status 200.
func reply(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "private, no-store")
	h.Add("Vary", "Authorization")
	call.LimitWrite(w)
	_, _ = w.Write(b) // the caller may have disconnected
}

// modelID returns the id of an agent in a path or a request: some programs put the name of a provider before it.
func modelID(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }
