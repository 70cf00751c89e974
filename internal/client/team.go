// Package client calls a team-server by its own Agent service, for the commands: teams,
// agents, runs and collaborations. Agents that speak A2A are called with pkg/a2aclient.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// Team calls a team-server over REST. It is safe for concurrent use.
type Team struct {
	http  *http.Client
	token string
	base  string
	url   *url.URL // base
}

// NewTeam returns a client of the team-server at a base address, such as
// http://127.0.0.1:8080. The token is sent as bearer token; empty sends none. secure configures
// TLS; nil trusts the authorities of the system.
func NewTeam(base, token string, secure *tls.Config) (*Team, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, addressError(base)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}
	return &Team{token: token, base: strings.TrimSuffix(base, "/"), url: u, http: &http.Client{
		Transport: transport,
		// A token must not follow a redirect to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// addressError is the error for an invalid address of a server.
type addressError string

func (e addressError) Error() string {
	return fmt.Sprintf("%q is not a valid address; expected http://HOST:PORT", wire.Redacted(string(e)))
}

func (addressError) Unwrap() error { return a2aclient.ErrAddress }

func (t *Team) origin() string { return t.url.Scheme + "://" + t.url.Host }

// refused returns the error of an answer; nil if it is a success. For an error that neither a
// team-server nor a proxy in front of it sends, the message says that another server answers
// at the address.
func (t *Team) refused(httpStatus int, body []byte) error {
	st := wire.ParseRESTError(httpStatus, body)
	switch httpStatus {
	case http.StatusOK:
		if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
			return nil
		}
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		if wire.InfoOf(st).GetReason() != "" {
			return wire.Error(st)
		}
	default:
		return wire.Error(st)
	}
	return fmt.Errorf("the server at %s does not look like a team-server; "+
		"use the address after http= of a server's ready line, for example http://127.0.0.1:8080", strings.TrimSuffix(wire.Redacted(t.url.String()), "/"))
}

// Process sends a message to an agent and yields the events of its run whose sequence
// numbers are larger than after, until the run ends or waits for people. An error is the last
// element.
func (t *Team) Process(ctx context.Context, run *teamv1.ProcessRequest, after int64) iter.Seq2[*teamv1.ProcessStreamResponse, error] {
	path := "/agents/" + url.PathEscape(run.GetAgentId()) + ":processStream"
	return stream(t, func() (*http.Response, error) {
		return t.send(ctx, http.MethodPost, path, &teamv1.ProcessStreamRequest{Request: run, After: after}, wire.TypeSSE)
	}, func() *teamv1.ProcessStreamResponse { return &teamv1.ProcessStreamResponse{} })
}

// stream makes a call and yields the messages of its answer. An error is the last element.
func stream[M proto.Message](t *Team, send func() (*http.Response, error), empty func() M) iter.Seq2[M, error] {
	return func(yield func(M, error) bool) {
		var zero M
		resp, err := send()
		if err != nil {
			yield(zero, err)
			return
		}
		defer done(resp)
		if resp.StatusCode != http.StatusOK || !wire.IsEventStream(resp.Header) {
			yield(zero, t.noStream(resp))
			return
		}
		for ev, err := range wire.ReadEvents(resp.Body) {
			out := empty()
			switch {
			case err != nil:
			case ev.Kind == "error":
				err = wire.Error(wire.ParseRESTError(http.StatusInternalServerError, ev.Data))
			default:
				err = decode(ev.Data, out)
			}
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}

// noStream returns the error for an answer that is not a stream of events.
func (t *Team) noStream(resp *http.Response) error {
	data, err := t.read(resp)
	if err == nil {
		err = t.refused(resp.StatusCode, data)
	}
	if err == nil {
		err = fmt.Errorf("the server answered %s, not an event stream", resp.Header.Get("Content-Type"))
	}
	return err
}

// Close closes idle connections.
func (t *Team) Close() { t.http.CloseIdleConnections() }
