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

// Guardrail builds the guard that a guardrail of the file describes. schema may be nil.
func Guardrail(g *teamv1.Guardrail, schema *guard.Schema) (agent.Guard, error) {
	return guard.New(guard.Config{
		Name: g.GetName(), MaxLength: int(g.GetMaxLength()), Deny: g.GetDeny(), Require: g.GetRequire(), Schema: schema, Message: g.GetMessage(),
	})
}

// listedGuardrail is a guardrail with its list and its index in that list.
type listedGuardrail struct {
	*teamv1.Guardrail
	list string
	i    int
}

// allGuardrails returns all guardrails, list by list.
func allGuardrails(g *teamv1.Guardrails) []listedGuardrail {
	var all []listedGuardrail
	for _, l := range []struct {
		name  string
		items []*teamv1.Guardrail
	}{{"input", g.GetInput()}, {"output", g.GetOutput()}, {"delegation", g.GetDelegation()}, {"result", g.GetResult()}} {
		for i, one := range l.items {
			all = append(all, listedGuardrail{one, l.name, i})
		}
	}
	return all
}

// schemasOf returns the schema files that guardrails refer to, and output unless it is empty.
func schemasOf(g *teamv1.Guardrails, output string) []string {
	var files []string
	if output != "" {
		files = append(files, output)
	}
	for _, one := range allGuardrails(g) {
		if one.GetSchema() != "" {
			files = append(files, one.GetSchema())
		}
	}
	return files
}

// schemasOfTeam returns the schema files that a team refers to: those of its guardrails and of its
// judges.
func schemasOfTeam(id string, t *teamv1.TeamConfig) []string {
	files := schemasOf(t.GetGuardrails(), "")
	for _, r := range reviews(id, t) {
		if file := r.GetJudge().GetSchema(); file != "" {
			files = append(files, file)
		}
	}
	return files
}

// guardrails checks regular expressions and reads the schema files. Faults of schema files are
// reported with those of the configuration file.
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
		for _, r := range reviews(id, k.Server.GetTeams()[id]) {
			if file := r.GetJudge().GetSchema(); file != "" {
				k.schema(file, read, append(r.path, "judge", "schema")...)
			}
		}
	}
}

func (k *checker) guardrailsOf(g *teamv1.Guardrails, read map[string]bool, path ...any) {
	for _, one := range allGuardrails(g) {
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

// pattern reports an invalid regular expression, at the position of the error.
func (k *checker) pattern(g listedGuardrail, path ...any) {
	n, _ := k.at(path...)
	_, err := Guardrail(g.Guardrail, nil)
	var bad *syntax.Error
	if errors.As(err, &bad) && !k.isDamaged(path...) {
		k.faultInText(n, max(0, strings.LastIndex(n.Value, bad.Expr)), fmt.Sprintf("invalid regular expression: %s", bad.Code),
			"correct it; the syntax is RE2, without look-around and back-references")
	}
}

// schema reads a schema file, once if there are several references to it.
func (k *checker) schema(file string, read map[string]bool, path ...any) {
	n, _ := k.at(path...)
	if k.isDamaged(path...) {
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
		text := NewText(data)
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

// schemas compiles the schema files of a stored definition.
func (r *restorer) schemas() {
	for _, file := range sorted(r.to.schemas) {
		s, err := guard.ParseSchema(file, r.to.schemas[file])
		if err != nil {
			r.fault("the schema %q can no longer be read", file)
			continue
		}
		r.to.Schemas[file] = s
	}
}
