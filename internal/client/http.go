package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// maxBody bounds one answer, in bytes.
const maxBody = 16 << 20

// web makes HTTP calls, and shows them where asked to.
type web struct {
	cfg  Config
	http *http.Client
}

func newWeb(cfg Config) *web {
	return &web{cfg: cfg, http: &http.Client{
		// A token must not follow a redirect to who knows where.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (w *web) raw(format string, args ...any) {
	if w.cfg.Raw != nil {
		fmt.Fprintf(w.cfg.Raw, format+"\n", args...)
	}
}

func (w *web) do(req *http.Request, body []byte) (*http.Response, error) {
	req.Header.Set("A2A-Version", "1.0")
	if len(w.cfg.Extensions) > 0 {
		req.Header.Set("A2A-Extensions", strings.Join(w.cfg.Extensions, ", "))
	}
	if w.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.cfg.Token)
	}
	w.raw("> %s %s", req.Method, req.URL)
	for _, h := range []string{"A2A-Version", "A2A-Extensions", "Accept", "Content-Type"} {
		if v := req.Header.Get(h); v != "" {
			w.raw("> %s: %s", h, v)
		}
	}
	if body != nil {
		w.raw("> %s", body)
	}
	resp, err := w.http.Do(req) //nolint:gosec // the user names the address
	if err != nil {
		return nil, unreachable(req.URL.Scheme+"://"+req.URL.Host, err)
	}
	w.raw("< %s", resp.Status)
	w.raw("< Content-Type: %s", resp.Header.Get("Content-Type"))
	return resp, nil
}

// done closes an answer; what was wanted of it has been read.
func done(resp *http.Response) { _ = resp.Body.Close() }

func (w *web) read(resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	w.raw("< %s", bytes.TrimSpace(data))
	return data, nil
}

// post sends a body and returns the response, whatever its status.
func (w *web) post(ctx context.Context, url, accept, media string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the card names %q, which is no address", url)
	}
	req.Header.Set("Content-Type", media)
	req.Header.Set("Accept", accept)
	return w.do(req, body)
}

func (w *web) close() error {
	w.http.CloseIdleConnections()
	return nil
}

// events reads a stream of server-sent events. An event that has no id is shown
// without: it comes with the newest one so far.
func (w *web) events(resp *http.Response) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		newest := ""
		for ev, err := range wire.ReadEvents(resp.Body) {
			switch {
			case err != nil:
			case ev.ID != newest:
				w.raw("< id: %s data: %s", ev.ID, ev.Data)
				newest = ev.ID
			default:
				w.raw("< data: %s", ev.Data)
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

func streams(resp *http.Response) bool {
	return resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}

const (
	mediaJSON   = "application/json"
	mediaA2A    = "application/a2a+json"
	mediaEvents = "text/event-stream"
)

// rest is the HTTP+JSON binding.
type rest struct {
	*web
	base, tenant string
}

// path of an operation: the tenant is part of it, unless the card's address
// holds it already.
func (r *rest) path(req *a2av1.SendMessageRequest, operation string) string {
	if t := req.GetTenant(); t != "" && !strings.HasSuffix(r.base, "/"+t) {
		return r.base + "/" + t + operation
	}
	return r.base + operation
}

func (r *rest) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	body, err := wire.Marshal(req)
	if err != nil {
		return nil, err
	}
	resp, err := r.post(ctx, r.path(req, "/message:send"), mediaA2A+", "+mediaJSON, mediaA2A, body)
	if err != nil {
		return nil, err
	}
	defer done(resp)
	data, err := r.read(resp)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refused(wire.ParseRESTError(resp.StatusCode, data))
	}
	out := &a2av1.SendMessageResponse{}
	return out, decode(data, out)
}

func (r *rest) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		body, err := wire.Marshal(req)
		if err != nil {
			yield(nil, err)
			return
		}
		r.follow(ctx, r.path(req, "/message:stream"), body, func(data []byte) bool {
			out := &a2av1.StreamResponse{}
			err := decode(data, out)
			return yield(out, err) && err == nil
		}, func(err error) { yield(nil, err) })
	}
}

// follow posts a body and hands on the data of each event of the answer.
func (w *web) follow(ctx context.Context, url string, body []byte, each func([]byte) bool, failed func(error)) {
	resp, err := w.post(ctx, url, mediaEvents, mediaJSON, body)
	if err != nil {
		failed(err)
		return
	}
	defer done(resp)
	if !streams(resp) {
		data, err := w.read(resp)
		if err == nil {
			err = refused(wire.ParseRESTError(resp.StatusCode, data))
		}
		if err == nil {
			err = fmt.Errorf("the server answered %s, no stream of events", resp.Header.Get("Content-Type"))
		}
		failed(err)
		return
	}
	for ev, err := range w.events(resp) {
		switch {
		case err != nil:
			failed(err)
			return
		case ev.Kind == "error":
			failed(refused(wire.ParseRESTError(http.StatusInternalServerError, ev.Data)))
			return
		case !each(ev.Data):
			return
		}
	}
}

func decode(data []byte, m proto.Message) error {
	if err := wire.Unmarshal(data, m); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}

// jsonrpc is the JSON-RPC binding.
type jsonrpc struct {
	*web
	url  string
	next atomic.Int64
}

func (j *jsonrpc) request(method string, req proto.Message) ([]byte, error) {
	params, err := wire.Marshal(req)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		wire.RPCRequest
	}{"2.0", wire.RPCRequest{ID: json.RawMessage(strconv.FormatInt(j.next.Add(1), 10)), Method: method, Params: params}})
}

// result takes the result out of an envelope.
func result(data []byte, m proto.Message) error {
	var env wire.RPCResponse
	if err := json.Unmarshal(data, &env); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if env.Error != nil {
		return refused(wire.ParseRPCError(env.Error))
	}
	return decode(env.Result, m)
}

func (j *jsonrpc) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	body, err := j.request("SendMessage", req)
	if err != nil {
		return nil, err
	}
	resp, err := j.post(ctx, j.url, mediaJSON, mediaJSON, body)
	if err != nil {
		return nil, err
	}
	defer done(resp)
	data, err := j.read(resp)
	if err != nil {
		return nil, err
	}
	out := &a2av1.SendMessageResponse{}
	return out, result(data, out)
}

func (j *jsonrpc) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		body, err := j.request("SendStreamingMessage", req)
		if err != nil {
			yield(nil, err)
			return
		}
		resp, err := j.post(ctx, j.url, mediaEvents, mediaJSON, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer done(resp)
		if !streams(resp) {
			data, err := j.read(resp)
			if err == nil {
				err = result(data, &a2av1.StreamResponse{})
			}
			yield(nil, err)
			return
		}
		for ev, err := range j.events(resp) {
			out := &a2av1.StreamResponse{}
			if err == nil {
				err = result(ev.Data, out)
			}
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}
