package a2a

import (
	"net/url"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// settings are the part of a Config that Handler.Reload replaces. They are not modified.
type settings struct {
	pushes             bool // whether push notifications are supported
	checkWebhook       func(*url.URL) error
	defaultAgent       string
	interfaces         Interfaces
	security           map[string]*a2av1.SecurityScheme
	sign               func(*a2av1.AgentCard) error
	streams            Streams
	requireTeamRun     bool
	refuseWhileWorking bool
}

// settings returns the settings of a configuration.
func (c *Config) settings() *settings {
	return &settings{
		pushes: c.Pushes != nil && !c.NoPush, checkWebhook: c.CheckWebhook, defaultAgent: c.DefaultAgent, interfaces: c.Interfaces,
		security: c.Security, sign: c.Sign, streams: c.Streams.withDefaults(), requireTeamRun: c.RequireTeamRun, refuseWhileWorking: c.RefuseWhileWorking,
	}
}

// Reload replaces settings of h by those of c: NoPush, CheckWebhook, DefaultAgent, Interfaces, Security, Sign,
// Streams without Poll, RequireTeamRun and RefuseWhileWorking. The other fields of c have no effect. Calls that
// have begun may use the previous settings to their end.
func (h *Handler) Reload(c Config) {
	c.Pushes = h.c.Pushes
	h.settings.Store(c.settings())
}
