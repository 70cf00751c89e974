package scripted

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// Bounds on scripts.
const (
	maxFile   = 1 << 20 // bytes
	maxDelay  = 10 * time.Minute
	maxChunks = 10_000
	maxTokens = 1_000_000_000
)

// Parse parses a script; file is its name in faults. The error is of type Faults and holds all
// faults. If the YAML syntax is broken, only that is reported.
func Parse(file string, data []byte) (*Script, error) {
	return parse(file, func(p *parser) *yaml.Node { return p.root(data) })
}

// ParseNode is like Parse for a script that is part of another YAML file: n is its node, data the
// content of that file.
func ParseNode(file string, data []byte, n *yaml.Node) (*Script, error) {
	return parse(file, func(p *parser) *yaml.Node {
		p.lines = strings.Split(string(data), "\n")
		return n
	})
}

func parse(file string, read func(*parser) *yaml.Node) (*Script, error) {
	env, err := newEnv()
	if err != nil {
		return nil, err
	}
	p := &parser{file: file, env: env}
	s := &Script{file: file, agents: map[string][]*entry{}}
	if root := read(p); root != nil {
		p.script(root, s)
		s.id = idOf(root)
	}
	if len(p.faults) > 0 {
		p.faults.sort()
		return nil, p.faults
	}
	return s, nil
}

// idOf returns the hash of a node.
func idOf(n *yaml.Node) string {
	text, err := yaml.Marshal(n)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// parser visits the nodes of a file and collects faults.
type parser struct {
	file   string
	lines  []string
	env    *cel.Env
	faults Faults

	recorded bool // texts have no placeholders, and each entry is one call
}

func (p *parser) faultAt(line, col int, hint, format string, args ...any) {
	p.faults = append(p.faults, Fault{File: p.file, Line: line, Col: col, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (p *parser) fault(n *yaml.Node, hint, format string, args ...any) {
	p.faultAt(n.Line, n.Column, hint, format, args...)
}

// root returns the one document of the file.
func (p *parser) root(data []byte) *yaml.Node {
	switch {
	case len(data) > maxFile:
		p.faultAt(1, 1, "", "the file has %d bytes, a script has at most %d", len(data), maxFile)
		return nil
	case !utf8.Valid(data):
		p.faultAt(1, 1, "save it as UTF-8", "the file is not UTF-8 text")
		return nil
	}
	p.lines = strings.Split(string(data), "\n")
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := dec.Decode(&first); errors.Is(err, io.EOF) {
		p.faultAt(1, 1, "a script starts with: agents:", "the file is empty")
		return nil
	} else if err != nil {
		p.syntax(err)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		p.fault(&second, "", "a second document begins here; a script must contain only one")
	} else if !errors.Is(err, io.EOF) {
		p.syntax(err)
	}
	return first.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax reports where the YAML parser stopped, for which only the line is known.
func (p *parser) syntax(err error) {
	line, message := 1, err.Error()
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = min(max(n, 1), len(p.lines))
		}
	}
	p.faultAt(line, indent(p.lines[line-1])+1, "check the indentation, brackets and quotes here and in the line above", "not YAML: %s", message)
}

// script reads the root, which maps agents to lists of entries.
func (p *parser) script(root *yaml.Node, s *Script) {
	f := p.fields(root, "a script", "agents", "recorded")
	agents := f["agents"]
	if v := f["recorded"]; v != nil {
		p.recorded = p.truth(v, "recorded")
	}
	s.recorded = p.recorded
	switch {
	case agents == nil:
		if len(p.faults) == 0 {
			p.fault(root, "a script starts with: agents:", "agents are missing")
		}
	case p.is(agents, yaml.MappingNode, "agents", "ids, each with a list of entries"):
		if len(agents.Content) == 0 {
			p.fault(agents, "for example: writer: [{text: Hello}]", "agents are empty")
		}
		for id, list := range p.pairs(agents) {
			s.agents[id] = p.entries(id, list)
		}
	}
}

func (p *parser) entries(id string, list *yaml.Node) []*entry {
	what := fmt.Sprintf("agent %q", id)
	if !p.is(list, yaml.SequenceNode, what, "a list of entries") {
		return nil
	}
	if len(list.Content) == 0 {
		p.fault(list, "for example: [{text: Hello}]", "%s has no entries", what)
	}
	var entries []*entry
	always := 0
	for _, n := range list.Content {
		if always > 0 {
			p.fault(n, "give that one a when, or put it last", "this entry is never played: the one in line %d always matches", always)
		}
		before := len(p.faults)
		e := p.entry(n)
		if e.when == nil && !p.recorded && len(p.faults) == before {
			always = n.Line
		}
		entries = append(entries, e)
	}
	return entries
}

// entry reads an entry.
func (p *parser) entry(n *yaml.Node) *entry {
	e := &entry{line: n.Line, chunks: 1}
	before := len(p.faults)
	f := p.fields(n, "an entry", "when", "text", "tool_calls", "error", "delay_ms", "chunks", "finish_reason", "usage", "files")
	if v := f["when"]; v != nil {
		e.when = p.condition(v)
	}
	if v := f["text"]; v != nil {
		e.text = p.template(v, "text")
	}
	if v := f["tool_calls"]; v != nil {
		e.calls = p.calls(v)
	}
	if v := f["error"]; v != nil {
		e.fail = p.failure(v)
	}
	if v := f["delay_ms"]; v != nil {
		e.delay = p.millis(v, "delay_ms")
	}
	if v := f["chunks"]; v != nil {
		e.chunks = p.number(v, "chunks", 1, maxChunks)
	}
	if v := f["finish_reason"]; v != nil {
		e.finish = p.finishReason(v)
	}
	if v := f["usage"]; v != nil {
		e.usage = p.usage(v)
	}
	if v := f["files"]; v != nil {
		e.files = p.files(v)
	}
	p.combination(n, f, len(p.faults) == before)
	return e
}

// combination reports keys that contradict each other.
func (p *parser) combination(n *yaml.Node, f map[string]*yaml.Node, sound bool) {
	switch {
	case f["error"] != nil:
		for _, k := range []string{"text", "tool_calls", "chunks", "finish_reason", "usage", "files"} {
			if f[k] != nil {
				p.fault(f[k], "make it an entry of its own", "an entry with an error cannot have %s", k)
			}
		}
	case f["chunks"] != nil && f["text"] == nil:
		p.fault(f["chunks"], "", "chunks needs a text")
	case f["text"] == nil && f["tool_calls"] == nil && f["files"] == nil && sound:
		p.fault(n, "", "an entry needs a text, tool_calls or an error")
	}
}

// finishReason returns the reason for the end of a turn.
func (p *parser) finishReason(n *yaml.Node) string {
	reason := p.text(n, "finish_reason")
	if model.EndOf(reason) == teamv1.TurnEnd_TURN_END_UNSPECIFIED {
		p.fault(n, suggest(reason, "stop", "tool_calls", "length", "content_filter"), "finish_reason %q is unknown", short(reason))
	}
	return reason
}

// usage returns the tokens that a turn has used.
func (p *parser) usage(n *yaml.Node) *agent.Usage {
	f, u := p.fields(n, "usage", "input", "output", "cached_input", "cache_write", "reasoning"), &agent.Usage{}
	for key, to := range map[string]*int64{
		"input": &u.Input, "output": &u.Output, "cached_input": &u.CachedInput, "cache_write": &u.CacheWrite, "reasoning": &u.Reasoning,
	} {
		if v := f[key]; v != nil {
			*to = int64(p.number(v, key, 0, maxTokens))
		}
	}
	return u
}

// files returns parts in the JSON form of A2A.
func (p *parser) files(n *yaml.Node) []*a2av1.Part {
	if !p.is(n, yaml.SequenceNode, "files", "a list of parts") {
		return nil
	}
	var parts []*a2av1.Part
	for _, item := range n.Content {
		part := &a2av1.Part{}
		if !p.is(item, yaml.MappingNode, "a file", "keys and values") {
			continue
		}
		if data, err := json.Marshal(p.object(item)); err != nil || protojson.Unmarshal(data, part) != nil || !agent.IsFile(part) {
			p.fault(item, "for example: {raw: aGVsbG8=, mediaType: text/plain}", "this is not a file of A2A")
			continue
		}
		parts = append(parts, part)
	}
	return parts
}

func (p *parser) condition(n *yaml.Node) cel.Program {
	if !p.is(n, yaml.ScalarNode, "when", "an expression") {
		return nil
	}
	program, problems := compile(p.env, n.Value)
	for _, pr := range problems {
		line, col := p.inside(n, pr)
		p.faultAt(line, col, pr.hint, "%s", pr.message)
	}
	return program
}

// inside returns the position of a problem in the file. If quoting makes it uncertain, it returns
// the position of the expression.
func (p *parser) inside(n *yaml.Node, pr problem) (line, col int) {
	if n.Style&yaml.LiteralStyle != 0 {
		if line = n.Line + 1 + pr.line; line <= len(p.lines) {
			return line, indent(p.lines[line-1]) + 1 + pr.col
		}
	}
	simple := pr.line == 0 && n.Style&yaml.FoldedStyle == 0 && !strings.Contains(n.Value, "\n")
	switch quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0; {
	case !simple, quoted && strings.ContainsAny(n.Value, `'"\`) && !p.verbatim(n):
		return n.Line, n.Column
	case quoted:
		return n.Line, n.Column + 1 + pr.col
	}
	return n.Line, n.Column + pr.col
}

// verbatim reports whether the line contains a quoted value literally.
func (p *parser) verbatim(n *yaml.Node) bool {
	line := []rune(p.lines[n.Line-1])
	return n.Column <= len(line) && strings.HasPrefix(string(line[n.Column:]), n.Value)
}

func (p *parser) calls(n *yaml.Node) []call {
	if !p.is(n, yaml.SequenceNode, "tool_calls", "a list of calls") {
		return nil
	}
	if len(n.Content) == 0 {
		p.fault(n, "for example: [{name: search, arguments: {query: tides}}]", "tool_calls are empty")
	}
	calls := make([]call, len(n.Content))
	for i, c := range n.Content {
		f := p.fields(c, "a tool call", "name", "arguments")
		if f == nil {
			continue
		}
		if f["name"] == nil {
			p.fault(c, "for example: {name: search}", "a tool call needs a name")
		} else if calls[i].name = p.text(f["name"], "name"); calls[i].name == "" {
			p.fault(f["name"], "", "the name is empty")
		}
		calls[i].raw, calls[i].value = p.arguments(f["arguments"])
	}
	return calls
}

func (p *parser) failure(n *yaml.Node) *Failure {
	f := p.fields(n, "error", "status", "reason", "message", "retry_after_ms")
	e := &Failure{}
	if v := f["status"]; v != nil {
		e.Status = p.number(v, "status", 400, 599)
	} else if f != nil {
		p.fault(n, "for example: {status: 429}", "an error needs a status, 400 to 599")
	}
	if v := f["reason"]; v != nil {
		if e.Reason = p.text(v, "reason"); !reason.MatchString(e.Reason) {
			p.fault(v, "for example: UNAVAILABLE", "a reason consists of upper-case letters, digits and _")
		}
	}
	if v := f["message"]; v != nil {
		e.Message = p.text(v, "message")
	}
	if v := f["retry_after_ms"]; v != nil {
		e.RetryAfter = p.millis(v, "retry_after_ms")
	}
	return e
}

var reason = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,62}$`)

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
