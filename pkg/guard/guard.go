// Package guard has the guardrails that need no program: the length of a text,
// regular expressions, a JSON Schema. Each is an agent.Guard for the lists of
// agents and teams.
//
// A guardrail looks at what a model would read of a message, see agent.Prompt:
// texts, data as JSON, names of files. What is inside of files is not looked at.
package guard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config is what a guardrail looks for: exactly one of MaxLength, Deny, Require
// and Schema.
type Config struct {
	// Name is shown when it blocks; default: its kind, as configuration files call it.
	Name string
	// MaxLength is how many Unicode characters a message may have.
	MaxLength int
	// Deny is a regular expression (RE2) that must not be found, also not in what a
	// member is shown of what was said before.
	Deny string
	// Require is a regular expression (RE2) that must be found.
	Require string
	// Schema is what the data of a message must fit: its first data part, or its
	// text where that is JSON. A message without data does not fit.
	Schema *Schema
	// Message is what people and models are told when it blocks; default: what is
	// wrong, without the words that are.
	Message string
}

// New returns a guardrail. It is pure, and one that crashes lets nothing pass.
func New(c Config) (agent.Guard, error) {
	kind, find, err := c.finder()
	if err != nil {
		return agent.Guard{}, err
	}
	g := &guardrail{name: c.Name, message: c.Message, find: find, history: always(kind)}
	if g.name == "" {
		g.name = kind
	}
	return agent.Guard{Middleware: g, OnFailure: agent.Abort, Pure: true}, nil
}

// finder finds what is wrong with a message; empty is nothing.
type finder func(m *a2av1.Message) string

// always reports whether the kind looks at the history as well: what must not be
// said must not be said there either.
func always(kind string) bool { return kind == "deny" }

// finder returns what the guardrail looks for, and the word for its kind.
func (c *Config) finder() (kind string, find finder, err error) {
	kinds := 0
	for _, set := range []bool{c.MaxLength != 0, c.Deny != "", c.Require != "", c.Schema != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return "", nil, errors.New("a guardrail is exactly one of MaxLength, Deny, Require and Schema")
	case c.MaxLength < 0:
		return "", nil, errors.New("MaxLength must be more than 0; it counts characters")
	case c.MaxLength > 0:
		return "max_length", longerThan(c.MaxLength), nil
	case c.Schema != nil:
		return "schema", c.Schema.unfit, nil
	case c.Deny != "":
		return pattern("deny", c.Deny, true, "it holds what is not allowed here; take it out")
	}
	return pattern("require", c.Require, false, "it lacks what is required here; add it")
}

func longerThan(limit int) finder {
	return func(m *a2av1.Message) string {
		n := utf8.RuneCountInString(agent.Prompt(m))
		if n <= limit {
			return ""
		}
		return fmt.Sprintf("it has %d characters, %d are allowed; shorten it", n, limit)
	}
}

// pattern finds fault with a message in which the expression is found, or is not.
func pattern(kind, expression string, found bool, fault string) (string, finder, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", kind, err)
	}
	return kind, func(m *a2av1.Message) string {
		if re.MatchString(agent.Prompt(m)) == found {
			return fault
		}
		return ""
	}, nil
}

// guardrail is a middleware that only stops messages.
type guardrail struct {
	name, message string
	find          finder
	history       bool
}

var _ agent.Middleware = (*guardrail)(nil)

// Name implements agent.Middleware.
func (g *guardrail) Name() string { return g.name }

// Check implements agent.Middleware.
func (g *guardrail) Check(_ context.Context, p *agent.Passing) (agent.Verdict, error) {
	fault := g.find(p.Message)
	for i := 0; fault == "" && g.history && i < len(p.History); i++ {
		fault = g.find(p.History[i])
	}
	if fault != "" && g.message != "" {
		fault = g.message
	}
	return agent.Verdict{Block: fault}, nil
}
