package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/pkg/agent"
)

// Elicit says who answers the questions that a server asks during calls (MCP elicitation).
type Elicit struct {
	// Approvers are the people who may answer.
	agent.Approvers
	// KeepOpen is the time for which a call is kept open for an answer, if the server speaks a version
	// of MCP that needs that; 0 means DefaultKeepOpen. A call that may not be repeated has no longer
	// for its answer than this.
	KeepOpen time.Duration
}

// DefaultKeepOpen is the time for which a call is kept open for an answer by default.
const DefaultKeepOpen = 15 * time.Minute

const (
	// keepMargin is the time for which a call is kept open after its question has expired, so that the
	// server learns of that.
	keepMargin = time.Minute
	// continuing is the first version of MCP in which a call ends with its questions, and is made again
	// with the answers. In earlier versions the server asks while it works on the call.
	continuing = "2026-07-28"
	// maxRounds is the maximum number of times that a call is made again without a new answer.
	maxRounds = 10
	// maxState is the maximum size of the state that a call wants back with the answers, and maxRound
	// that of all questions of a call that has ended with them, with the state.
	maxState, maxRound = 64 << 10, 256 << 10
)

// errUnanswered is the cause of a call that was ended because its answer is not awaited any longer.
var errUnanswered = errors.New("the call was kept open for an answer for as long as it may")

// options returns the options of the client.
func (s *Server) options() *mcp.ClientOptions {
	o := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}, ProgressNotificationHandler: s.progress.notified}
	if s.config.Elicit != nil {
		o.ElicitationHandler = s.elicited
		o.Capabilities.Elicitation = &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}
		o.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true} // people answer much later
	}
	return o
}

// passQuestions returns a handler of requests that passes the questions of the server on as they are. The library would also
// check the answers, which forms.ReadToolAnswer has done, and fail for a schema with a pattern that Go cannot read.
func (s *Server) passQuestions(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if q, ok := req.(*mcp.ElicitRequest); ok {
			return s.elicited(ctx, q)
		}
		return next(ctx, method, req)
	}
}

// openCall is a call in progress whose server may ask questions.
type openCall struct {
	key    string
	asks   chan *elicitation // nil if the server may not ask
	cancel context.CancelCauseFunc
	asked  *elicitation  // the question whose answer is awaited, or nil
	used   map[int]bool  // indices of the recorded answers that the call has been given
	done   chan struct{} // closed when the call has ended; r and err are set by then
	r      *mcp.CallToolResult
	err    error

	keep    *time.Timer     // ends the call if the answer takes too long; nil unless it is kept open; guarded by Server.mu
	live    context.Context // ends with the call or its cancel, before its session is closed; guarded by Server.mu
	changed chan struct{}   // closed when the call is kept open, or has ended; guarded by Server.mu
}

// elicitation is a question of a server that waits for its answer.
type elicitation struct {
	params *mcp.ElicitParams
	answer chan elicitAnswer // has room for one
}

// elicitAnswer is the answer to a question, or why people cannot be asked it.
type elicitAnswer struct {
	result *mcp.ElicitResult
	err    error
}

// elicited handles a question that a server asks while it works on a call.
func (s *Server) elicited(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	s.mu.Lock()
	o, live := s.asking, context.Context(nil)
	if o != nil {
		live = o.live
	}
	s.mu.Unlock()
	if o == nil || o.asks == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "questions are only answered during a call of a tool"}
	}
	e := &elicitation{params: req.Params, answer: make(chan elicitAnswer, 1)}
	select {
	case o.asks <- e:
	case <-live.Done():
		return nil, errUnanswered
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-e.answer:
		return a.result, a.err
	case <-live.Done():
		return nil, errUnanswered
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// acquire returns the session for a call. A server that asks while it works on a call does not say which call a question
// belongs to, so it works on one call at a time. The caller must call release after the call, and say whether the server
// has answered it: the questions of a call that ended otherwise may still arrive, so its session is not used again.
func (s *Server) acquire(ctx context.Context, o *openCall) (live *mcp.ClientSession, release func(answered bool), err error) {
	live, err = s.session(ctx)
	if err != nil || o == nil || live.InitializeResult().ProtocolVersion >= continuing {
		return live, func(bool) {}, err
	}
	if err := s.turn(ctx, o); err != nil {
		return nil, nil, err
	}
	own, stop := context.WithCancel(ctx)
	s.mu.Lock()
	o.live = own
	s.mu.Unlock()
	if live, err = s.session(ctx); err != nil { // it may have ended with the call before
		stop()
		s.endTurn(o)
		return nil, nil, err
	}
	return live, func(answered bool) {
		stop()
		if !answered {
			s.drop(live)
		}
		s.endTurn(o)
	}, nil
}

// turn waits until the server works on no other call. While that call waits for an answer of people, it returns an error:
// the answer may take long.
func (s *Server) turn(ctx context.Context, o *openCall) error {
	for {
		s.mu.Lock()
		other := s.asking
		if other == nil {
			s.asking, o.changed = o, make(chan struct{})
			s.mu.Unlock()
			return nil
		}
		kept, changed := other.keep != nil, other.changed
		s.mu.Unlock()
		if kept {
			e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonUnavailable,
				"a call of the MCP server of tool %q waits for an answer of people, and the server takes no other until then; call it again later", s.config.Name)
			e.Retry, e.Fresh = true, true
			return e
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endTurn lets the next call begin.
func (s *Server) endTurn(o *openCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.keep != nil {
		o.keep.Stop()
		o.keep = nil
	} else {
		close(o.changed)
	}
	s.asking = nil
}

// keepOpen keeps a call open until take is called with its key, and reports whether it does: not after
// the end of ctx, because the call may have been released already.
func (s *Server) keepOpen(ctx context.Context, o *openCall, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case s.closed || s.asking != o:
		return true // the call ends, and people may answer later
	}
	o.keep = time.AfterFunc(d, func() { o.cancel(errUnanswered) })
	close(o.changed)
	return true
}

// take returns the call with a key that is kept open, or nil. The caller then waits for
// it.
func (s *Server) take(key string) *openCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.asking
	if o == nil || o.key != key || o.keep == nil || !o.keep.Stop() {
		return nil
	}
	o.keep, o.changed = nil, make(chan struct{})
	return o
}

// Release ends the call with a key if it is kept open.
func (s *Server) Release(key string) {
	if o := s.take(key); o != nil {
		o.cancel(errUnanswered)
	}
}

// Release implements agent.AskingTool.
func (t *tool) Release(key string) { t.server.Release(key) }

// CallAsking implements agent.AskingTool.
func (t *tool) CallAsking(ctx context.Context, c agent.ToolCall) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	if t.server.config.Elicit == nil {
		r, err := t.Call(ctx, c.Arguments, c.Key)
		return r, nil, err
	}
	params, err := t.params(ctx, c.Arguments, c.Key)
	if err != nil {
		return nil, nil, err
	}
	a := &asking{tool: t, call: c, params: params, used: map[int]bool{}}
	if !c.Continue {
		t.Release(c.Key)
		return a.begin(ctx)
	}
	last := len(c.Answers) - 1
	if state := c.Answers[last].State; state != nil {
		return a.resume(ctx, state)
	}
	if o := t.server.take(c.Key); o != nil {
		a.used = o.used
		a.used[last] = true
		o.asked.answer <- elicitAnswer{result: resultOf(c.Answers[last].Answer)}
		return a.wait(ctx, o)
	}
	if c.Once {
		e := lost(t.spec.Name)
		e.Message = "the call of " + t.spec.Name + " was not kept open until its question was answered; it is unknown whether the call took effect"
		return nil, nil, e
	}
	return a.begin(ctx)
}

// asking is one use of CallAsking.
type asking struct {
	tool   *tool
	call   agent.ToolCall
	params *mcp.CallToolParams
	used   map[int]bool // indices of the recorded answers that the server has been given
	rounds int          // how often the call was made again without a new answer
}

// begin makes the call, and waits for its result or question.
func (a *asking) begin(ctx context.Context) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	t := a.tool
	life, done, err := t.server.begin(context.WithoutCancel(ctx)) // it may outlive the step's attempt
	if err != nil {
		return nil, nil, err
	}
	use, life, err := inforce.Of(ctx).Begin(life, "", inforce.Subject{
		Kind: teamv1.HaltKind_HALT_KIND_TOOL, Names: [][]string{{t.spec.Name, t.ToolSet()}},
	})
	if err != nil {
		done()
		return nil, nil, err
	}
	o := &openCall{key: a.call.Key, asks: make(chan *elicitation), done: make(chan struct{}), used: a.used}
	life, o.cancel = context.WithCancelCause(life)
	params := a.params
	go func() {
		defer done()
		defer use.End()
		defer o.cancel(nil)
		defer close(o.done)
		o.r, o.err = t.call(life, params, o)
	}()
	return a.wait(ctx, o)
}

// wait waits until the call has a result or asks people.
func (a *asking) wait(ctx context.Context, o *openCall) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	for {
		select {
		case e := <-o.asks:
			if ctx.Err() != nil {
				o.cancel(context.Cause(ctx))
				return nil, nil, context.Cause(ctx)
			}
			q, err := a.tool.question(e.params)
			if err != nil {
				e.answer <- elicitAnswer{err: err}
				continue
			}
			if answer := a.recorded(q); answer != nil {
				e.answer <- elicitAnswer{result: resultOf(answer)}
				continue
			}
			ask, err := a.keepOpen(ctx, o, e, q)
			return nil, ask, err
		case <-o.done:
			return a.ended(ctx, o)
		case <-ctx.Done():
			o.cancel(context.Cause(ctx))
			return nil, nil, context.Cause(ctx)
		}
	}
}

// keepOpen keeps a call open that has asked q, and returns the question for people. A call that may
// not be repeated must get its answer while it is open.
func (a *asking) keepOpen(ctx context.Context, o *openCall, e *elicitation, q *teamv1.ToolQuestion) (*agent.ToolAsk, error) {
	o.asked = e
	c := a.tool.server.config.Elicit
	ask := &agent.ToolAsk{Question: q, Approvers: c.Approvers}
	keep := cmp.Or(c.KeepOpen, DefaultKeepOpen)
	if !a.call.Repeatable {
		if ask.Expires == 0 || ask.Expires > keep {
			ask.Expires = keep
		}
		keep += keepMargin
	}
	if !a.tool.server.keepOpen(ctx, o, keep) {
		o.cancel(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return ask, nil
}

// ended returns the result of a call that has ended, or the questions that it ended with.
func (a *asking) ended(ctx context.Context, o *openCall) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	var refused *jsonrpc.Error
	switch {
	case o.err != nil && errors.As(o.err, &refused) && refused.Code == mcp.CodeURLElicitationRequired:
		return a.visit(ctx, refused)
	case o.err != nil:
		return nil, nil, o.err
	case o.r.NeedsInput():
		return a.next(ctx, round{Requests: o.r.InputRequests, State: o.r.RequestState, Used: slices.Sorted(maps.Keys(a.used))})
	}
	return a.tool.server.result(o.r), nil, nil
}

// round are the questions that a call has ended with. It is what a call needs to continue.
type round struct {
	Requests mcp.InputRequestMap `json:"requests"`
	// State is what the server wants back with the answers.
	State string `json:"state,omitempty"`
	// Used are the indices of the recorded answers that earlier rounds used.
	Used []int `json:"used,omitempty"`
	// Anew says that the call is made anew after the answers, which the server does not receive.
	Anew bool `json:"anew,omitempty"`
}

// visit returns the questions of a call that the server has refused until people have opened addresses.
func (a *asking) visit(ctx context.Context, refused *jsonrpc.Error) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	var data struct {
		Elicitations []*mcp.ElicitParams `json:"elicitations"`
	}
	err := json.Unmarshal(refused.Data, &data)
	if len(data.Elicitations) == 0 {
		return failed("%s wants an address to be opened, but names none", a.tool.spec.Name), nil, nil
	}
	if err != nil {
		return failed("%s wants an address to be opened, but does not say which", a.tool.spec.Name), nil, nil //nolint:nilerr // the model is told
	}
	r := round{Requests: mcp.InputRequestMap{}, Anew: true, Used: slices.Sorted(maps.Keys(a.used))}
	for i, p := range data.Elicitations {
		r.Requests[strconv.Itoa(i)] = p
	}
	return a.next(ctx, r)
}

// resume continues a call that has ended with questions.
func (a *asking) resume(ctx context.Context, state []byte) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	var r round
	if err := json.Unmarshal(state, &r); err != nil {
		return nil, nil, err
	}
	for _, i := range r.Used {
		a.used[i] = true
	}
	return a.next(ctx, r)
}

// next asks the first question of a round that has no answer. If all have one, it makes the call again.
func (a *asking) next(ctx context.Context, r round) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	if len(r.State) > maxState {
		return failed("%s asks for answers with a state of %d bytes; at most %d are allowed", a.tool.spec.Name, len(r.State), maxState), nil, nil
	}
	state, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	if len(state) > maxRound {
		return failed("%s asks questions of %d bytes at once; at most %d are allowed", a.tool.spec.Name, len(state), maxRound), nil, nil
	}
	known := len(a.used)
	answers := mcp.InputResponseMap{}
	for _, id := range slices.Sorted(maps.Keys(r.Requests)) {
		p, ok := r.Requests[id].(*mcp.ElicitParams)
		if !ok {
			return failed("%s needs more than answers of people, which is not supported: it may ask for a form or an address only", a.tool.spec.Name), nil, nil
		}
		q, err := a.tool.question(p)
		if err != nil {
			return failed("%s asks a question that cannot be shown to people: %s", a.tool.spec.Name, err), nil, nil
		}
		answer := a.recorded(q)
		if answer == nil {
			return nil, &agent.ToolAsk{Question: q, State: state, Approvers: a.tool.server.config.Elicit.Approvers}, nil
		}
		if r.Anew && answer.GetAction() != teamv1.ToolAnswer_ACTION_ACCEPT {
			return failed("%s was not called, because a person did not agree to open the address that it needs", a.tool.spec.Name), nil, nil
		}
		answers[id] = resultOf(answer)
	}
	if len(a.used) == known {
		if a.rounds++; a.rounds > maxRounds {
			return failed("%s wanted to be called again %d times without asking anything", a.tool.spec.Name, maxRounds), nil, nil
		}
	}
	again := *a.params
	again.InputResponses, again.RequestState = nil, ""
	if !r.Anew {
		again.InputResponses, again.RequestState = answers, r.State
	}
	a.params = &again
	return a.begin(ctx)
}

// recorded returns the recorded answer to a question, or nil. Each answer is used once. That
// a question has expired counts only while the call that asked it continues.
func (a *asking) recorded(q *teamv1.ToolQuestion) *teamv1.ToolAnswer {
	last := len(a.call.Answers) - 1
	for i, known := range a.call.Answers {
		if known.Expired {
			current := i == last || known.State != nil && bytes.Equal(known.State, a.call.Answers[last].State)
			if !a.call.Continue || !current {
				continue
			}
		}
		if !a.used[i] && known.Question.GetHash() == q.GetHash() {
			a.used[i] = true
			return known.Answer
		}
	}
	return nil
}

// question returns a question of the server for people. The error says why people cannot be asked it.
func (t *tool) question(p *mcp.ElicitParams) (*teamv1.ToolQuestion, error) {
	q := &teamv1.ToolQuestion{Tool: t.spec.Name, Server: t.server.config.Name, Message: cut(p.Message), Url: p.URL}
	if p.RequestedSchema != nil {
		var err error
		if q.Schema, err = exactJSON(p.RequestedSchema); err != nil {
			return nil, err
		}
	}
	switch {
	case p.Mode != "" && p.Mode != "form" && p.Mode != "url":
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("a question has the mode %q; it must be form or url", p.Mode)}
	case (p.Mode == "url") != (p.URL != "") && p.Mode != "":
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a question has a url exactly if its mode is url"}
	}
	if _, err := forms.ParseToolForm(q); err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	q.Hash = agent.HashOf(q.GetMessage(), q.GetSchema(), q.GetUrl())
	return q, nil
}

// resultOf returns an answer as the server receives it.
func resultOf(a *teamv1.ToolAnswer) *mcp.ElicitResult {
	switch a.GetAction() {
	case teamv1.ToolAnswer_ACTION_ACCEPT:
		return &mcp.ElicitResult{Action: "accept", Content: forms.ToolContent(a)}
	case teamv1.ToolAnswer_ACTION_DECLINE:
		return &mcp.ElicitResult{Action: "decline"}
	case teamv1.ToolAnswer_ACTION_CANCEL, teamv1.ToolAnswer_ACTION_UNSPECIFIED:
	}
	return &mcp.ElicitResult{Action: "cancel"}
}
