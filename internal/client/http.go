package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// call makes a call below /team/v1 and reads its answer into out. A nil in means no body.
func (t *Team) call(ctx context.Context, method, path string, in, out proto.Message) error {
	resp, err := t.send(ctx, method, path, in, wire.TypeJSON)
	if err != nil {
		return err
	}
	defer done(resp)
	data, err := t.read(resp)
	if err != nil {
		return err
	}
	if err := t.refused(resp.StatusCode, data); err != nil {
		return err
	}
	return decode(data, out)
}

// send makes a request and returns its answer, which the caller closes. A redirect is an
// error.
func (t *Team) send(ctx context.Context, method, path string, in proto.Message, accept string) (*http.Response, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = wire.Marshal(in); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, t.base+"/team/v1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", wire.TypeJSON)
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, &a2aclient.TransportError{Address: t.origin(), Err: err}
	}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		done(resp)
		return nil, fmt.Errorf("%s has moved to %s; use that address", wire.Redacted(req.URL.String()), wire.Redacted(to.String()))
	}
	return resp, nil
}

// done closes an answer. Nothing more is read from it.
func done(resp *http.Response) { _ = resp.Body.Close() }

func (t *Team) read(resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, a2aclient.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, &a2aclient.TransportError{Address: t.origin(), Broken: true, Err: err}
	case len(data) > a2aclient.MaxAnswer:
		return nil, fmt.Errorf("the answer is larger than %d bytes", a2aclient.MaxAnswer)
	}
	return data, nil
}

func decode(data []byte, m proto.Message) error {
	if err := wire.UnmarshalAnswer(data, m); err != nil {
		return &a2aclient.AnswerError{Problem: wire.AnswerFault(err)}
	}
	return nil
}
