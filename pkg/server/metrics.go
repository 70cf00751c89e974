package server

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/store/metered"
)

// instruments measure a server. All of them are nil without a meter.
type instruments struct {
	meter  metric.Meter
	log    *zap.Logger
	calls  *metrics.Calls
	runs   *metrics.Runs
	pushes *metrics.Pushes
}

// newInstruments returns the instruments of a configuration, and measures its store.
func newInstruments(c *Config) (*instruments, error) {
	i := &instruments{meter: c.Meter, log: c.Log.Named("metrics")}
	stored, err := metrics.NewStore(c.Meter)
	errs := []error{err}
	i.calls, err = metrics.NewCalls(c.Meter)
	errs = append(errs, err)
	i.runs, err = metrics.NewRuns(c.Meter, c.NamedInMetrics, stored)
	errs = append(errs, err)
	i.pushes, err = metrics.NewPushes(c.Meter)
	errs = append(errs, err, metrics.ObserveBuild(c.Meter, c.Version))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	c.Store = metered.New(c.Store, stored)
	return i, nil
}

// observe observes what waits in the store, what accounts have used of their limits, and what is held in memory, until
// stop is called.
func (i *instruments) observe(s Store, accounts *account.Accounts, budget *inflight.Budget) (stop func(), err error) {
	unwait, err := metrics.ObserveBacklog(i.meter, s.Backlog, accounts, s.Now, func(err error) {
		i.log.Warn("cannot read the backlog of the store", zap.Error(err))
	})
	if err != nil {
		return func() {}, err
	}
	unuse, err := metrics.ObserveAccounts(i.meter, accounts.Used, func(err error) {
		i.log.Warn("what accounts have used cannot be read", zap.Error(err))
	})
	if err != nil {
		return unwait, err
	}
	unhold, err := metrics.ObserveMemory(i.meter, budget.Use)
	return func() { unwait(); unuse(); unhold() }, err
}
