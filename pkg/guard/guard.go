// Package guard provides built-in guardrails: a maximum length, regular expressions and
// a JSON Schema. Each is an agent.Guard for the guard lists of agents and teams.
//
// A guardrail checks what a model would read of a message, see agent.Prompt: texts, data
// as JSON, and names of files. The content of files is not checked.
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

// Config configures a guardrail. Exactly one of MaxLength, Deny, Require and Schema must be set.
type Config struct {
	// Name is reported when the guardrail blocks a message; "" means its kind, as in configuration
	// files.
	Name string
	// MaxLength is the maximum number of Unicode characters of a message.
	MaxLength int
	// Deny is a regular expression (RE2) that must not match a message, nor the history that a
	// member receives with it.
	Deny string
	// Require is a regular expression (RE2) that must match.
	Require string
	// Schema must accept the data of a message: its first data part, or its text if that is JSON. A
	// message without data is blocked.
	Schema *Schema
	// Message is the reason that people and models receive when a message is blocked; "" means a
	// description of the violation that does not quote the message.
	Message string
}

// New returns a guardrail. It has no side effects. If it panics, the message is blocked.
func New(c Config) (agent.Guard, error) {
	kind, find, err := c.finder()
	if err != nil {
		return agent.Guard{}, err
	}
	g := &guardrail{name: c.Name, message: c.Message, find: find, history: checksHistory(kind)}
	if g.name == "" {
		g.name = kind
	}
	return agent.Guard{Middleware: g, OnFailure: agent.Abort, Pure: true}, nil
}

// finder is a function that returns why a message is blocked, or "" if it is not.
type finder func(m *a2av1.Message) string

// checksHistory reports whether guardrails of a kind check the history too. A denied pattern must
// not appear there either.
func checksHistory(kind string) bool { return kind == "deny" }

// finder returns the kind of the guardrail and its check.
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
		return "schema", c.Schema.describeViolations, nil
	case c.Deny != "":
		return pattern("deny", c.Deny, true, "it matches a denied pattern; remove it")
	}
	return pattern("require", c.Require, false, "it does not match the required pattern; add what is missing")
}

func longerThan(limit int) finder {
	return func(m *a2av1.Message) string {
		n := utf8.RuneCountInString(agent.Prompt(m))
		if n <= limit {
			return ""
		}
		return fmt.Sprintf("it has %d characters, more than the %d allowed; shorten it", n, limit)
	}
}

// pattern returns a check that blocks the messages that the expression matches or, if found is
// false, those that it does not match. fault is the reason.
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

// guardrail is a middleware that blocks messages and never changes them.
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
