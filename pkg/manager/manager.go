// Package manager implements a registry of agents by id, with their health. Teams are registered
// like other agents, so teams can be members of teams.
package manager

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures a Manager. The zero value is valid.
type Config struct {
	// Log receives panics of health checks; nil discards them.
	Log *zap.Logger
	// HealthTTL is how long the result of a health check is valid; 0 means 5 seconds.
	HealthTTL time.Duration
	// CheckTimeout is the time limit of a background check; 0 means 5 seconds.
	CheckTimeout time.Duration
	// Checks is the maximum number of concurrent background checks; 0 means 64.
	Checks int
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.HealthTTL <= 0 {
		c.HealthTTL = 5 * time.Second
	}
	if c.CheckTimeout <= 0 {
		c.CheckTimeout = 5 * time.Second
	}
	if c.Checks <= 0 {
		c.Checks = 64
	}
	return c
}

// Manager is a registry of agents by id. An agent may be registered in several managers and be a
// member of several teams. Lookups take no lock. All methods are safe for concurrent use.
type Manager struct {
	cfg    Config
	agents sync.Map // id (string) to *entry
	size   atomic.Int64
	write  sync.Mutex // serializes writers, so that two of them cannot complete a cycle together
	checks *checks
}

// entry is a registered agent with its health. Replacing an agent creates a new entry, so that a
// late health result of the previous agent is discarded.
type entry struct {
	agent    agent.Agent
	health   atomic.Pointer[healthResult]
	checking atomic.Bool
}

// New returns an empty Manager. Close it to stop its background checks.
func New(cfg Config) *Manager {
	cfg = cfg.withDefaults()
	return &Manager{cfg: cfg, checks: newChecks(cfg.Checks)}
}

// Close stops the background checks and waits for them. The manager remains usable, but the known
// health of agents no longer changes.
func (m *Manager) Close() { m.checks.close() }

// Register adds an agent. Errors: INVALID_REQUEST if the id is invalid or in use;
// INVALID_TEAM_CONFIG, with the whole path, for a team that would contain itself.
func (m *Manager) Register(id string, a agent.Agent) error {
	m.write.Lock()
	defer m.write.Unlock()
	if err := checkID(id); err != nil {
		return err
	}
	if _, ok := m.lookup(id); ok {
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest,
			"agent id %q is in use; choose another id, or replace the agent", id)
	}
	if err := m.checkNesting(id, a); err != nil {
		return err
	}
	m.agents.Store(id, &entry{agent: a})
	m.size.Add(1)
	return nil
}

// Replace replaces a registered agent. Runs in progress continue with the previous agent. Errors:
// AGENT_NOT_FOUND, INVALID_TEAM_CONFIG.
func (m *Manager) Replace(id string, a agent.Agent) error {
	m.write.Lock()
	defer m.write.Unlock()
	if _, ok := m.lookup(id); !ok {
		return notFound(id)
	}
	if err := m.checkNesting(id, a); err != nil {
		return err
	}
	m.agents.Store(id, &entry{agent: a})
	return nil
}

// Remove removes an agent. It remains a member of its teams, which are unhealthy until an agent with
// that id is registered again. Error: AGENT_NOT_FOUND.
func (m *Manager) Remove(id string) error {
	m.write.Lock()
	defer m.write.Unlock()
	if _, ok := m.agents.LoadAndDelete(id); !ok {
		return notFound(id)
	}
	m.size.Add(-1)
	return nil
}

// Get returns the agent with the given id. Error: AGENT_NOT_FOUND.
func (m *Manager) Get(id string) (agent.Agent, error) {
	e, ok := m.lookup(id)
	if !ok {
		return nil, notFound(id)
	}
	return e.agent, nil
}

// Agent is the same as Get. Teams look up their members by this name.
func (m *Manager) Agent(id string) (agent.Agent, error) { return m.Get(id) }

// IDs returns all ids, sorted.
func (m *Manager) IDs() []string {
	ids := make([]string, 0, m.Len())
	for id := range m.agents.Range {
		ids = append(ids, id.(string)) //nolint:forcetypeassert // only strings are stored
	}
	slices.Sort(ids)
	return ids
}

// Len returns the number of registered agents.
func (m *Manager) Len() int { return int(m.size.Load()) }

// Info returns the self-description of an agent. Errors: AGENT_NOT_FOUND and those of the agent.
func (m *Manager) Info(ctx context.Context, id string) (*teamv1.AgentInfo, error) {
	a, err := m.Get(id)
	if err != nil {
		return nil, err
	}
	return a.Info(ctx)
}

func (m *Manager) lookup(id string) (*entry, bool) {
	v, ok := m.agents.Load(id)
	if !ok {
		return nil, false
	}
	return v.(*entry), true //nolint:forcetypeassert // only entries are stored
}

func checkID(id string) error {
	if agent.ValidID(id) {
		return nil
	}
	return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest,
		"%q cannot be an agent's id: expected %s and no reserved word", id, agent.IDPattern)
}
