package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// player plays the steps of one test over one binding.
type player struct {
	sut       *sut
	binding   string
	variables map[string]any
}

// play returns what is wrong; empty if the test passes.
func (p *player) play(ctx context.Context, t *test) string {
	for i := range t.Steps {
		if problem := p.step(ctx, &t.Steps[i]); problem != "" {
			return t.Steps[i].ID + ": " + problem
		}
	}
	return p.assertions(t.Assertions)
}

func (p *player) step(ctx context.Context, s *step) string {
	time.Sleep(time.Duration(s.DelayMS) * time.Millisecond)
	attempts, pause := 1, time.Second
	if s.Repeat != nil {
		attempts, pause = max(s.Repeat.MaxAttempts, 1), time.Duration(s.Repeat.DelayMS)*time.Millisecond
	}
	for n := 1; ; n++ {
		r, err := p.send(ctx, s)
		if err != nil {
			return err.Error()
		}
		if problem := p.judge(s, r); problem != "" {
			return problem
		}
		if s.Repeat == nil || holds(s.Repeat.Until, r.body) {
			return p.assertions(s.Assertions)
		}
		if n == attempts {
			return fmt.Sprintf("%s is not so after %d attempts", s.Repeat.Until, n)
		}
		time.Sleep(pause)
	}
}

// send carries out a step, and keeps what it captures.
func (p *player) send(ctx context.Context, s *step) (*result, error) {
	r, err := p.call(ctx, s)
	if err != nil {
		return nil, err
	}
	p.variables[s.ID+".response"] = r.body
	for name, path := range s.Capture {
		if values := at(path, r.body); len(values) > 0 {
			p.variables[s.ID+"."+name] = values[0]
		}
	}
	return r, nil
}

func (p *player) call(ctx context.Context, s *step) (*result, error) {
	switch {
	case s.ClientResponse != nil:
		return parsed(ctx, s.ClientResponse.Operation, s.ClientResponse.WirePayload)
	case s.Raw != nil:
		return p.raw(ctx, s.Raw)
	}
	params, _ := resolve(s.Params, p.variables).(map[string]any)
	return p.sut.call(ctx, p.binding, s.Operation, inModel(params))
}

// inModel returns parameters in the form of A2A's requests. The corpus writes the ids of a message's task and context,
// and the fields of a push configuration, in other places.
func inModel(params map[string]any) map[string]any {
	if message, ok := params["message"].(map[string]any); ok {
		for _, id := range []string{"taskId", "contextId"} {
			if v, ok := params[id]; ok {
				message[id] = v
				delete(params, id)
			}
		}
		if message["messageId"] == nil {
			message["messageId"] = resolve("{{$uuid}}", nil)
		}
	}
	if config, ok := params["pushNotificationConfig"].(map[string]any); ok {
		delete(params, "pushNotificationConfig")
		maps.Copy(params, config)
	}
	return params
}

func (p *player) raw(ctx context.Context, r *raw) (*result, error) {
	var body []byte
	switch {
	case r.BodyRaw != nil:
		body = []byte(*r.BodyRaw)
	case r.Body != nil:
		var err error
		if body, err = json.Marshal(resolve(r.Body, p.variables)); err != nil {
			return nil, err
		}
	}
	header := map[string]string{"X-Raw": "yes"}
	for k, v := range r.Headers {
		header[k] = fmt.Sprint(resolve(v, p.variables))
	}
	// The header of the corpus is sent as it is, but a server that wants keys wants one unless the step is about keys.
	if _, ok := header["Authorization"]; !ok && p.sut.token != "" && p.variables["anonymous"] == nil {
		header["Authorization"] = "Bearer " + p.sut.token
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return p.sut.do(ctx, r.Method, r.Path, header, body)
}

// judge compares a result with what a step expects.
func (p *player) judge(s *step, r *result) string {
	if s.ExpectParsed != nil {
		return check(resolve(s.ExpectParsed, p.variables), r.body)
	}
	if s.ExpectError != nil {
		return p.judgeError(s.ExpectError, r.fault)
	}
	if s.ExpectStream != nil {
		if r.fault != nil {
			return "the stream is refused: " + r.fault.name + " " + r.fault.message
		}
		want, _ := resolve(s.ExpectStream, p.variables).(map[string]any)
		return stream(want, r.events)
	}
	body, status := map[string]any{}, any(nil)
	for k, v := range s.Expect {
		switch {
		case k == "status":
			status = v
		case k == "body":
			fields, _ := v.(map[string]any)
			maps.Copy(body, fields)
		case k == "error" && s.Raw == nil: // an error of the operation, whatever it is
			return unless(r.fault != nil, "succeeds, want an error")
		default: // the corpus leaves body out in places
			body[k] = v
		}
	}
	if r.fault != nil && s.Raw == nil {
		return "is refused: " + r.fault.name + " " + r.fault.message
	}
	if status != nil && (p.binding != "grpc" || s.Raw != nil) {
		if problem := check(resolve(status, p.variables), float64(r.status)); problem != "" {
			return "the status " + problem
		}
	}
	return check(resolve(body, p.variables), r.body)
}

// judgeError compares an error with expect_error, in which the corpus has code for error_type.
func (p *player) judgeError(want map[string]any, got *fault) string {
	if got == nil {
		return "succeeds, want an error"
	}
	for k, w := range want {
		var v any
		switch k {
		case "error_type", "code":
			v = got.name
		case "message":
			v = got.message
		case "data", "details":
			v = got.data
		}
		if problem := check(resolve(w, p.variables), v); problem != "" {
			return "the " + k + " of the error " + problem
		}
	}
	return ""
}

// assertions checks named assertions.
func (p *player) assertions(list []map[string]any) string {
	for _, a := range list {
		source := resolve(a["source"], p.variables)
		if path, ok := a["path"].(string); ok {
			source = first(at(path, source))
		}
		for _, kind := range []string{"any", "all", "none"} {
			rule, ok := a[kind].(map[string]any)
			if !ok {
				continue
			}
			values := at(fmt.Sprint(rule["path"]), source)
			fits := func(v any) bool { return check(resolve(rule["match"], p.variables), v) == "" }
			n := 0
			for _, v := range values {
				if fits(v) {
					n++
				}
			}
			if kind == "any" && n == 0 || kind == "all" && n < len(values) || kind == "none" && n > 0 {
				return fmt.Sprintf("%d of %d at %v match %s", n, len(values), rule["path"], show(rule["match"]))
			}
		}
		if match, ok := a["match"]; ok {
			if problem := check(resolve(match, p.variables), source); problem != "" {
				return problem
			}
		}
	}
	return ""
}

func first(values []any) any {
	if len(values) == 0 {
		return missing{}
	}
	return values[0]
}

// holds reports whether an expression such as "status.state in [A, B]" holds for a value.
func holds(expression string, v any) bool {
	m := regexp.MustCompile(`^(\S+) (==|!=|in) (.*)$`).FindStringSubmatch(expression)
	if m == nil {
		return false
	}
	got := fmt.Sprint(first(at(m[1], v)))
	list := strings.Split(strings.Trim(m[3], "[]"), ", ")
	return slices.Contains(list, got) != (m[2] == "!=")
}

// payloads are the fields of a StreamResponse, by the names that ACTS gives them.
var payloads = map[string]string{"task": "task", "message": "message", "statusUpdate": "status_update", "artifactUpdate": "artifact_update"}

// forms are the values that an assertion on an event may mean: the event, with the names of ACTS too, and its payload.
func forms(event any) []any {
	list := []any{event}
	for name, alias := range payloads {
		if payload := field(event, name); payload != (missing{}) {
			list = append(list, map[string]any{name: payload, alias: payload}, payload)
		}
	}
	return list
}

func fits(want, event any) bool {
	return slices.ContainsFunc(forms(event), func(form any) bool { return check(want, form) == "" })
}

// stream compares events with expect_stream.
func stream(want map[string]any, events []any) string {
	if n, ok := number(want["min_count"]); ok && float64(len(events)) < n {
		return fmt.Sprintf("%d events, want %v or more", len(events), n)
	}
	if want["ordering"] != nil {
		if problem := ordered(events); problem != "" {
			return problem
		}
	}
	list, _ := want["events"].([]any)
	for i, w := range list {
		assertion, _ := w.(map[string]any)
		position, content := i, map[string]any{}
		for k, v := range assertion {
			switch k {
			case "description", "match":
			case "index":
				position, _ = v.(int)
			default:
				content[k] = v
			}
		}
		found := slices.ContainsFunc(events, func(e any) bool { return fits(content, e) })
		if assertion["match"] != "any_position" {
			found = position < len(events) && fits(content, events[position])
		}
		if !found {
			return fmt.Sprintf("no event is %s", show(content))
		}
	}
	if final := want["final_event"]; final != nil && (len(events) == 0 || !fits(final, events[len(events)-1])) {
		return "the last event is not " + show(final)
	}
	for _, e := range events {
		if each := want["each_event"]; each != nil && !fits(each, e) {
			return fmt.Sprintf("the event %s is not %s", show(e), show(each))
		}
	}
	return ""
}

// ordered checks that no state follows a final one, and that SUBMITTED comes first alone.
func ordered(events []any) string {
	last := ""
	for _, e := range events {
		for _, form := range forms(e) {
			state, ok := first(at("status.state", form)).(string)
			if !ok {
				continue
			}
			final := slices.Contains([]string{"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}, last)
			if final || state == "TASK_STATE_SUBMITTED" && last != "" && last != state {
				return state + " after " + last
			}
			last = state
		}
	}
	return ""
}

// parsed returns what the client of this project reads in an answer.
func parsed(ctx context.Context, operation string, payload any) (*result, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(operation, "agent_card") {
		card, err := a2av03.ReadCard(data)
		if err != nil {
			return nil, err
		}
		return seen(card, nil)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	}))
	defer s.Close()
	card := &a2av1.AgentCard{Name: "acts", SupportedInterfaces: []*a2av1.AgentInterface{{Url: s.URL, ProtocolBinding: a2aclient.JSONRPC, ProtocolVersion: a2aclient.V1}}}
	c, err := a2aclient.New(card, s.URL, a2aclient.Config{Lenient: true})
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // of a test
	if operation == "send_message" {
		return seen(c.SendMessage(ctx, &a2av1.SendMessageRequest{Message: &a2av1.Message{}}))
	}
	id, _ := first(at("result.id", payload)).(string)
	return seen(c.GetTask(ctx, &a2av1.GetTaskRequest{Id: id}))
}

// seen returns the result of a call of the client; an error of the server has the form of JSON-RPC.
func seen(m proto.Message, err error) (*result, error) {
	var refused *a2aclient.ServerError
	if errors.As(err, &refused) {
		code := map[string]any{"TASK_NOT_FOUND": float64(-32001)}[refused.Reason]
		return &result{body: map[string]any{"error": map[string]any{"code": code, "message": refused.Message}}}, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := toAny(m)
	return &result{body: body}, err
}
