package manage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"buf.build/go/protoyaml"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// document is the document of a catalog entry, which defines a team or an agent.
type document struct {
	id   string
	data []byte
	ids  []string // of everything that it defines
	// rendered reports that it was given as a message, not as YAML.
	rendered bool
	// idField is the request field that held the id; "" if the YAML holds it.
	idField string
	// named returns the field of a contract that a path of the document was made from; nil if the
	// document was not made from a contract.
	named func(path []any) string
}

// teamDocument returns the document of a team: the given YAML, or one made from the given message.
func (m *Manager) teamDocument(yaml string, c *teamv1.TeamConfig, id string, given bool) (document, error) {
	switch {
	case !given:
		return document{}, a2aerror.Invalid(agent.Violation{Field: "yaml", Description: "is required unless config or contract is set"})
	case c == nil:
		return written(yaml)
	case id == "":
		id = m.c.NewID()
	}
	return rendered("teamId", id, &teamv1.ServerConfig{Teams: map[string]*teamv1.TeamConfig{id: c}})
}

// written returns a document given as YAML, which must define exactly one team.
func written(yaml string) (document, error) {
	if len(yaml) > maxDocument {
		return document{}, tooLarge("yaml")
	}
	o, err := config.Addition{Name: "yaml", Data: []byte(yaml)}.Outline()
	var faults source.Faults
	if errors.As(err, &faults) {
		return document{}, invalid(violations(faults, place))
	}
	if len(o.Teams) != 1 {
		return document{}, refused("yaml", fmt.Sprintf("must define one team, with the agents that come with it; it defines %d teams and %d agents", len(o.Teams), len(o.Agents)))
	}
	return document{id: o.Teams[0], data: []byte(yaml), ids: slices.Concat(o.Teams, o.Agents)}, nil
}

// agentDocument returns the document of an agent.
func agentDocument(id string, c *teamv1.AgentConfig) (document, error) {
	if id == "" {
		return document{}, a2aerror.Invalid(agent.Violation{Field: "agentId", Description: "is required"})
	}
	if c == nil {
		return document{}, a2aerror.Invalid(agent.Violation{Field: "config", Description: "is required"})
	}
	return rendered("agentId", id, &teamv1.ServerConfig{Agents: map[string]*teamv1.AgentConfig{id: c}})
}

// rendered returns a document made from a message with one definition.
func rendered(idField, id string, c *teamv1.ServerConfig) (document, error) {
	data, err := protoyaml.MarshalOptions{UseProtoNames: true}.Marshal(c)
	if err == nil && len(data) > maxDocument {
		err = tooLarge("config")
	}
	return document{id: id, data: data, ids: []string{id}, rendered: true, idField: idField}, err
}

// field returns the request field that a fault of this document belongs to.
func (d document) field(e *entry, f source.Fault) string {
	switch {
	case f.File != e.ID:
		return d.form() // the fault is in the configuration file
	case !d.rendered || e.outline == nil:
		return place(f)
	}
	at := e.outline.Path(f.Line, f.Col)
	// The message of a fault of an id begins with the id in quotes.
	if len(at) == 2 && strings.HasPrefix(f.Message, strconv.Quote(fmt.Sprint(at[1]))+" ") {
		return d.idField
	}
	if d.named != nil {
		return d.named(at)
	}
	name := "config"
	for _, step := range at[min(2, len(at)):] {
		switch s := step.(type) {
		case string:
			name += "." + camel(s)
		case int:
			name += "[" + strconv.Itoa(s) + "]"
		}
	}
	return name
}

// form returns the field in which the definition was given.
func (d document) form() string {
	if d.named != nil {
		return "contract"
	}
	if d.rendered {
		return "config"
	}
	return "yaml"
}

// place returns the position of a fault in YAML as a field name.
func place(f source.Fault) string { return fmt.Sprintf("yaml:%d:%d", f.Line, f.Col) }

// camel converts the name of a field to its JSON name.
func camel(snake string) string {
	words := strings.Split(snake, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

func tooLarge(field string) error {
	return refused(field, fmt.Sprintf("is larger than %d MiB", maxDocument>>20))
}

// refused returns the error for a definition as a whole.
func refused(field, why string) error {
	return invalid([]agent.Violation{{Field: field, Description: why}})
}
