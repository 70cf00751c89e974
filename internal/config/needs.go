package config

import (
	"fmt"
)

// recordMissing records, by entry, the variables and files that are missing, for Restore.
func (c *Config) recordMissing(gaps []missing) {
	c.missingByID = map[[2]string]string{}
	for _, g := range gaps {
		if len(g.path) < 2 {
			continue
		}
		section, _ := g.path[0].(string)
		id, _ := g.path[1].(string)
		c.missingByID[[2]string{section, id}] = g.name + ", which " + g.lack
	}
}

// needs reports missing variables and files to which a part of the file that is in use refers, and
// fills in the keys and addresses that models take from the environment.
func (k *checker) needs() {
	for _, g := range k.gaps {
		subject := k.subject(g.path)
		if subject == "" {
			continue
		}
		hint := g.hint
		if g.lack == unset && len(g.path) > 0 && g.path[0] == "models" {
			hint = "set it, or point the agent at a model with provider: scripted"
		}
		k.fault(g.node, fmt.Sprintf("%s needs %s, which %s", subject, g.name, g.lack), hint)
	}
	k.keys()
}

// lacks reports whether a variable or file is missing anywhere in the entry.
func (k *checker) lacks(section, id string) bool {
	for _, g := range k.gaps {
		if len(g.path) > 1 && g.path[0] == section && g.path[1] == id {
			return true
		}
	}
	return false
}

// subject names what uses the value at path, or returns "" if it is unused.
func (k *checker) subject(path []any) string {
	if len(path) < 2 {
		return "the file"
	}
	id, _ := path[1].(string)
	switch path[0] {
	case "models":
		return k.user(id)
	case "agents":
		if k.Used[id] {
			return fmt.Sprintf("agent %q", id)
		}
		return ""
	case "teams":
		return fmt.Sprintf("team %q", id)
	case "tools":
		return k.toolUser(id)
	}
	return "the server"
}

// user names a used agent or team that uses the model, or returns "".
func (k *checker) user(model string) string {
	for _, id := range sorted(k.Server.GetAgents()) {
		if k.Used[id] && k.mayUse(k.Server.GetAgents()[id].GetModel(), model) {
			return fmt.Sprintf("agent %q", id)
		}
	}
	for _, id := range sorted(k.Server.GetTeams()) {
		switch t := k.Server.GetTeams()[id]; {
		case k.mayUse(t.GetSupervisor().GetRouter().GetModel(), model):
			return fmt.Sprintf("the router of team %q", id)
		case k.mayUse(leaderModel(t), model):
			return fmt.Sprintf("the leader of team %q", id)
		}
		if k.Server.GetTeams()[id].GetBroadcast().GetModel() == model {
			return fmt.Sprintf("the broadcast of team %q", id)
		}
		for _, r := range reviews(id, k.Server.GetTeams()[id]) {
			if k.mayUse(r.GetJudge().GetModel(), model) {
				return fmt.Sprintf("the judge of team %q", id)
			}
		}
	}
	return ""
}
