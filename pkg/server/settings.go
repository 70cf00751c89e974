package server

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/settings"
)

// Reload puts the settings of c into effect, from the next request on; requests that have begun may end with the settings
// with which they began. Calls that last, such as streams, end within seconds if the settings no longer have what gave
// their caller the right to call. If the error is not nil, nothing has changed. Reloads at the same time are applied one
// after the other.
//
// Of c, only Settings, Loopback and CardKeys count. Settings that take effect when a server starts, which docs/configuration-server.md
// lists, stay as they are. Whether there are any API keys, clients with certificates or issuers cannot change either; that
// is an error.
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
	next, err := c.snapshot(s.at)
	if err != nil {
		return nil, err
	}
	authenticate, err := s.auth.Prepare(next.GetAuth())
	if err != nil {
		return nil, err
	}
	return func() {
		s.reloading.Lock() // so that the parts are all of the same configuration
		defer s.reloading.Unlock()
		settings.Continue(s.settings.Load().ServerSettings, next.ServerSettings)
		authenticate()
		s.settings.Store(next)
		s.budget.Resize(memorySize(next))
		s.engine.Wake() // other limits may allow more tasks to run
		s.notifier.reloaded()
	}, nil
}

// snapshot returns what is in effect with the settings of c. at are the addresses of the listeners. The error says what is
// wrong with the settings.
func (c *Config) snapshot(at Addrs) (*settings.Snapshot, error) {
	var allow []string
	if c.Loopback {
		allow = egress.Loopback()
	}
	now, err := settings.New(c.Settings, at.URL, at.GRPC, allow...)
	if err != nil {
		return nil, fmt.Errorf("server.Config.Settings: %w", err)
	}
	for name, l := range now.GetAccounts() {
		account.Check(l, func(_, what, instead string) {
			err = fmt.Errorf("server.Config.Settings: accounts[%q]: %s; %s", name, what, instead)
		})
	}
	account.CheckEvery(now.GetLimits().GetAccount(), func(_, what, instead string) {
		err = fmt.Errorf("server.Config.Settings: limits.account: %s; %s", what, instead)
	})
	if err != nil {
		return nil, err
	}
	now.Signer, err = c.signer(now)
	return now, err
}

// signer returns the signer of cards, nil if they are not signed.
func (c *Config) signer(now *settings.Snapshot) (*cardsign.Signer, error) {
	keys := slices.Clone(c.CardKeys)
	for _, k := range now.GetSigning().GetKeys() {
		data, err := os.ReadFile(k.GetFile())
		if err != nil {
			return nil, fmt.Errorf("reading the key %q of signing: %w", k.GetKid(), err)
		}
		private, err := cardsign.ParsePrivate(data)
		if err != nil {
			return nil, fmt.Errorf("the key %q of signing, in %s, %w", k.GetKid(), k.GetFile(), err)
		}
		keys = append(keys, CardKey{ID: k.GetKid(), Private: private})
	}
	if len(keys) == 0 {
		return nil, nil //nolint:nilnil // cards are not signed
	}
	jku := ""
	if now.GetPublicUrl() != "" {
		jku = now.GetPublicUrl() + "/.well-known/jwks.json"
	}
	return cardsign.NewSigner(keys, jku)
}

// memorySize returns the size of the budget of memory.
func memorySize(now *settings.Snapshot) int64 {
	return cmp.Or(now.GetLimits().GetMaxBytesInFlight(), inflight.DefaultSize())
}
