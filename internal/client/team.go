package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Team calls a team-server by its own Agent service, over REST. Safe for
// concurrent use.
type Team struct {
	web  *web
	base string
}

// NewTeam returns a client of the team-server at a base address, such as
// http://127.0.0.1:8080.
func NewTeam(base string, cfg Config) (*Team, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, noAddress(base, "http://HOST:PORT")
	}
	return &Team{web: newWeb(cfg), base: strings.TrimSuffix(base, "/")}, nil
}

// Process gives an agent a message and yields the events of its run, those
// behind a sequence only, until it has ended or waits for people.
func (t *Team) Process(ctx context.Context, run *teamv1.ProcessRequest, after int64) iter.Seq2[*teamv1.ProcessStreamResponse, error] {
	return func(yield func(*teamv1.ProcessStreamResponse, error) bool) {
		body, err := wire.Marshal(&teamv1.ProcessStreamRequest{Request: run, After: after})
		if err != nil {
			yield(nil, err)
			return
		}
		target := t.base + "/team/v1/agents/" + url.PathEscape(run.GetAgentId()) + ":processStream"
		req, err := t.web.request(ctx, http.MethodPost, target, wire.TypeJSON, body)
		if err != nil {
			yield(nil, err)
			return
		}
		for ev, err := range t.web.events(req, body, byStatus(wire.ParseRESTError)) {
			out := &teamv1.ProcessStreamResponse{}
			switch {
			case err != nil:
			case ev.Kind == "error":
				err = refused(wire.ParseRESTError(http.StatusInternalServerError, ev.Data))
			default:
				err = decode(ev.Data, out)
			}
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}

// Close closes idle connections.
func (t *Team) Close() { _ = t.web.close() }
