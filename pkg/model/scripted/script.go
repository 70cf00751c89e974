// Package scripted is a model that needs no provider: it answers what a script
// says. A script is a YAML file:
//
//	agents:
//	  writer:                                    # the id of the agent that asks
//	    - when: turn == 1 && "search" in tools   # CEL; without it the entry always matches
//	      tool_calls: [{name: search, arguments: {query: "{{input}}"}}]
//	    - when: input.contains("fail")
//	      error: {status: 429, retry_after_ms: 500}
//	    - text: "About {{input}}: {{results}}"
//	      delay_ms: 50                           # before the answer
//	      chunks: 3                              # the text is streamed in so many pieces
//
// The first entry that matches is played. A condition knows input (the last
// user message), inputs (all of them), turn (assistant messages in the request, plus one), tools (the
// names on offer), results (the texts of tool messages) and result (the last of
// each tool, by its name). One that reads what is not there is not true; an
// unknown name is a fault of the file. Texts, also those in arguments, may hold
// {{input}}, {{inputs}} and {{results}} (one a line) and {{result.TOOL}} (nothing where that tool
// has not answered), nothing else. Arguments that are text themselves are sent as
// they are, JSON or not.
//
// The script keeps no state, so a run that continues after a crash gets the
// same answers.
package scripted

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Script says what the model answers to whom. Made by Parse; safe for concurrent use.
type Script struct {
	file   string
	agents map[string][]*entry
}

// entry is one answer and when it is given.
type entry struct {
	line   int
	when   cel.Program // nil matches always
	text   string
	calls  []call
	fail   *Failure
	delay  time.Duration
	chunks int
}

// call is a wish to call a tool. Arguments are raw where value is nil.
type call struct {
	name  string
	raw   string
	value map[string]any
}

// Answer is what a script says to one request.
type Answer struct {
	// Text of the turn; the model streams it as Pieces.
	Text string
	// ToolCalls of the turn; their ids are the same each time.
	ToolCalls []*teamv1.ToolCall
	// Failure is set where the turn fails instead.
	Failure *Failure
	// Delay comes before the answer.
	Delay time.Duration
	// Chunks is how many pieces the text is streamed in, at least 1.
	Chunks int
}

// Failure is a turn that fails as an endpoint's HTTP status does.
type Failure struct {
	// Status is the HTTP status, 400 to 599.
	Status int
	// Reason replaces UNAVAILABLE.
	Reason string
	// Message replaces the usual text.
	Message string
	// RetryAfter is what the endpoint asks to wait; 0 is nothing.
	RetryAfter time.Duration
}

// Agents returns the ids that the script answers for, sorted.
func (s *Script) Agents() []string {
	ids := make([]string, 0, len(s.agents))
	for id := range s.agents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Answer returns what the script says to req.Agent. The error, an *agent.Error,
// names the agent, the turn and what to add to the script.
func (s *Script) Answer(req *agent.ModelRequest) (*Answer, error) {
	entries, ok := s.agents[req.Agent]
	if !ok {
		return nil, noAnswer("the script %s has nothing for agent %q (%s); add an entry under agents.%s",
			s.name(), req.Agent, meant(req.Agent, s.Agents()...), req.Agent)
	}
	said := listen(req)
	for _, e := range entries {
		ok, err := e.matches(said)
		if err != nil {
			return nil, noAnswer("%s:%d, agent %q, turn %d: %w; shorten it", s.name(), e.line, req.Agent, said.turn, err)
		}
		if ok {
			return e.answer(said), nil
		}
	}
	return nil, noAnswer("no entry of the script %s matches agent %q, turn %d; add one under agents.%s, without when it always matches",
		s.name(), req.Agent, said.turn, req.Agent)
}

func (s *Script) name() string { return filepath.Base(s.file) }

func noAnswer(format string, args ...any) *agent.Error {
	err := fmt.Errorf(format, args...)
	return &agent.Error{Code: agent.CodeFailedPrecondition, Reason: agent.ReasonUnavailable, Message: err.Error(), Fresh: true}
}

// said is what conditions and texts see of a request.
type said struct {
	input   string
	inputs  []string
	turn    int
	tools   []string
	results []string
	result  map[string]string
}

func listen(req *agent.ModelRequest) *said {
	s := &said{turn: 1, inputs: []string{}, tools: []string{}, results: []string{}, result: map[string]string{}}
	called := map[string]string{} // tools by the ids of their calls
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

func (e *entry) matches(s *said) (bool, error) {
	if e.when == nil {
		return true, nil
	}
	return holds(e.when, map[string]any{
		"input": s.input, "inputs": s.inputs, "turn": s.turn, "tools": s.tools, "results": s.results, "result": s.result,
	})
}

func (e *entry) answer(s *said) *Answer {
	a := &Answer{Text: s.fill(e.text), Failure: e.fail, Delay: e.delay, Chunks: e.chunks}
	for i, c := range e.calls {
		a.ToolCalls = append(a.ToolCalls, &teamv1.ToolCall{
			Id: fmt.Sprintf("call_%d_%d", s.turn, i+1), Name: c.name, Arguments: c.arguments(s),
		})
	}
	return a
}

func (c *call) arguments(s *said) string {
	if c.value == nil {
		return c.raw
	}
	b, err := json.Marshal(s.fillAll(c.value))
	if err != nil { // the parser lets in only what JSON can say
		return c.raw
	}
	return string(b)
}

// Pieces returns the text in Chunks pieces of about the same size, none of them
// empty: fewer where the text has fewer characters.
func (a *Answer) Pieces() []string {
	runes := []rune(a.Text)
	n := min(max(a.Chunks, 1), len(runes))
	pieces := make([]string, n)
	for i := range pieces {
		pieces[i] = string(runes[i*len(runes)/n : (i+1)*len(runes)/n])
	}
	return pieces
}

// Estimate is what a turn costs where no provider counts: a token a word.
func Estimate(req *agent.ModelRequest, turn *teamv1.Turn) *teamv1.Spent {
	in := wordsIn(req.Instructions)
	for _, m := range req.Messages {
		in += wordsIn(m.Text) + wordsOf(m.ToolCalls)
	}
	return &teamv1.Spent{InputTokens: in, OutputTokens: wordsIn(turn.GetText()) + wordsOf(turn.GetToolCalls()), ModelCalls: 1}
}

func wordsOf(calls []*teamv1.ToolCall) (n int64) {
	for _, c := range calls {
		n += 1 + wordsIn(c.GetArguments())
	}
	return n
}

func wordsIn(s string) int64 { return int64(len(strings.Fields(s))) }
