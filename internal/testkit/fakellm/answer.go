package fakellm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// maxBody is the maximum size of a request body, in bytes.
const maxBody = 16 << 20

// wire implements the API of a provider.
type wire interface {
	// decode decodes a request into r. It returns an error for a request that the
	// provider would reject.
	decode(r *Request, body []byte) error
	// fail sends an error response.
	fail(w http.ResponseWriter, t Turn)
	// frames returns the events of a stream: its pieces, and the events before and
	// after them.
	frames(a *answer) (before, pieces, after []string)
}

// chatCompletions is OpenAI's chat completions API.
type chatCompletions struct{}

// wireOf returns the API that a path belongs to, or nil.
func wireOf(path string) wire {
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return chatCompletions{}
	case strings.HasSuffix(path, "/v1/messages"):
		return messages{}
	case strings.HasSuffix(path, ":streamGenerateContent"):
		return generateContent{}
	}
	return nil
}

// ServeHTTP handles POST …/chat/completions, …/v1/messages and …:streamGenerateContent, and GET
// …/models, below any path.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	api := wireOf(req.URL.Path)
	switch {
	case req.Method == http.MethodPost && api != nil:
		s.complete(w, req, api)
	case req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/models"):
		s.list(w)
	default:
		writeError(w, http.StatusNotFound, "unknown_url", "Unknown request URL: "+req.Method+" "+req.URL.Path)
	}
}

func (s *Server) list(w http.ResponseWriter) {
	s.mu.Lock()
	names := make([]string, 0, len(s.models))
	for name := range s.models {
		names = append(names, name)
	}
	s.mu.Unlock()
	slices.Sort(names)
	data := make([]map[string]any, len(names))
	for i, name := range names {
		data[i] = map[string]any{"id": name, "object": "model", "owned_by": "fakellm"}
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

// complete records a request and answers it.
func (s *Server) complete(w http.ResponseWriter, req *http.Request, api wire) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return // the client disconnected
	}
	r := &Request{Path: req.URL.Path, Auth: req.Header.Get("Authorization"), Header: req.Header.Clone()}
	bad := api.decode(r, body)
	s.arrive(r)
	a := &answer{s: s, w: w, wire: api, r: r, ctx: req.Context(), status: http.StatusOK}
	defer a.finish()
	if bad != nil {
		a.fail(Turn{Status: http.StatusBadRequest, Code: "invalid_request", Message: bad.Error()})
		return
	}
	a.give(s.next(r))
}

func (s *Server) arrive(r *Request) {
	s.change(func() {
		s.requests = append(s.requests, r)
		s.running++
		s.peak = max(s.peak, s.running)
		r.N, r.Arrived = len(s.requests), time.Now()
	})
}

// answer is a response in progress. It is used only by the goroutine of its request.
type answer struct {
	s      *Server
	w      http.ResponseWriter
	wire   wire
	r      *Request
	ctx    context.Context
	turn   Turn
	id     string
	status int
	pieces int  // sent so far
	total  int  // pieces of a streamed turn
	begun  bool // the provider works on the turn, so it bills its input
	given  bool // sent completely
}

// finish completes the record. It also runs when the connection is aborted.
func (a *answer) finish() {
	gone := !a.given && a.ctx.Err() != nil
	a.s.change(func() {
		a.s.running--
		a.r.Finished, a.r.Status, a.r.Gone, a.r.Billed = time.Now(), a.status, gone, a.bill()
	})
}

// bill returns what the provider charges for the turn: its input, and the output that it has
// generated before the connection ended. Refused requests cost nothing.
func (a *answer) bill() Usage {
	if !a.begun || a.status != http.StatusOK {
		return Usage{}
	}
	u := *a.usage()
	if !a.given && a.total > 0 {
		u.CompletionTokens = (u.CompletionTokens*int64(a.pieces) + int64(a.total) - 1) / int64(a.total)
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// give sends a turn.
func (a *answer) give(t Turn) {
	a.turn = t
	a.number()
	a.begun = true
	need(delay(a.ctx, t.Delay))
	a.hold(0)
	switch {
	case t.Status != 0 && t.Status != http.StatusOK:
		a.fail(t)
	case a.r.Stream:
		a.stream()
	default:
		a.plain()
	}
}

// number assigns ids to the answer and to calls without an id.
func (a *answer) number() {
	calls := slices.Clone(a.turn.Calls)
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.id = "chatcmpl-" + strconv.Itoa(a.r.N)
	for i := range calls {
		if calls[i].ID == "" {
			a.s.calls++
			calls[i].ID = "call_" + strconv.Itoa(a.s.calls)
		}
	}
	a.turn.Calls = calls
}

// hold waits at the gate, if it is to be passed after this number of pieces.
func (a *answer) hold(after int) {
	if g := a.turn.Gate; g != nil && (a.turn.GateAfter == after || !a.r.Stream) {
		need(g.pass(a.ctx))
	}
}

// need aborts the connection if err is not nil.
func need(err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (a *answer) fail(t Turn) {
	a.status = t.Status
	if t.RetryAfter > 0 {
		a.w.Header().Set("Retry-After-Ms", strconv.FormatInt(t.RetryAfter.Milliseconds(), 10))
		a.w.Header().Set("Retry-After", strconv.FormatInt(int64((t.RetryAfter+time.Second-1)/time.Second), 10))
	}
	if t.Message == "" {
		t.Message = http.StatusText(t.Status)
	}
	a.given = true
	if t.Body != "" {
		a.w.Header().Set("Content-Type", "application/json")
		a.w.WriteHeader(t.Status)
		_, _ = io.WriteString(a.w, t.Body)
		return
	}
	a.wire.fail(a.w, t)
}

func (a *answer) plain() {
	if a.turn.Broken {
		need(errBroken)
	}
	message := map[string]any{"role": "assistant", "content": a.turn.Text}
	if a.turn.Reasoning != "" {
		message["reasoning_content"] = a.turn.Reasoning
	}
	var calls []map[string]any
	for _, c := range a.turn.Calls {
		calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": function{c.Name, c.Arguments}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	body := a.object("chat.completion", []any{map[string]any{"index": 0, "message": message, "finish_reason": a.reason()}})
	if !a.turn.NoUsage {
		body["usage"] = a.usage()
	}
	writeJSON(a.w, http.StatusOK, body)
	a.given = true
}

func (a *answer) object(kind string, choices []any) map[string]any {
	return map[string]any{"id": a.id, "object": kind, "created": a.r.Arrived.Unix(), "model": a.r.Model, "choices": choices}
}

func (a *answer) reason() string {
	if len(a.turn.Calls) > 0 {
		return cmp.Or(a.turn.Finish, "tool_calls")
	}
	return cmp.Or(a.turn.Finish, "stop")
}

func (a *answer) usage() *Usage {
	if a.turn.Usage != nil {
		return a.turn.Usage
	}
	u := scripted.UsageOf(a.r.modelRequest(), &teamv1.Turn{Text: a.turn.Text, ToolCalls: toolCalls(a.turn.Calls)})
	return &Usage{PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Input + u.Output}
}

// errBroken aborts a turn that is to break.
var errBroken = errors.New("broken on purpose")

func delay(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fail implements wire.
func (chatCompletions) fail(w http.ResponseWriter, t Turn) {
	writeError(w, t.Status, t.Code, t.Message)
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	e := map[string]any{"message": message, "type": kind, "param": nil, "code": nil}
	if code != "" {
		e["code"] = code
	}
	writeJSON(w, status, map[string]any{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
