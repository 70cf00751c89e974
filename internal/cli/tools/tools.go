// Package tools implements the commands that list and call the tools of the MCP servers of a configuration file.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
)

// Commands are the commands over tools. They print to the console, and start the MCP servers of a definition, or connect
// to them, for as long as they need them.
type Commands struct {
	Console    *console.Console
	Definition *config.Config
}

// listed is a tool in the list, as -o json prints it.
type listed struct {
	Server      string          `json:"server"`
	Name        string          `json:"name"`
	Effect      string          `json:"effect"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// effects are the words for effects, as in the file.
var effects = map[agent.Effect]string{agent.EffectKeyed: "keyed", agent.EffectSafe: "safe", agent.EffectUnsafe: "unsafe"}

// List prints the tools of all MCP servers, or of one if name is not empty. It returns console.ErrFailed if a server does
// not answer.
func (c *Commands) List(ctx context.Context, name string) error {
	var list []listed
	err := c.each(ctx, name, func(server string, t agent.Tool) error {
		spec := t.Spec()
		list = append(list, listed{server, spec.Name, effects[spec.Effect], spec.Description, spec.Parameters})
		return nil
	})
	if err != nil && !errors.Is(err, console.ErrFailed) {
		return err
	}
	if c.Console.JSON {
		return errors.Join(err, console.Lines(c.Console, list))
	}
	return errors.Join(err, console.Columns(c.Console, list, "SERVER\tTOOL\tEFFECT\tDOES", func(t listed) []string {
		does, _, _ := strings.Cut(t.Description, "\n")
		return []string{console.Line(t.Server), console.Line(t.Name), t.Effect, console.Line(does)}
	}))
}

// errFound ends the search for a tool.
var errFound = errors.New("found")

// Call calls a tool with arguments, which must be a JSON object, and prints its result. The tool is named as agents know it,
// or by its server as SERVER/TOOL. It returns console.ErrFailed if the result is an error of the tool.
func (c *Commands) Call(ctx context.Context, name, arguments string) error {
	var object map[string]any
	if err := json.Unmarshal([]byte(arguments), &object); err != nil || object == nil {
		return console.Usagef("tools call: the arguments %s are not a JSON object, such as {\"path\": \"README.md\"}", arguments)
	}
	server, tool, named := strings.Cut(name, "/")
	if !named {
		server, tool = "", name
	}
	var result *teamv1.ToolResult
	var known []string
	err := c.each(ctx, server, func(_ string, t agent.Tool) (err error) {
		if known = append(known, t.Spec().Name); t.Spec().Name != tool {
			return nil
		}
		if result, err = t.Call(ctx, json.RawMessage(arguments), uuid.NewString()); err != nil {
			return err
		}
		return errFound
	})
	switch {
	case errors.Is(err, errFound):
		return c.show(result)
	case err != nil && !errors.Is(err, console.ErrFailed):
		return err
	}
	hint := source.Suggest(tool, known)
	if hint == "" {
		hint = "team-server tools ls lists those of the file"
	}
	return errors.Join(err, fmt.Errorf("there is no tool %q; %s", console.Line(name), hint))
}

// show prints the result of a tool.
func (c *Commands) show(r *teamv1.ToolResult) error {
	if c.Console.JSON {
		if err := c.Console.Print(r); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(c.Console.Text(), r.GetText()); err != nil {
		return err
	}
	if n := len(r.GetFiles()); n > 0 && !c.Console.JSON {
		c.Console.Sayf("and %d files; -o json prints them", n)
	}
	if r.GetIsError() {
		return console.ErrFailed
	}
	return nil
}

// each calls do with the tools of the MCP servers with a name, or of all, until it returns an error. A server that does not
// answer is named, and does not hinder the others; the error is then console.ErrFailed.
func (c *Commands) each(ctx context.Context, name string, do func(server string, t agent.Tool) error) error {
	all := c.Definition.Server.GetTools()
	servers := slices.Sorted(maps.Keys(all))
	if name != "" {
		if all[name] == nil {
			return console.Usagef("the file has no tools %q; it has %s", name, strings.Join(servers, ", "))
		}
		servers = []string{name}
	}
	parts, err := build.OpenParts(c.Definition)
	if err != nil {
		return err
	}
	defer parts.Close()
	var failed error
	for _, server := range servers {
		s, err := parts.Tool(ctx, server)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			c.Console.Sayf("tools %s: %s", server, console.Line(reason(err)))
			failed = console.ErrFailed
			continue
		}
		if err := visit(ctx, s, server, do); err != nil {
			return err
		}
	}
	return failed
}

// visit calls do with the tools of a server, and stops the server.
func visit(ctx context.Context, s *mcp.Server, name string, do func(server string, t agent.Tool) error) error {
	defer s.Shutdown(ctx) //nolint:errcheck // it always returns nil
	for _, t := range s.Known() {
		if err := do(name, t); err != nil {
			return err
		}
	}
	return nil
}

// reason returns the text of an error with its cause, which callers of agents do not see.
func reason(err error) string {
	var e *agent.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return err.Error()
}
