package config

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/guard"
)

// Guardrail is what a guardrail of the file is made of.
func Guardrail(g *teamv1.Guardrail, schema *guard.Schema) (agent.Guard, error) {
	return guard.New(guard.Config{
		Name: g.GetName(), MaxLength: int(g.GetMaxLength()), Deny: g.GetDeny(), Require: g.GetRequire(), Schema: schema, Message: g.GetMessage(),
	})
}

// listed is a guardrail and its place in a list of them.
type listed struct {
	*teamv1.Guardrail
	list string
	i    int
}

// allOf returns all guardrails, list by list.
func allOf(g *teamv1.Guardrails) []listed {
	var all []listed
	for _, l := range []struct {
		name  string
		items []*teamv1.Guardrail
	}{{"input", g.GetInput()}, {"output", g.GetOutput()}, {"delegation", g.GetDelegation()}, {"result", g.GetResult()}} {
		for i, one := range l.items {
			all = append(all, listed{one, l.name, i})
		}
	}
	return all
}

// schemasOf returns the schema files that guardrails name, and output.
func schemasOf(g *teamv1.Guardrails, output string) []string {
	var files []string
	if output != "" {
		files = append(files, output)
	}
	for _, one := range allOf(g) {
		if one.GetSchema() != "" {
			files = append(files, one.GetSchema())
		}
	}
	return files
}

// guardrails checks expressions, and reads the schema files. Their faults are
// reported with those of the file.
func (k *checker) guardrails() {
	read := map[string]bool{}
	for _, id := range sorted(k.Server.GetAgents()) {
		a := k.Server.GetAgents()[id]
		if a.GetOutputSchema() != "" {
			k.schema(a.GetOutputSchema(), read, "agents", id, "output_schema")
		}
		k.guardrailsOf(a.GetGuardrails(), read, "agents", id)
	}
	for _, id := range sorted(k.Server.GetTeams()) {
		k.guardrailsOf(k.Server.GetTeams()[id].GetGuardrails(), read, "teams", id)
	}
}

func (k *checker) guardrailsOf(g *teamv1.Guardrails, read map[string]bool, path ...any) {
	for _, one := range allOf(g) {
		at := append(path[:len(path):len(path)], "guardrails", one.list, one.i)
		switch {
		case one.GetSchema() != "":
			k.schema(one.GetSchema(), read, append(at, "schema")...)
		case one.GetDeny() != "":
			k.pattern(one, append(at, "deny")...)
		case one.GetRequire() != "":
			k.pattern(one, append(at, "require")...)
		}
	}
}

// pattern reports an expression that cannot be read, where it goes wrong.
func (k *checker) pattern(g listed, path ...any) {
	n, _ := k.at(path...)
	_, err := Guardrail(g.Guardrail, nil)
	var bad *syntax.Error
	if errors.As(err, &bad) && !k.hurt(path...) {
		k.within(n, max(0, strings.LastIndex(n.Value, bad.Expr)), fmt.Sprintf("this is no regular expression: %s", bad.Code),
			"correct it; the syntax is RE2: no look-around and no back-references")
	}
}

// schema reads a schema file.
func (k *checker) schema(file string, read map[string]bool, path ...any) {
	n, _ := k.at(path...)
	if k.hurt(path...) {
		return
	}
	data, err := k.ReadFile(file)
	if err != nil {
		k.fault(n, "schema "+quote(file)+": "+unreadable(file, err)[0].Message, "the path is relative to this file")
		return
	}
	if read[file] {
		return
	}
	read[file] = true
	s, err := guard.ParseSchema(k.Path(file), data)
	var faults guard.Faults
	if errors.As(err, &faults) {
		text := NewText(data, nil)
		for _, f := range faults {
			k.faults = append(k.faults, text.Fault(f.File, f.Line, f.Col, f.Message, f.Hint))
		}
		return
	}
	k.Schemas[file], k.schemas[file] = s, data
}

// collectSchemas adds schema files to a definition.
func (c *Config) collectSchemas(d *teamv1.Definition, files []string) {
	for _, file := range files {
		if data, ok := c.schemas[file]; ok {
			d.Schemas[file] = data
		}
	}
}

// schemas compiles the schema files of a definition on record.
func (r *restorer) schemas() {
	for _, file := range sorted(r.to.schemas) {
		s, err := guard.ParseSchema(file, r.to.schemas[file])
		if err != nil {
			r.fault("the schema %q cannot be read any more", file)
			continue
		}
		r.to.Schemas[file] = s
	}
}
