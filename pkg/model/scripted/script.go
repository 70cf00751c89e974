// Package scripted implements a model that answers from a script, without a provider.
// A script is a YAML file:
//
//	agents:
//	  writer:                                    # id of the agent that calls the model
//	    - when: turn == 1 && "search" in tools   # CEL; without it the entry always matches
//	      tool_calls: [{name: search, arguments: {query: "{{input}}"}}]
//	    - when: input.contains("fail")
//	      error: {status: 429, retry_after_ms: 500}
//	    - text: "About {{input}}: {{results}}"
//	      delay_ms: 50                           # before the answer
//	      chunks: 3                              # number of pieces in which the text is streamed
//	      finish_reason: length                  # the turn was cut; default: stop or tool_calls
//	      usage: {input: 20, output: 5}          # tokens; default: one for each word
//	      files: [{raw: BASE64, mediaType: image/png}] # parts in the JSON form of A2A, after the text
//
// The first entry that matches a request is the answer. Conditions can use these
// variables: input (the last user message), inputs (all user messages), turn (the
// number of assistant messages in the request, plus one), tools (the names of the
// tools), results (the texts of all tool messages) and result (the last text of each
// tool, by its name). A condition that reads something that does not exist is false; an
// unknown variable is a fault. Texts, including those in arguments, can contain
// {{input}}, {{inputs}} and {{results}} (one per line), and {{result.TOOL}} (empty if
// that tool has not answered). Arguments given as text are sent unchanged, even if they
// are not JSON.
//
// A script has no state, so a run that continues after a crash gets the same answers.
//
// With recorded: true beside agents, the entries are answers that were recorded: each answers one call, the
// first that matches and that no other call has got, and texts have no placeholders. An error that is the last
// one is repeated.
package scripted

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Script is a parsed script. It is safe for concurrent use.
type Script struct {
	file     string
	agents   map[string][]*entry
	recorded bool
	id       string // equal for scripts with the same text
}

// entry is an answer with its condition.
type entry struct {
	line   int
	when   cel.Program // nil always matches
	text   string
	calls  []call
	fail   *Failure
	delay  time.Duration
	chunks int
	finish string
	usage  *agent.Usage // nil counts words
	files  []*a2av1.Part
}

// call is a tool call. Its arguments are raw if value is nil.
type call struct {
	name  string
	raw   string
	value map[string]any
}

// Answer is the answer to a request.
type Answer struct {
	// Text is the text of the turn, which the model streams as Pieces.
	Text string
	// ToolCalls are the tool calls of the turn. Their ids do not depend on chance.
	ToolCalls []*teamv1.ToolCall
	// Failure makes the turn fail; nil means that it succeeds.
	Failure *Failure
	// Delay is the time to wait before the answer.
	Delay time.Duration
	// Chunks is the number of pieces of the text, at least 1.
	Chunks int
	// FinishReason is the reason for the end of the turn; "" means stop or tool_calls.
	FinishReason string
	// Usage is what the turn has used; nil means a token for each word.
	Usage *agent.Usage
	// Files are the files that follow the text.
	Files []*a2av1.Part
}

// Failure is a turn that fails as if an endpoint had responded with an HTTP status.
type Failure struct {
	// Status is the HTTP status, 400 to 599.
	Status int
	// Reason overrides the reason UNAVAILABLE.
	Reason string
	// Message overrides the message of the error.
	Message string
	// RetryAfter is the delay that the endpoint asks for; 0 means none.
	RetryAfter time.Duration
}

// Agents returns the ids of the agents in the script, sorted.
func (s *Script) Agents() []string {
	ids := make([]string, 0, len(s.agents))
	for id := range s.agents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Answer returns the answer to a request of req.Agent. The error is an *agent.Error that names the
// agent, the turn and what to add to the script.
func (s *Script) Answer(req *agent.ModelRequest) (*Answer, error) { return s.answer(req, &Used{}) }

// answer is Answer with the recorded answers that were given.
func (s *Script) answer(req *agent.ModelRequest, used *Used) (*Answer, error) {
	entries, ok := s.agents[req.Agent]
	if !ok {
		return nil, noAnswer("the script %s has no entries for agent %q (%s); add an entry under agents.%s",
			s.name(), req.Agent, suggest(req.Agent, s.Agents()...), req.Agent)
	}
	conversation := newConversation(req)
	conversation.literal = s.recorded
	var last *entry
	for i, e := range entries {
		ok, err := e.matches(conversation)
		if err != nil {
			return nil, noAnswer("%s:%d, agent %q, turn %d: %w; shorten it", s.name(), e.line, req.Agent, conversation.turn, err)
		}
		if !ok {
			continue
		}
		if !s.recorded || used.take(entryKey{s.id, req.Agent, i}) {
			return e.answer(conversation), nil
		}
		last = e
	}
	switch {
	case last != nil && last.fail != nil:
		return last.answer(conversation), nil
	case s.recorded:
		return nil, noAnswer("the record %s has no further answer for agent %q, turn %d; the team has changed since then: record it again, or add an entry under agents.%s",
			s.name(), req.Agent, conversation.turn, req.Agent)
	}
	return nil, noAnswer("no entry of the script %s matches agent %q, turn %d; add one under agents.%s; an entry without when always matches",
		s.name(), req.Agent, conversation.turn, req.Agent)
}

func (s *Script) name() string { return filepath.Base(s.file) }

func noAnswer(format string, args ...any) *agent.Error {
	err := fmt.Errorf(format, args...)
	return &agent.Error{Code: agent.CodeFailedPrecondition, Reason: agent.ReasonUnavailable, Message: err.Error(), Fresh: true}
}

// conversation is what conditions and templates can refer to.
type conversation struct {
	input   string
	inputs  []string
	turn    int
	tools   []string
	results []string
	result  map[string]string
	literal bool // texts have no placeholders
}

// newConversation extracts the variables from a request.
func newConversation(req *agent.ModelRequest) *conversation {
	s := &conversation{turn: 1, inputs: []string{}, tools: []string{}, results: []string{}, result: map[string]string{}}
	called := map[string]string{} // tools by the id of the call
	for _, m := range req.Messages {
		switch m.Role {
		case agent.RoleUser:
			s.input, s.inputs = m.Text, append(s.inputs, m.Text)
		case agent.RoleAssistant:
			s.turn++
			for _, c := range m.ToolCalls {
				called[c.GetId()] = c.GetName()
			}
		case agent.RoleTool:
			s.results = append(s.results, m.Text)
			s.result[cmp.Or(m.Tool, called[m.CallID])] = m.Text
		}
	}
	for _, t := range req.Tools {
		s.tools = append(s.tools, t.Name)
	}
	return s
}

func (e *entry) matches(s *conversation) (bool, error) {
	if e.when == nil {
		return true, nil
	}
	return holds(e.when, map[string]any{
		"input": s.input, "inputs": s.inputs, "turn": s.turn, "tools": s.tools, "results": s.results, "result": s.result,
	})
}

func (e *entry) answer(s *conversation) *Answer {
	a := &Answer{Text: s.fill(e.text), Failure: e.fail, Delay: e.delay, Chunks: e.chunks, FinishReason: e.finish, Usage: e.usage, Files: e.files}
	for i, c := range e.calls {
		a.ToolCalls = append(a.ToolCalls, &teamv1.ToolCall{
			Id: fmt.Sprintf("call_%d_%d", s.turn, i+1), Name: c.name, Arguments: c.arguments(s),
		})
	}
	return a
}

func (c *call) arguments(s *conversation) string {
	if c.value == nil {
		return c.raw
	}
	b, err := json.Marshal(s.fillAll(c.value))
	if err != nil { // impossible: the parser accepts only JSON values
		return c.raw
	}
	return string(b)
}

// Used records which answers of recorded scripts were given. Models with the same script share it. The zero
// value has none. It is safe for concurrent use.
type Used struct {
	mu    sync.Mutex
	taken map[entryKey]bool // guarded by mu
}

// entryKey identifies an entry of a script.
type entryKey struct {
	script, agent string
	index         int
}

// take takes an entry, and reports whether it was free.
func (u *Used) take(k entryKey) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.taken[k] {
		return false
	}
	if u.taken == nil {
		u.taken = map[entryKey]bool{}
	}
	u.taken[k] = true
	return true
}

// Pieces returns the text in Chunks pieces of about the same size. It returns fewer pieces if the
// text has fewer characters, because no piece is empty.
func (a *Answer) Pieces() []string {
	runes := []rune(a.Text)
	n := min(max(a.Chunks, 1), len(runes))
	pieces := make([]string, n)
	for i := range pieces {
		pieces[i] = string(runes[i*len(runes)/n : (i+1)*len(runes)/n])
	}
	return pieces
}

// UsageOf returns the usage of a turn, counting each word as a token.
func UsageOf(req *agent.ModelRequest, turn *teamv1.Turn) agent.Usage {
	in := wordsIn(req.Instructions)
	for _, m := range req.Messages {
		in += wordsIn(m.Text) + wordsOf(m.ToolCalls)
	}
	return agent.Usage{Input: in, Output: wordsIn(turn.GetText()) + wordsOf(turn.GetToolCalls())}
}

func wordsOf(calls []*teamv1.ToolCall) (n int64) {
	for _, c := range calls {
		n += 1 + wordsIn(c.GetArguments())
	}
	return n
}

func wordsIn(s string) int64 { return int64(len(strings.Fields(s))) }
