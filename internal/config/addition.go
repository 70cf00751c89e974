package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
)

// Addition is a document with the syntax of the configuration file that is stored outside of it,
// for example in the database. It defines only agents and teams, and refers to the file's models
// and tools by name. Its author may manage teams but does not run the server, so it must not name
// files or environment variables of the server, and must not hold secrets.
type Addition struct {
	// Name appears in faults in place of a file path. Names are unique.
	Name string
	// Data is the YAML text.
	Data []byte
	// Account is the account to which the addition belongs, "" if none is known. Of what the file defines,
	// it may use only what is marked with api, and no agent or team that some callers of the account may not
	// use, unless Open is true or Account is "".
	Account string
	// Open means that the addition may use everything that the file defines.
	Open bool
}

// add merges the agents and teams of an addition into a document.
func (a Addition) add(d *source.Document) {
	root := d.Append(a.Name, a.Data)
	if root == nil {
		return
	}
	d.Filter(root, func(key, value *yaml.Node) bool {
		switch key.Value {
		case "version":
			if value.Value != "v1" && value.Value != "v2" {
				d.NodeFault(value, fmt.Sprintf("version %q is unknown", value.Value), "write version: v1, or leave it out")
			}
		case "agents", "teams":
			addTo(d, key, value)
		default:
			d.NodeFault(key, strconv.Quote(key.Value)+" belongs in the server's configuration file", "a team document may define only agents and teams; it uses models and tools of the file by name")
		}
		return true
	})
}

// addTo adds the entries of a section to the document's section of the same name.
func addTo(d *source.Document, key, value *yaml.Node) {
	if value.Kind != yaml.MappingNode {
		d.NodeFault(value, "expected agents or teams by id, got "+source.KindOf(value), "write ID: {...}")
		return
	}
	section := source.Value(d.Root(), key.Value)
	if section == nil {
		section = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: value.Line, Column: value.Column}
		d.Root().Content = append(d.Root().Content, key, section)
	}
	for id, entry := range source.Pairs(value) {
		if known := definedAt(d, id.Value); known != "" {
			d.NodeFault(id, strconv.Quote(id.Value)+" already exists", "choose another id; this one is defined in "+known)
			continue
		}
		rejectVariables(d, entry)
		section.Content = append(section.Content, id, entry)
	}
}

// definedAt says where a document defines an agent or team, "" if it does not.
func definedAt(d *source.Document, id string) string {
	for _, section := range []string{"agents", "teams"} {
		if at := d.At(section, id); at.Found() {
			return at.Describe()
		}
	}
	return ""
}

// rejectVariables reports references to environment variables and files of the server.
func rejectVariables(d *source.Document, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		d.NodeFault(n, "environment variables and files of the server cannot be used here", "write the value itself; secrets belong in the server's configuration file")
		n.Value = strings.ReplaceAll(n.Value, "${", "")
	}
	for _, c := range n.Content {
		rejectVariables(d, c)
	}
}

// rejectServerOnly reports the keys of added agents and teams that only the configuration file may
// set: names of files, and secrets. It removes the file names so that later checks do not open
// them.
func rejectServerOnly(d *source.Document, server *teamv1.ServerConfig, added map[string]string) {
	for _, id := range slices.Sorted(maps.Keys(added)) {
		if a := server.GetAgents()[id]; a != nil {
			rejectInAgent(d.At("agents", id), a)
		} else if t := server.GetTeams()[id]; t != nil {
			rejectInTeam(d.At("teams", id), t)
		}
	}
}

// What values are that only the configuration file may have.
const (
	namesFile   = "names a file"
	holdsSecret = "holds a secret"
)

// reject reports a key if it is set, and reports whether it is.
func reject(at source.Place, set bool, why, word string) bool {
	if set {
		key := fmt.Sprint(at.Path()[len(at.Path())-1])
		at.KeyFault(fmt.Sprintf("%q %s, which is only allowed in the server's configuration file", key, why), "define the "+word+" in the server's configuration file")
	}
	return set
}

func rejectInAgent(at source.Place, a *teamv1.AgentConfig) {
	refuse := func(set bool, why string, path ...any) bool { return reject(at.At(path...), set, why, "agent") }
	if refuse(a.GetOutputSchema() != "", namesFile, "output_schema") {
		a.OutputSchema = ""
	}
	if refuse(hasSchema(a.GetGuardrails()), namesFile, "guardrails") {
		a.Guardrails = nil
	}
	if refuse(len(a.GetA2A().GetTrustedKeys()) > 0, namesFile, "a2a", "trusted_keys") {
		a.A2A.TrustedKeys = nil
	}
	t := a.GetGrpc().GetTls()
	if refuse(t.GetCa() != "", namesFile, "grpc", "tls", "ca") {
		t.Ca = ""
	}
	if refuse(t.GetCert() != "", namesFile, "grpc", "tls", "cert") || refuse(t.GetKey() != "", namesFile, "grpc", "tls", "key") {
		t.Cert, t.Key = "", ""
	}
	refuse(len(a.GetSettings().GetHeaders()) > 0, holdsSecret, "settings", "headers")
	refuse(a.GetA2A().GetAuth() != nil, holdsSecret, "a2a", "auth")
	refuse(a.GetGrpc().GetAuth() != nil, holdsSecret, "grpc", "auth")
}

func rejectInTeam(at source.Place, t *teamv1.TeamConfig) {
	if reject(at.At("guardrails"), hasSchema(t.GetGuardrails()), namesFile, "team") {
		t.Guardrails = nil
	}
	for _, r := range modes.Reviews(t) {
		if reject(at.At(r.Path...).At("judge", "schema"), r.GetJudge().GetSchema() != "", namesFile, "team") {
			r.Judge.Schema, r.Threshold = "", proto.Float64(1) // no further fault
		}
	}
}

// hasSchema reports whether a guardrail names a schema file.
func hasSchema(g *teamv1.Guardrails) bool {
	return slices.ContainsFunc(references.Guardrails(g), func(one references.ListedGuardrail) bool { return one.GetSchema() != "" })
}

// origins returns the name of the addition by the id of each added agent and team.
func origins(d *source.Document) map[string]string {
	from := map[string]string{}
	for _, section := range []string{"agents", "teams"} {
		for key := range source.Pairs(source.Value(d.Root(), section)) {
			if name := d.Origin(key); name != "" {
				from[key.Value] = name
			}
		}
	}
	return from
}

// Text returns the text of the addition for quoting in faults.
func (a Addition) Text() *source.Text { return source.NewText(a.Data) }
