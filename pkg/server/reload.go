package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Reload makes c the configuration of the server from the next request on; requests that have begun may end with the
// settings with which they began. Calls that last, such as streams, end within seconds if c no longer has what gave
// their caller the right to call. If the error is not nil, nothing has changed. Reloads at the same time are applied one
// after the other.
//
// c is a whole Config, like that of New, of which Reload ignores what cannot change while the server runs: Agent,
// Agents, GRPC, HTTP, Listeners, TLS, NoReflection, Store, Replica, Teams, Definitions, Boards, Slots, Version, Ready,
// ExtendedCards, Push, StallTime, Streams.Poll, ForgetMessageIDs, Meter, NamedInMetrics, Tracing and Log. Whether there are
// any Keys, Clients or Issuers cannot change either; that is an error.
func (s *TeamServer) Reload(c Config) error {
	apply, err := s.Prepare(c)
	if err == nil {
		apply()
	}
	return err
}

// Prepare returns the function that does what Reload does. It is for programs that change more at the same time,
// and want all of it or nothing.
func (s *TeamServer) Prepare(c Config) (apply func(), err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	sign, err := signing(&c)
	if err != nil {
		return nil, err
	}
	guard, err := c.guard()
	if err != nil {
		return nil, err
	}
	authenticate, err := s.auth.Prepare(auth.Config{Keys: c.Keys, Clients: c.Clients, Issuers: c.Issuers})
	if err != nil {
		return nil, err
	}
	at := c.addresses(s.at)
	return func() {
		s.reloading.Lock() // so that the parts are all of the same configuration
		defer s.reloading.Unlock()
		authenticate()
		s.guard.Replace(guard)
		s.accounts.Reload(c.accountSettings())
		s.budget.Resize(c.memory())
		s.handler.Reload(c.handlerSettings(at, sign, s.guard))
		s.server.Reload(c.serverSettings(at, sign))
		s.notifier.reload(&c, at, sign)
		s.ender.reload(c.EndedRights)
	}, nil
}

// check returns what is wrong with the settings of c.
func (c *Config) check() error {
	for i, binding := range c.CardInterfaces {
		if !slices.Contains(a2a.Bindings(), binding) || slices.Contains(c.CardInterfaces[:i], binding) {
			return fmt.Errorf("server.Config.CardInterfaces has %q; it must contain each of %s at most once", binding, strings.Join(a2a.Bindings(), ", "))
		}
	}
	var wrong error
	for name, l := range c.Accounts {
		account.Check(l, func(_, what, instead string) {
			wrong = fmt.Errorf("server.Config.Accounts[%q]: %s; %s", name, what, instead)
		})
	}
	account.CheckEvery(c.Limits.GetAccount(), func(_, what, instead string) {
		wrong = fmt.Errorf("server.Config.Limits.Account: %s; %s", what, instead)
	})
	return wrong
}

// guard returns the guard of connections to webhooks.
func (c *Config) guard() (*egress.Guard, error) {
	g, err := egress.NewGuard(c.Egress...)
	if err != nil {
		return nil, fmt.Errorf("server.Config.Egress: %w", err)
	}
	return g, nil
}

// addresses returns the addresses in cards. at are those of the listeners.
func (c *Config) addresses(at Addrs) Addrs {
	if at.GRPC != "" { // PublicGRPC has no effect without a listener
		at.GRPC = cmp.Or(c.PublicGRPC, at.GRPC)
	}
	at.URL = cmp.Or(c.PublicURL, at.URL)
	return at
}

// handlerSettings returns what a2a.Handler.Reload replaces. at are the addresses in cards.
func (c *Config) handlerSettings(at Addrs, sign *cardsign.Signer, guard *egress.Guard) a2a.Config {
	settings := a2a.Config{
		NoPush: c.NoPush, CheckWebhook: guard.Webhook, DefaultAgent: c.DefaultAgent,
		Interfaces: a2a.Interfaces{HTTP: at.URL, GRPC: at.GRPC, Shown: c.CardInterfaces}, Security: security(c),
		Streams: c.Streams, RequireTeamRun: c.RequireTeamRun, RefuseWhileWorking: c.RefuseWhileWorking,
	}
	if sign != nil {
		settings.Sign = sign.Sign
	}
	return settings
}

// memory returns the size of the budget of memory.
func (c *Config) memory() int64 {
	return cmp.Or(c.Limits.GetMaxBytesInFlight(), inflight.DefaultSize())
}

// accountSettings returns what account.Accounts.Reload replaces.
func (c *Config) accountSettings() account.Config {
	return account.Config{File: c.Accounts, Every: c.Limits.GetAccount(), TotalUpload: c.Limits.GetMaxUploadBytes()}
}

// serverSettings returns what server.Server.Reload replaces.
func (c *Config) serverSettings(at Addrs, sign *cardsign.Signer) server.Config {
	settings := server.Config{
		BaseURL: at.URL, PublicURL: c.PublicURL, TrustedProxies: c.TrustedProxies, Origins: c.Origins, OriginHeaders: c.OriginHeaders,
		StrictVersion: c.StrictVersion, RequireTeamRun: c.RequireTeamRun, NoV03: c.NoV03, DrainDelay: c.DrainDelay, DrainTime: c.DrainTime,
		MaxConnections: int(c.Limits.GetMaxConnections()), MaxConnectionsFrom: int(c.Limits.GetMaxConnectionsPerAddress()), MaxCalls: int(c.Limits.GetMaxCalls()),
		LogSampling: c.LogSampling,
	}
	if sign != nil {
		settings.JWKS = sign.JWKS()
	}
	return settings
}
