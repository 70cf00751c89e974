package config

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/references"
)

// accessible is what agents and teams have in common that says who may use them.
type accessible interface {
	GetAccess() *teamv1.AccessConfig
	GetApi() bool
	GetCard() teamv1.CardAccess_Value
}

// accessOf returns what says who may use an agent or team that is defined.
func (c *Config) accessOf(id string) accessible {
	if t := c.Server.GetTeams()[id]; t != nil {
		return t
	}
	return c.Server.GetAgents()[id]
}

// Access returns who may use an agent or team; nil means that its definition does not restrict it.
func (c *Config) Access(id string) *teamv1.AccessConfig { return c.accessOf(id).GetAccess() }

// HasPublicCard reports whether the card of an agent or team may be read without authentication.
func (c *Config) HasPublicCard(id string) bool {
	switch c.accessOf(id).GetCard() {
	case teamv1.CardAccess_PUBLIC:
		return true
	case teamv1.CardAccess_PRIVATE:
		return false
	case teamv1.CardAccess_DEFAULT_CARD:
	}
	switch {
	case c.Addition(id) != "", c.Access(id) != nil:
		return false
	case id == c.Server.GetServer().GetDefaultAgent():
		return true
	}
	for other := range c.Used {
		if c.Addition(other) == "" && references.WorkTogether(c.Server, other, id) {
			return false
		}
	}
	return true
}

// usable reports whether an agent or team may use a model, tool, agent or team that is
// defined. If it may not, usable adds a fault. Only additions of an account are restricted.
func (k *checker) usable(u references.Reference) bool {
	if k.userAccount(u) == "" || k.additions[u.Name] != "" && u.Kind == references.Agent {
		return true
	}
	word := string(u.Kind)
	var target interface{ GetApi() bool }
	switch u.Kind {
	case references.Model:
		target = k.Server.GetModels()[u.Name]
	case references.Tool:
		target = k.Server.GetTools()[u.Name]
	default:
		target = k.accessOf(u.Name)
		if k.Server.GetTeams()[u.Name] != nil {
			word = "team"
		}
	}
	if target.GetApi() {
		return true
	}
	k.at(u.Path...).Fault(fmt.Sprintf("%s %q may not be used by teams and agents that are made by the API", word, u.Name),
		"its operator can allow that: write api: true in it in the server's configuration file")
	return false
}

// userAccount returns the account of the addition that has a use; "" for the file.
func (k *checker) userAccount(u references.Reference) string {
	user, _ := u.Path[1].(string)
	return k.restrictionOf(k.additions[user])
}

// visible reports whether an addition of an account may know of an agent or team. For the file account
// is "".
func (k *checker) visible(id, account string) bool {
	return account == "" || k.additions[id] != "" || open(k.Access(id), account)
}

// restrictionOf returns the account whose access limits what an addition may use, by its name; "" means that it may
// use everything.
func (c *Config) restrictionOf(addition string) string {
	for _, a := range c.loader.Additions {
		if a.Name == addition && !a.Open {
			return a.Account
		}
	}
	return ""
}

// makers returns the accounts that have made agents and teams by the API, by id.
func (c *Config) makers() map[string]string {
	of := map[string]string{}
	for _, a := range c.loader.Additions {
		of[a.Name] = a.Account
	}
	made := map[string]string{}
	for id, addition := range c.additions {
		if of[addition] != "" {
			made[id] = of[addition]
		}
	}
	return made
}

// open reports whether every caller of an account may use what has this access.
func open(a *teamv1.AccessConfig, account string) bool {
	return a == nil || len(a.GetPrincipals())+len(a.GetRoles()) == 0 && slices.Contains(a.GetAccounts(), account)
}

// withoutAccess returns an agent or team without what says who may use it, which is always taken
// from the current definition. It does not modify m.
func withoutAccess[M interface {
	proto.Message
	accessible
}](m M) M {
	if m.GetAccess() == nil && !m.GetApi() && m.GetCard() == 0 {
		return m
	}
	c := proto.CloneOf(m)
	for _, name := range []string{"access", "api", "card"} {
		c.ProtoReflect().Clear(c.ProtoReflect().Descriptor().Fields().ByTextName(name))
	}
	return c
}
