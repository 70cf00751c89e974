package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
)

// versions are the options of a test server: that with the name old speaks only versions of MCP in
// which servers ask while they work on a call.
func versions(which string) *sdk.ServerOptions {
	if strings.HasPrefix(which, "old") {
		return &sdk.ServerOptions{SupportedProtocolVersions: []string{"2025-11-25", "2025-06-18"}}
	}
	return nil
}

// addAsking adds tools that ask people, in the way that the version of the server needs. end ends calls that
// wait for an answer.
func addAsking(s *sdk.Server, which string, end <-chan struct{}) {
	say := func(format string, args ...any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil
	}
	form := func(message string) *sdk.ElicitParams {
		return &sdk.ElicitParams{Message: message, RequestedSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"]}`)}
	}
	add := func(name string, do sdk.ToolHandler) {
		s.AddTool(&sdk.Tool{Name: name, Description: "Asks.", InputSchema: json.RawMessage(`{"type":"object"}`)}, do)
	}
	var begun atomic.Int64 // calls
	// asks asks for each of params, and says what was answered.
	asks := func(params ...*sdk.ElicitParams) sdk.ToolHandler {
		return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if which != "old" && len(r.Params.InputResponses) == 0 {
				all := sdk.InputRequestMap{}
				for i, p := range params {
					all[fmt.Sprint(i)] = p
				}
				return &sdk.CallToolResult{InputRequests: all, RequestState: "opaque"}, nil
			}
			// The library goes on waiting for a client that is gone, and reads no other answers meanwhile: the
			// first two calls, which tests answer, give up later.
			wait := 5 * time.Second
			if begun.Add(1) <= 2 {
				wait *= 4
			}
			ctx, stop := context.WithTimeout(ctx, wait)
			defer stop()
			go func() {
				select {
				case <-end:
					stop()
				case <-ctx.Done():
				}
			}()
			said := r.Params.RequestState
			for i, p := range params {
				answer, ok := r.Params.InputResponses[fmt.Sprint(i)].(*sdk.ElicitResult)
				if !ok {
					var err error
					if answer, err = r.Session.Elicit(ctx, p); err != nil {
						return nil, err
					}
				}
				said += fmt.Sprintf(" %s %v", answer.Action, answer.Content)
			}
			return say("pid %d%s with key %v", os.Getpid(), said, r.Params.Meta[mcp.KeyMeta])
		}
	}
	add("ask", asks(form("How many?")))
	add("ask_twice", asks(form("How many?"), form("Really, how many?")))
	add("ask_thrice", asks(form("How many?"), form("How many?"), form("How many?")))
	add("ask_back", asks(form("How many?"), form("Really, how many?"), form("How many?")))
	add("large", asks(&sdk.ElicitParams{Message: "Where?", RequestedSchema: json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 64<<10) + `"}`)}))
	add("deceive", asks(&sdk.ElicitParams{Mode: "url", Message: "Sign in.", URL: "https://bank.example@login.example/x", ElicitationID: "e-4"}))
	add("rounds", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) { // asks one question after the other
		for i := len(r.Params.RequestState); i < 12; i++ {
			p := form(fmt.Sprintf("Round %d: how many?", i))
			if which != "old" {
				return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"0": p}, RequestState: strings.Repeat("x", i+1)}, nil
			}
			if _, err := r.Session.Elicit(ctx, p); err != nil {
				return nil, err
			}
		}
		return say("all rounds")
	})
	add("state", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"0": form("How many?")}, RequestState: strings.Repeat("x", 64<<10+1)}, nil
	})
	began, next := make(chan struct{}), make(chan struct{})
	var lateDone sync.WaitGroup
	add("late", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) { // asks after it was canceled
		var arguments struct{ File string }
		_ = json.Unmarshal(r.Params.Arguments, &arguments)
		lateDone.Add(1)
		defer lateDone.Done()
		close(began)
		_ = os.WriteFile(arguments.File, nil, 0o600)
		<-next
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer stop()
		_, err := r.Session.Elicit(ctx, form("Late: how many?"))
		return nil, err
	})
	add("after", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		select {
		case <-began:
			close(next)
			lateDone.Wait()
			return say("beside a call that asks late")
		default:
			return say("alone")
		}
	})
	add("visit", asks(&sdk.ElicitParams{Mode: "url", Message: "Sign in.", URL: "https://login.example/x", ElicitationID: "e-1"}))
	add("listed", asks(&sdk.ElicitParams{Message: "Where?", RequestedSchema: json.RawMessage(`{"type":"array"}`)}))
	var mu sync.Mutex
	refused := 0
	add("locked", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		mu.Lock()
		defer mu.Unlock()
		if refused++; refused%2 == 1 {
			return nil, sdk.URLElicitationRequiredError([]*sdk.ElicitParams{{Mode: "url", Message: "Sign in.", URL: "https://login.example/y", ElicitationID: "e-2"}})
		}
		return say("unlocked")
	})
	add("locked_twice", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, sdk.URLElicitationRequiredError([]*sdk.ElicitParams{{Mode: "url", Message: "Sign in.", URL: "https://login.example/z", ElicitationID: "e-3"}})
	})
}

// person is a person who answers questions of a tool.
type person struct {
	t     *testing.T
	tool  agent.AskingTool
	call  agent.ToolCall
	asked []*agent.ToolAsk
}

func begin(t *testing.T, s *mcp.Server, name string) *person {
	t.Helper()
	tool, ok := find(t, s, name).(agent.AskingTool)
	if !ok {
		t.Fatalf("%s does not ask", name)
	}
	return &person{t: t, tool: tool, call: agent.ToolCall{Arguments: json.RawMessage(`{}`), Key: "key-" + name}}
}

// next makes or continues the call.
func (p *person) next() (*teamv1.ToolResult, *agent.ToolAsk, error) {
	p.t.Helper()
	r, ask, err := p.tool.CallAsking(p.t.Context(), p.call)
	if ask != nil {
		p.asked = append(p.asked, ask)
	}
	return r, ask, err
}

// asks is next for a call that asks.
func (p *person) asks() *agent.ToolAsk {
	p.t.Helper()
	r, ask, err := p.next()
	if ask == nil {
		p.t.Fatalf("it does not ask: %v %v", r, err)
	}
	return ask
}

// answer answers the last question.
func (p *person) answer(text string) {
	p.t.Helper()
	ask := p.asked[len(p.asked)-1]
	a, err := forms.ReadToolAnswer(ask.Question, agent.NewMessage(text))
	if err != nil {
		p.t.Fatal(err)
	}
	p.call.Answers = append(p.call.Answers, agent.AnsweredTool{Question: ask.Question, State: ask.State, Answer: a})
	p.call.Continue = true
}

func askers(t *testing.T, do func(t *testing.T, c mcp.Config, old bool)) {
	for _, which := range []string{"new", "old"} {
		for _, over := range []string{"stdio", "http"} {
			t.Run(which+" "+over, func(t *testing.T) {
				c := program(which)
				if over == "http" {
					_, c = serve(t, func(t *testing.T) http.Handler { return handlerOf(t, which, false) })
				}
				c.Elicit = &mcp.Elicit{Approvers: agent.Approvers{Roles: []string{"finance"}, Expires: time.Hour}}
				do(t, c, which == "old")
			})
		}
	}
}

// TestElicitation asks people in each version of MCP and over each transport.
func TestElicitation(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, old bool) {
		s := start(t, c)
		p := begin(t, s, "ask")
		ask := p.asks()
		if q := ask.Question; q.GetMessage() != "How many?" || q.GetTool() != "ask" || q.GetServer() != "web" || ask.Roles[0] != "finance" || ask.Expires == 0 || (ask.State == nil) != old {
			t.Errorf("asked %v", ask)
		}
		if want := 15 * time.Minute; old && ask.Expires != want {
			t.Errorf("the question of a call that may not be repeated expires in %v, want %v", ask.Expires, want)
		}
		p.answer("3")
		r, _, err := p.next()
		if err != nil || !strings.Contains(r.GetText(), "accept map[n:3] with key key-ask") || !old && !strings.Contains(r.GetText(), "opaque") {
			t.Errorf("%v %v", r, err)
		}
		p = begin(t, s, "ask_twice")
		p.asks()
		p.answer("decline")
		p.asks()
		p.answer("9")
		if r, _, err := p.next(); err != nil || !strings.Contains(r.GetText(), "decline map[] accept map[n:9]") {
			t.Errorf("%v %v", r, err)
		}
		if len(p.asked) != 2 || p.asked[0].Question.GetHash() == p.asked[1].Question.GetHash() {
			t.Errorf("asked %v", p.asked)
		}
		p = begin(t, s, "visit")
		if q := p.asks().Question; q.GetUrl() != "https://login.example/x" || q.GetSchema() != "" {
			t.Errorf("asked %v", q)
		}
		p.answer("done")
		if r, _, err := p.next(); err != nil || !strings.Contains(r.GetText(), "accept map[]") {
			t.Errorf("%v %v", r, err)
		}
		p = begin(t, s, "listed")
		if r, ask, err := p.next(); ask != nil || err == nil && !r.GetIsError() {
			t.Errorf("a question that people cannot be asked: %v %v %v", r, ask, err)
		}
	})
}

// TestElicitationCallsAtOnce: each of several calls gets its own answer. A server that asks while it works on a call takes
// no other call until people have answered, and says so.
func TestElicitationCallsAtOnce(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, old bool) {
		s := start(t, c)
		var all []*person
		for i := range 3 {
			p := begin(t, s, "ask")
			p.call.Key = fmt.Sprintf("key-%d", i)
			all = append(all, p)
			if old && i > 0 {
				_, ask, err := p.next()
				if e := agent.AsError(err); ask != nil || err == nil || !e.Retry || !e.Fresh || !strings.Contains(e.Message, `a call of the MCP server of tool "web" waits for an answer of people`) {
					t.Errorf("call %d: %v %v", i, ask, err)
				}
				continue
			}
			p.asks()
		}
		for i, p := range all {
			if old && i > 0 {
				p.asks()
			}
			p.answer(fmt.Sprint(i))
			if r, _, err := p.next(); err != nil || !strings.Contains(r.GetText(), fmt.Sprintf("accept map[n:%d] with key key-%d", i, i)) {
				t.Errorf("call %d: %v %v", i, r, err)
			}
		}
		if s.Busy() {
			t.Error("the server is busy after the last call")
		}
	})
}

// TestElicitationInTurn: calls that do not ask wait for each other.
func TestElicitationInTurn(t *testing.T) {
	c := program("old")
	c.Elicit = &mcp.Elicit{}
	s := start(t, c)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			p := begin(t, s, "put")
			p.call.Key = fmt.Sprint(i)
			if r, ask, err := p.next(); err != nil || ask != nil || r.GetText() != "put" {
				t.Errorf("%v %v %v", r, ask, err)
			}
		})
	}
	wg.Wait()
}

// TestElicitationOfTheSameAgain: each question of a call is asked, also if it was asked before.
func TestElicitationOfTheSameAgain(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, _ bool) {
		s := start(t, c)
		for _, name := range []string{"ask_thrice", "ask_back"} {
			p := begin(t, s, name)
			for i := range 3 {
				p.asks()
				p.answer(fmt.Sprint(i + 1))
			}
			if r, _, err := p.next(); err != nil || len(p.asked) != 3 || !strings.Contains(r.GetText(), "accept map[n:1] accept map[n:2] accept map[n:3]") {
				t.Errorf("%s: %v %v", name, r, err)
			}
		}
	})
}

// TestElicitationExpired: the server learns that a question has expired, but a call that is begun anew
// asks it again.
func TestElicitationExpired(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, _ bool) {
		p := begin(t, start(t, c), "ask_twice")
		p.asks()
		p.answer("cancel")
		p.call.Answers[0].Expired = true
		p.asks()
		p.answer("3")
		if r, _, err := p.next(); err != nil || !strings.Contains(r.GetText(), "cancel map[] accept map[n:3]") {
			t.Fatalf("%v %v", r, err)
		}
		p.call.Continue = false
		if ask := p.asks(); ask.Question.GetMessage() != "How many?" {
			t.Errorf("asked %v", ask)
		}
		p.tool.Release(p.call.Key)
	})
}

// TestElicitationInRounds: a call that is begun anew is given all recorded answers.
func TestElicitationInRounds(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, _ bool) {
		p := begin(t, start(t, c), "rounds")
		for range 12 {
			p.asks()
			p.answer("3")
		}
		for _, again := range []bool{true, false} {
			p.call.Continue = again
			if r, ask, err := p.next(); err != nil || ask != nil || r.GetText() != "all rounds" {
				t.Errorf("%v %v %v", r, ask, err)
			}
		}
	})
}

// TestElicitationTooLarge: the server is told why a question cannot be asked, and the call fails.
func TestElicitationTooLarge(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, old bool) {
		s := start(t, c)
		wants := map[string]string{"large": "at most 65536 are allowed", "deceive": "user name or password"}
		if !old {
			wants["state"] = "a state of 65537 bytes; at most 65536"
		}
		for name, want := range wants {
			p := begin(t, s, name)
			r, ask, err := p.next()
			if text := fmt.Sprint(r.GetText(), err); ask != nil || err == nil && !r.GetIsError() || !strings.Contains(text, want) {
				t.Errorf("%s: %v %v", name, ask, text)
			}
		}
	})
}

// TestElicitationAfterCancel: the questions of a call that was canceled reach no other call.
func TestElicitationAfterCancel(t *testing.T) {
	c := program("old")
	c.Elicit = &mcp.Elicit{}
	s := start(t, c)
	p := begin(t, s, "late")
	file := filepath.Join(t.TempDir(), "began")
	p.call.Arguments, _ = json.Marshal(map[string]string{"file": file})
	ctx, cancel := context.WithCancelCause(t.Context())
	over, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	await := func(what string, holds func() bool) {
		for !holds() && over.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		if !holds() {
			t.Error("waited in vain for", what)
		}
	}
	go func() {
		await("the call", func() bool { _, err := os.Stat(file); return err == nil })
		cancel(agent.ErrCanceled)
	}()
	if _, _, err := p.tool.CallAsking(ctx, p.call); !errors.Is(err, agent.ErrCanceled) {
		t.Fatal(err)
	}
	if s.Kept() != 0 {
		t.Errorf("%d calls are kept open", s.Kept())
	}
	await("the end of the call", func() bool { return !s.Busy() })
	r, ask, err := begin(t, s, "after").next()
	if ask != nil || err != nil || r.GetText() != "alone" {
		t.Errorf("%v %v %v", r, ask, err)
	}
}

// TestElicitationElsewhere: in another process, the call continues with what is on record, is made
// again and answered from the record, or is not made again.
func TestElicitationElsewhere(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, old bool) {
		p := begin(t, start(t, c), "ask_twice")
		p.call.Repeatable = true
		if ask := p.asks(); ask.Expires != time.Hour {
			t.Errorf("expires in %v", ask.Expires)
		}
		p.answer("1")
		p.asks()
		p.answer("2")
		other, _ := find(t, start(t, c), "ask_twice").(agent.AskingTool)
		first := p.tool
		p.tool, p.call.Once = other, true
		r, ask, err := p.next()
		if e := agent.AsError(err); old && (err == nil || !e.Retry || e.Fresh || !strings.Contains(e.Message, "it is unknown whether the call took effect")) || !old && (err != nil || !strings.Contains(r.GetText(), "accept map[n:1] accept map[n:2]")) {
			t.Errorf("a call that must not be repeated: %v %v %v", r, ask, err)
		}
		for _, again := range []bool{true, false} {
			p.call.Once, p.call.Continue = false, again
			if r, ask, err := p.next(); err != nil || ask != nil || !strings.Contains(r.GetText(), "accept map[n:1] accept map[n:2]") {
				t.Errorf("a call that may: %v %v %v", r, ask, err)
			}
		}
		first.Release(p.call.Key)
	})
}

// TestElicitationEnds: a call is not kept open for longer than it may, nor after it was released, nor
// after a cancel.
func TestElicitationEnds(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, old bool) {
		if !old {
			t.Skip("no call is kept open")
		}
		c.Elicit.KeepOpen = 50 * time.Millisecond
		s := start(t, c)
		p := begin(t, s, "ask")
		p.call.Repeatable = true
		p.asks()
		p.answer("1")
		p.call.Once = true
		over, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		for over.Err() == nil && s.Kept() > 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if r, ask, err := p.next(); err == nil {
			t.Errorf("the call was kept open: %v %v", r, ask)
		}
		p = begin(t, s, "ask")
		p.asks() // may not be repeated, and so is kept open for longer
		if s.Kept() != 1 {
			t.Errorf("%d calls are kept open, want 1", s.Kept())
		}
		p.tool.Release(p.call.Key)
		if s.Kept() != 0 {
			t.Errorf("%d calls are kept open after the release", s.Kept())
		}
		p = begin(t, s, "hang")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(agent.ErrCanceled) })
		if _, _, err := p.tool.CallAsking(ctx, p.call); !errors.Is(err, agent.ErrCanceled) {
			t.Errorf("error %v", err)
		}
	})
}

// TestElicitationRequired: a call that the server refuses until an address was opened is made again
// after people have opened it.
func TestElicitationRequired(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, _ bool) {
		s := start(t, c)
		p := begin(t, s, "locked")
		if ask := p.asks(); ask.Question.GetUrl() != "https://login.example/y" || ask.State == nil {
			t.Fatal(ask)
		}
		p.answer("done")
		if r, _, err := p.next(); err != nil || r.GetText() != "unlocked" {
			t.Errorf("%v %v", r, err)
		}
		p = begin(t, s, "locked")
		p.asks()
		p.answer("decline")
		if r, _, err := p.next(); err != nil || !r.GetIsError() || !strings.Contains(r.GetText(), "did not agree to open the address") {
			t.Errorf("%v %v", r, err)
		}
		p = begin(t, s, "locked_twice")
		for range 3 { // people are asked again as long as the server asks
			p.asks()
			p.answer("done")
		}
	})
}

// TestElicitationHalted: a halt of the server ends a call that is kept open.
func TestElicitationHalted(t *testing.T) {
	askers(t, func(t *testing.T, c mcp.Config, _ bool) {
		p := begin(t, start(t, c), "ask")
		halts := inforce.New()
		use, ctx := halts.Run(agent.With(t.Context(), &agent.Run{Root: "r"}), &inforce.Run{Task: "r", Stop: func(*teamv1.Halt) {}, Changed: func() {}})
		defer use.End()
		if _, ask, err := p.tool.CallAsking(ctx, p.call); ask == nil {
			t.Fatal(err)
		} else {
			p.asked = append(p.asked, ask)
		}
		halts.Set(1, []*teamv1.Halt{{Version: 1, Kind: teamv1.HaltKind_HALT_KIND_TOOL, Name: "web"}})
		p.answer("3")
		if r, ask, err := p.tool.CallAsking(ctx, p.call); agent.AsError(err) == nil || agent.AsError(err).Reason != agent.ReasonHalted {
			t.Errorf("%v %v %v", r, ask, err)
		}
	})
}

// TestElicitationOff: without the setting, the server is not offered to ask.
func TestElicitationOff(t *testing.T) {
	for _, which := range []string{"new", "old"} {
		p := begin(t, start(t, program(which)), "ask")
		if r, ask, err := p.next(); ask != nil || err == nil && !r.GetIsError() {
			t.Errorf("%s: %v %v %v", which, r, ask, err)
		} else {
			t.Log(which, r, err)
		}
	}
}

// TestElicitationNotAllowed: a call that fails because its server cannot ask people names the key that lets it.
func TestElicitationNotAllowed(t *testing.T) {
	for _, c := range []struct {
		elicit *mcp.Elicit
		which  string
		says   string
	}{
		{nil, "new", `set elicit of tool "web"`},
		{&mcp.Elicit{}, "new", `set protocol_version: "2025-11-25" of tool "web"`},
		{&mcp.Elicit{}, "old", ""},
	} {
		cfg := program(c.which)
		cfg.Elicit = c.elicit
		r, _, err := begin(t, start(t, cfg), "asks_too_late").next()
		if err != nil || !r.GetIsError() || !strings.Contains(r.GetText(), c.says) || c.says == "" && strings.Contains(r.GetText(), "set ") {
			t.Errorf("%s: %v %v", c.which, r, err)
		}
	}
}
