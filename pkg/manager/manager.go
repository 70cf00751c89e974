// Package manager holds the AgentManager: ids to agents, with their health.
// Teams are registered in it like every other agent, so teams nest.
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

// Config configures a Manager; the zero value is usable.
type Config struct {
	// Log receives panics of health checks; nil logs nothing.
	Log *zap.Logger
	// HealthTTL is how long a health result counts; 0 is 5 s.
	HealthTTL time.Duration
	// CheckTimeout bounds one background check; 0 is 5 s.
	CheckTimeout time.Duration
	// Checks is how many background checks run at the same time; 0 is 64.
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

// Manager is the AgentManager: a registry of agents by id. One agent
// may be registered in several managers, and be a member of several teams.
// Look-ups take no lock. All methods are safe for concurrent use.
type Manager struct {
	cfg    Config
	agents sync.Map // id (string) to *entry
	size   atomic.Int64
	write  sync.Mutex // serialises writers, so that no two of them close a circle together
	checks *checks
}

// entry is one registered agent and what is known of its health. Replacing an
// agent makes a new entry, so that a late result of the old one is lost.
type entry struct {
	agent    agent.Agent
	health   atomic.Pointer[checked]
	checking atomic.Bool
}

// New returns an empty Manager. Close it to end its background checks.
func New(cfg Config) *Manager {
	cfg = cfg.withDefaults()
	return &Manager{cfg: cfg, checks: newChecks(cfg.Checks)}
}

// Close ends the background checks and waits for them. Look-ups go on; health
// stays as last known.
func (m *Manager) Close() { m.checks.close() }

// Register adds an agent. Errors: INVALID_REQUEST for an id that is none or is
// taken; INVALID_TEAM_CONFIG, with the whole path, for a team that would
// contain itself.
func (m *Manager) Register(id string, a agent.Agent) error {
	m.write.Lock()
	defer m.write.Unlock()
	if err := checkID(id); err != nil {
		return err
	}
	if _, ok := m.lookup(id); ok {
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest,
			"agent id %q is taken; choose another id, or replace the agent", id)
	}
	if err := m.checkNesting(id, a); err != nil {
		return err
	}
	m.agents.Store(id, &entry{agent: a})
	m.size.Add(1)
	return nil
}

// Replace puts another agent in the place of a registered one. Work under way
// goes on with the old one. Errors: AGENT_NOT_FOUND, INVALID_TEAM_CONFIG.
func (m *Manager) Replace(id string, a agent.Agent) error {
	m.write.Lock()
	defer m.write.Unlock()
	if _, ok := m.lookup(id); !ok {
		return m.notFound(id)
	}
	if err := m.checkNesting(id, a); err != nil {
		return err
	}
	m.agents.Store(id, &entry{agent: a})
	return nil
}

// Remove takes an agent out. Teams that have it as a member keep its id: they
// are unhealthy until it is registered again. Error: AGENT_NOT_FOUND.
func (m *Manager) Remove(id string) error {
	m.write.Lock()
	defer m.write.Unlock()
	if _, ok := m.agents.LoadAndDelete(id); !ok {
		return m.notFound(id)
	}
	m.size.Add(-1)
	return nil
}

// Get returns the agent with an id. Error: AGENT_NOT_FOUND, which names the id.
func (m *Manager) Get(id string) (agent.Agent, error) {
	e, ok := m.lookup(id)
	if !ok {
		return nil, m.notFound(id)
	}
	return e.agent, nil
}

// Agent is Get under the name by which teams look up their members.
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

// Len returns how many agents are registered.
func (m *Manager) Len() int { return int(m.size.Load()) }

// Info asks an agent to describe itself. Errors: AGENT_NOT_FOUND and the agent's own.
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
