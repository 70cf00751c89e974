package client

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/status"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Team calls a team-server by its own Agent service, over REST. Safe for
// concurrent use.
type Team struct {
	web   *web
	base  string
	shown string // base without a password
}

// NewTeam returns a client of the team-server at a base address, such as
// http://127.0.0.1:8080.
func NewTeam(base string, cfg Config) (*Team, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, noAddress(base, "http://HOST:PORT")
	}
	return &Team{web: newWeb(cfg), base: strings.TrimSuffix(base, "/"), shown: strings.TrimSuffix(u.Redacted(), "/")}, nil
}

// refused is the error that an answer stands for; nil is a good answer. One that no
// team-server gives is from something else at its address, unless a proxy gives it.
func (t *Team) refused(httpStatus int, body []byte) error {
	st := byStatus(wire.ParseRESTError)(httpStatus, body)
	switch httpStatus {
	case http.StatusOK:
		if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
			return nil
		}
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		if wire.InfoOf(st).GetReason() != "" {
			return refused(st)
		}
	default:
		return refused(st)
	}
	return fmt.Errorf("what answers at %s does not look like a team-server; "+
		"use the address after http= of a server's ready line, for example http://127.0.0.1:8080", t.shown)
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
		var none error // why what came is no stream
		judge := func(httpStatus int, body []byte) *status.Status {
			none = t.refused(httpStatus, body)
			return nil
		}
		for ev, err := range t.web.events(req, body, judge) {
			out := &teamv1.ProcessStreamResponse{}
			switch {
			case none != nil:
				err = none
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
