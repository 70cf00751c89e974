// Package modeltest is a test suite for implementations of agent.Model. Every implementation runs
// it.
package modeltest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Agent is the id of the agent in the scripts of the suite.
const Agent = "writer"

// Subject is a model under test that answers from a script.
type Subject struct {
	Model agent.Model
	// Arrived returns when n requests have reached the endpoint; nil means that they do so
	// immediately.
	Arrived func(ctx context.Context, n int) error
	// Parsed reports that the provider sends arguments of calls only as JSON objects.
	Parsed bool
}

// Start returns a model that answers from a script for Agent. What it starts must end with the
// test.
type Start func(t *testing.T, script string) Subject

// Run runs the suite. Each test checks that it leaves no goroutine running.
func Run(t *testing.T, start Start) {
	for name, test := range map[string]func(*testing.T, Start){
		"a turn with text":                      testText,
		"the pieces make the whole":             testPieces,
		"an empty answer":                       testEmpty,
		"turns that are cut":                    testCut,
		"tool calls":                            testToolCalls,
		"tool results reach the model":          testConversation,
		"errors tell whether to repeat":         testErrors,
		"nothing matches":                       testNoMatch,
		"canceled before it begins":             testCanceledBefore,
		"canceled while it waits":               testCanceledWaiting,
		"canceled between pieces":               testCanceledStreaming,
		"time runs out":                         testTimeout,
		"the caller breaks":                     testBreak,
		"at the same time":                      testConcurrent,
		"the sequence again is another attempt": testAgain,
	} {
		t.Run(name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
			test(t, start)
		})
	}
}

// Ask returns a request with one message.
func Ask(text string) *agent.ModelRequest {
	return &agent.ModelRequest{
		Agent: Agent, Instructions: "Write clearly.", Key: "key-1",
		Messages: []agent.ModelMessage{{Role: agent.RoleUser, Text: text}},
	}
}

// Answer is what a sequence yielded.
type Answer struct {
	Pieces []string
	Turn   *teamv1.Turn
	Spent  *teamv1.Spent
	Err    error
}

// Collect reads a sequence to its end. It fails the test if the sequence violates the contract.
func Collect(ctx context.Context, t *testing.T, m agent.Model, req *agent.ModelRequest) Answer {
	t.Helper()
	var a Answer
	for chunk, err := range m.Generate(ctx, req) {
		switch {
		case a.Turn != nil || a.Err != nil:
			t.Errorf("something follows the end: %v, %v", chunk, err)
		case err != nil:
			a.Err = err
		case chunk.Turn != nil:
			a.Turn, a.Spent = chunk.Turn, chunk.Spent
		case chunk.Text == "":
			t.Error("a piece is empty")
		default:
			a.Pieces = append(a.Pieces, chunk.Text)
		}
	}
	if a.Turn == nil && a.Err == nil {
		t.Error("neither a turn nor an error")
	}
	return a
}

func (a *Answer) text() (s string) {
	for _, p := range a.Pieces {
		s += p
	}
	return s
}

// succeeded fails the test unless the answer is a turn whose text equals the pieces.
func (a *Answer) succeeded(t *testing.T) {
	t.Helper()
	if a.Err != nil {
		t.Fatalf("unexpected error: %v", a.Err)
	}
	if a.text() != a.Turn.GetText() {
		t.Errorf("the pieces are %q, the turn is %q", a.text(), a.Turn.GetText())
	}
	if a.Spent == nil || a.Spent.GetModelCalls() != 1 {
		t.Errorf("spent = %v, want one model call", a.Spent)
	}
	if a.Turn.GetFinishReason() == "" || a.Turn.GetModel() == "" {
		t.Errorf("no finish reason or model in %v", a.Turn)
	}
}

func testText(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{text: "About {{input}}."}]}`)
	if s.Model.Name() == "" {
		t.Error("the model has no name")
	}
	req := Ask("tides")
	a := Collect(t.Context(), t, s.Model, req)
	a.succeeded(t)
	if a.Turn.GetText() != "About tides." {
		t.Errorf("text = %q", a.Turn.GetText())
	}
	if a.Spent.GetInputTokens() == 0 || a.Spent.GetOutputTokens() == 0 {
		t.Errorf("spent = %v, want tokens", a.Spent)
	}
	if diff := cmp.Diff(Ask("tides"), req, protocmp.Transform()); diff != "" {
		t.Errorf("the request was changed:\n%s", diff)
	}
}

func testPieces(t *testing.T, start Start) {
	const text = "Die Flut steigt zweimal am Tag – 潮汐 wie überall."
	s := start(t, `agents: {writer: [{chunks: 7, text: "`+text+`"}]}`)
	a := Collect(t.Context(), t, s.Model, Ask("x"))
	a.succeeded(t)
	if a.Turn.GetText() != text || len(a.Pieces) != 7 {
		t.Errorf("%d pieces of %q", len(a.Pieces), a.Turn.GetText())
	}
}

func testEmpty(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{text: ""}]}`)
	a := Collect(t.Context(), t, s.Model, Ask("x"))
	a.succeeded(t)
	if a.Turn.GetText() != "" || len(a.Turn.GetToolCalls()) != 0 {
		t.Errorf("turn = %v, want an empty one", a.Turn)
	}
}

// testCut: a turn that was cut is no error, but says so.
func testCut(t *testing.T, start Start) {
	for script, want := range map[string]teamv1.TurnEnd{
		"text: About tides.":                                                   teamv1.TurnEnd_TURN_END_COMPLETE,
		"tool_calls: [{name: look, arguments: {q: 1}}]":                        teamv1.TurnEnd_TURN_END_COMPLETE,
		"text: About, finish_reason: length":                                   teamv1.TurnEnd_TURN_END_TRUNCATED,
		`text: "", finish_reason: length`:                                      teamv1.TurnEnd_TURN_END_TRUNCATED,
		"tool_calls: [{name: look, arguments: {q: 1}}], finish_reason: length": teamv1.TurnEnd_TURN_END_TRUNCATED,
		"text: About, finish_reason: content_filter":                           teamv1.TurnEnd_TURN_END_FILTERED,
	} {
		t.Run(script, func(t *testing.T) {
			a := Collect(t.Context(), t, start(t, "agents: {writer: [{"+script+"}]}").Model, Ask("tides"))
			a.succeeded(t)
			if a.Turn.GetEnd() != want {
				t.Errorf("end = %v, want %v", a.Turn.GetEnd(), want)
			}
		})
	}
}

func testToolCalls(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{when: "size(tools) == 2", text: "Looking.", tool_calls: [
		{name: search, arguments: {query: "{{input}}", limit: 3}}, {name: clock}]}, {tool_calls: [{name: search, arguments: "{not json"}]}]}`)
	req := Ask("the tides")
	req.Tools = []agent.ToolSpec{
		{Name: "search", Description: "Finds pages.", Parameters: []byte(`{"type":"object","properties":{"query":{"type":"string"}}}`)},
		{Name: "clock"},
	}
	a := Collect(t.Context(), t, s.Model, req)
	a.succeeded(t)
	want := []*teamv1.ToolCall{
		{Name: "search", Arguments: `{"limit":3,"query":"the tides"}`}, {Name: "clock", Arguments: "{}"},
	}
	if diff := cmp.Diff(want, a.Turn.GetToolCalls(), protocmp.Transform(), protocmp.IgnoreFields(&teamv1.ToolCall{}, "id")); diff != "" {
		t.Errorf("tool calls:\n%s", diff)
	}
	ids := map[string]bool{}
	for _, c := range a.Turn.GetToolCalls() {
		ids[c.GetId()] = true
	}
	if len(ids) != len(want) || ids[""] {
		t.Errorf("ids = %v, want one a call", ids)
	}
	if s.Parsed {
		return
	}
	req.Tools = req.Tools[:1]
	a = Collect(t.Context(), t, s.Model, req)
	a.succeeded(t)
	if calls := a.Turn.GetToolCalls(); len(calls) != 1 || calls[0].GetArguments() != "{not json" {
		t.Errorf("calls = %v, want what the model wrote", calls)
	}
}

func testConversation(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [
		{when: turn == 1, tool_calls: [{name: search, arguments: {q: x}}]},
		{when: 'turn == 2 && "search" in tools && size(results) == 1', text: "{{input}}: {{results}}"}]}`)
	req := Ask("tides")
	req.Tools = []agent.ToolSpec{{Name: "search"}}
	first := Collect(t.Context(), t, s.Model, req)
	first.succeeded(t)
	calls := first.Turn.GetToolCalls()
	req.Messages = append(req.Messages,
		agent.ModelMessage{Role: agent.RoleAssistant, ToolCalls: calls},
		agent.ModelMessage{Role: agent.RoleTool, CallID: calls[0].GetId(), Text: "The Moon pulls."})
	second := Collect(t.Context(), t, s.Model, req)
	second.succeeded(t)
	if second.Turn.GetText() != "tides: The Moon pulls." {
		t.Errorf("text = %q", second.Turn.GetText())
	}
}

func testErrors(t *testing.T, start Start) {
	for _, c := range []struct {
		status string
		retry  bool
		after  time.Duration
	}{
		{"429, retry_after_ms: 1500", true, 1500 * time.Millisecond},
		{"500", true, 0},
		{"503, retry_after_ms: 2000", true, 2 * time.Second},
		{"408", true, 0},
		{"400", false, 0},
		{"401", false, 0},
		{"404", false, 0},
	} {
		t.Run(c.status, func(t *testing.T) {
			s := start(t, `agents: {writer: [{error: {status: `+c.status+`}}]}`)
			a := Collect(t.Context(), t, s.Model, Ask("x"))
			var e *agent.Error
			if !errors.As(a.Err, &e) {
				t.Fatalf("error = %v, want an *agent.Error", a.Err)
			}
			if e.Retry != c.retry || !e.Fresh || e.RetryAfter != c.after {
				t.Errorf("retry %v fresh %v after %v, want %v true %v", e.Retry, e.Fresh, e.RetryAfter, c.retry, c.after)
			}
			if e.Reason != agent.ReasonUnavailable || e.Message == "" || e.Code == 0 {
				t.Errorf("error = %#v", e)
			}
		})
	}
}

func testNoMatch(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{when: turn == 7, text: "late"}]}`)
	a := Collect(t.Context(), t, s.Model, Ask("x"))
	if e := agent.AsError(a.Err); e == nil || e.Retry || e.Reason != agent.ReasonUnavailable {
		t.Errorf("error = %v, want one that is not repeated", a.Err)
	}
}

// slow is a script whose answer takes longer than any test.
const slow = `agents: {writer: [{delay_ms: 600000, text: "late"}]}`

func testCanceledBefore(t *testing.T, start Start) {
	s := start(t, slow)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(agent.ErrShutdown)
	a := Collect(ctx, t, s.Model, Ask("x"))
	ended(t, &a, agent.ErrShutdown)
}

func testCanceledWaiting(t *testing.T, start Start) {
	s := start(t, slow)
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if s.Arrived != nil {
			if err := s.Arrived(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
		cancel(agent.ErrCanceled)
	})
	a := Collect(ctx, t, s.Model, Ask("x"))
	wg.Wait()
	ended(t, &a, agent.ErrCanceled)
}

func testCanceledStreaming(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{chunks: 5, text: "one two three four five"}]}`)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var a Answer
	for chunk, err := range s.Model.Generate(ctx, Ask("x")) {
		cancel(agent.ErrCanceled)
		a.Turn, a.Err = chunk.Turn, err
	}
	ended(t, &a, agent.ErrCanceled)
}

func testTimeout(t *testing.T, start Start) {
	s := start(t, slow)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, agent.ErrTimeout)
	defer cancel()
	a := Collect(ctx, t, s.Model, Ask("x"))
	ended(t, &a, agent.ErrTimeout)
}

// ended checks that the sequence ended with the cause of its context.
func ended(t *testing.T, a *Answer, cause error) {
	t.Helper()
	if !errors.Is(a.Err, cause) || a.Turn != nil {
		t.Errorf("ended with %v and turn %v, want %v", a.Err, a.Turn, cause)
	}
}

func testBreak(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{chunks: 5, text: "one two three four five"}]}`)
	pieces := 0
	for chunk, err := range s.Model.Generate(t.Context(), Ask("x")) {
		if err != nil || chunk.Text == "" {
			t.Fatalf("got %v, %v, want a piece", chunk, err)
		}
		pieces++
		break
	}
	if pieces != 1 {
		t.Errorf("%d pieces, want 1", pieces)
	}
}

func testConcurrent(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{chunks: 3, text: "Answer to {{input}}."}]}`)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		wg.Go(func() {
			a := Collect(t.Context(), t, s.Model, Ask(name))
			if a.Err != nil || a.Turn.GetText() != "Answer to "+name+"." || a.text() != a.Turn.GetText() {
				t.Errorf("%s: %v, %v", name, a.Turn, a.Err)
			}
		})
	}
	wg.Wait()
}

func testAgain(t *testing.T, start Start) {
	s := start(t, `agents: {writer: [{text: "Same."}]}`)
	seq := s.Model.Generate(t.Context(), Ask("x"))
	for range 2 {
		n := 0
		for chunk, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			if chunk.Turn.GetText() == "Same." {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d turns, want 1", n)
		}
	}
}
