package config

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// toolNames reports undefined tools and duplicates.
func (k *checker) toolNames(names []string, subject string, path ...any) {
	for i, name := range names {
		n, _ := k.at(append(slices.Clone(path), i)...)
		switch {
		case k.isDamaged("tools"):
		case k.Server.GetTools()[name] == nil:
			k.fault(n, fmt.Sprintf("%s uses tool %q, which is not defined", subject, name),
				k.search(func() string {
					return cmp.Or(suggest(name, sorted(k.Server.GetTools())), "no tools are defined; add it under tools")
				}))
		case slices.Contains(names[:i], name):
			k.fault(n, fmt.Sprintf("%s has tool %q twice", subject, name), "remove one of them")
		default:
			k.usable("tools", name, append(slices.Clone(path), i)...)
		}
	}
}

// tools reports effects of operations that the tool does not allow, and approvals that cannot be used.
func (k *checker) tools() {
	for _, name := range sorted(k.Server.GetTools()) {
		k.approveTools(name, k.Server.GetTools()[name].GetApprove())
		m := k.Server.GetTools()[name].GetMcp()
		for _, of := range sorted(m.GetEffects()) {
			if of != "*" && len(m.GetAllow()) > 0 && !slices.Contains(m.GetAllow(), of) {
				k.fault(k.keyAt("tools", name, "mcp", "effects", of), fmt.Sprintf("tool %q declares effects of %q, but does not allow it", name, of),
					"add it to allow, or remove it here")
			}
		}
	}
}

// skills reports instructions of skills that no model reads.
func (k *checker) skills(a *teamv1.AgentConfig, id string) {
	if a.GetScripted() == nil && a.GetGrpc() == nil && a.GetA2A() == nil {
		return
	}
	for i, s := range a.GetSkills() {
		if s.GetInstructions() != "" {
			k.fault(k.keyAt("agents", id, "skills", i, "instructions"), "instructions of a skill belong to an agent with a model", "remove them here")
		}
	}
}

// toolUser names a used agent or team that has the tool, or returns "".
func (k *checker) toolUser(tool string) string {
	for _, id := range sorted(k.Server.GetAgents()) {
		if k.Used[id] && slices.Contains(k.Server.GetAgents()[id].GetTools(), tool) {
			return fmt.Sprintf("agent %q", id)
		}
	}
	for _, id := range sorted(k.Server.GetTeams()) {
		if slices.Contains(Leader(k.Server.GetTeams()[id]).GetTools(), tool) {
			return fmt.Sprintf("the leader of team %q", id)
		}
	}
	return ""
}

// collectTools adds tools to a definition, without their programs, addresses and secrets.
func (c *Config) collectTools(d *teamv1.Definition, tools []string) {
	for _, name := range tools {
		if t := c.Server.GetTools()[name]; t.GetMcp() != nil {
			m := proto.CloneOf(t.GetMcp())
			connect(m, &teamv1.McpTool{})
			d.Config.Tools[name] = &teamv1.ToolConfig{Mcp: m, Approve: t.GetApprove()}
		}
	}
}

// connect sets how m is reached to what it is in from.
func connect(m, from *teamv1.McpTool) {
	m.Command, m.Cwd, m.Env, m.Required = from.GetCommand(), from.GetCwd(), from.GetEnv(), from.GetRequired()
	m.Url, m.Bearer, m.Oauth, m.Headers = from.GetUrl(), from.GetBearer(), from.GetOauth(), from.GetHeaders()
}

// tool fills in the program or address of a tool from the current file.
func (r *restorer) tool(name string, t *teamv1.ToolConfig) {
	now := r.from.Server.GetTools()[name].GetMcp()
	if now == nil {
		r.fault("tool %q is no longer configured", name)
		return
	}
	connect(t.GetMcp(), now)
	r.requireComplete("tools", name, "tool")
}
