// Package build turns definitions into agents: models, model-backed, scripted
// and remote agents, and teams of them.
package build

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/model/openai"
	scriptedmodel "github.com/agentteams/team-server/pkg/model/scripted"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/team"
)

// Config is what agents are built from.
type Config struct {
	// Definition says what they are. Required.
	Definition *config.Config
	// Revisions of their definitions by id, for the record.
	Revisions map[string]string
	// Registry is where they are registered and find each other. Required.
	Registry *manager.Manager
	// Egress makes their connections. Required.
	Egress *egress.Dialer
	// Log gets their warnings; nil is none.
	Log *zap.Logger
}

// Agents are what was built. Close them when nothing uses them any more.
type Agents struct{ closers []io.Closer }

// Close closes the connections of remote agents.
func (a *Agents) Close() error {
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// builder builds the agents of one definition.
type builder struct {
	Config
	server *teamv1.ServerConfig
	models map[string]agent.Model
	agents *Agents
}

// Register builds the agents and teams that the definition uses and registers
// them. On an error nothing is left open.
func Register(c Config) (*Agents, error) {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	b := &builder{Config: c, server: c.Definition.Server, models: map[string]agent.Model{}, agents: &Agents{}}
	if err := b.register(); err != nil {
		_ = b.agents.Close()
		return nil, err
	}
	return b.agents, nil
}

func (b *builder) register() error {
	for _, id := range slices.Sorted(maps.Keys(b.server.GetAgents())) {
		if !b.Definition.Used[id] {
			b.Log.Info("agent is not served: no team uses it", zap.String("agent", id))
			continue
		}
		a, err := b.agent(id, b.server.GetAgents()[id])
		if err != nil {
			return fmt.Errorf("building agent %q: %w", id, err)
		}
		if err := b.Registry.Register(id, a); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.server.GetTeams())) {
		t, err := b.team(id, b.server.GetTeams()[id])
		if err != nil {
			return fmt.Errorf("building team %q: %w", id, err)
		}
		if err := b.Registry.Register(id, t); err != nil {
			return err
		}
	}
	return nil
}

// model returns the model of a name; each is built once.
func (b *builder) model(name string) (agent.Model, error) {
	if m, ok := b.models[name]; ok {
		return m, nil
	}
	m, err := b.newModel(name, b.server.GetModels()[name])
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", name, err)
	}
	b.models[name] = m
	return m, nil
}

func (b *builder) newModel(name string, m *teamv1.ModelConfig) (agent.Model, error) {
	switch m.GetProvider() {
	case "scripted":
		return scriptedmodel.New(scriptedmodel.Config{Name: cmp.Or(m.GetName(), name), Script: b.Definition.Scripts[name]})
	case "openai":
		return openai.New(openai.Config{
			Name: m.GetName(), BaseURL: m.GetBaseUrl(), APIKey: m.GetApiKey(), HTTPClient: b.client(),
			Price: openai.Price{Input: m.GetPrice().GetInput(), Output: m.GetPrice().GetOutput()},
		})
	}
	return nil, fmt.Errorf("provider %q is not supported", m.GetProvider())
}

// client makes the calls of models: they last as long as their context.
func (b *builder) client() *http.Client { return b.Egress.HTTPClient() }

// agent builds what is no team.
func (b *builder) agent(id string, a *teamv1.AgentConfig) (agent.Agent, error) {
	switch {
	case a.GetModel() != "", a.GetInstructions() != "":
		var m agent.Model // none: the leader's
		if a.GetModel() != "" {
			var err error
			if m, err = b.model(a.GetModel()); err != nil {
				return nil, err
			}
		}
		guards, err := b.guards(a.GetGuardrails())
		if err != nil {
			return nil, err
		}
		output, err := b.output(a.GetOutputSchema())
		if err != nil {
			return nil, err
		}
		return team.NewModelAgent(team.ModelAgentConfig{
			ID: id, Name: a.GetName(), Description: a.GetDescription(), Instructions: a.GetInstructions(), Skills: a.GetSkills(),
			Guards: guards, Output: output,
			Model: m, Limits: a.GetLimits(), Revision: b.Revisions[id], Log: b.Log,
		})
	case a.GetScripted() != nil:
		return scripted.New(scripted.Config{
			ID: id, Name: a.GetName(), Description: a.GetDescription(), Skills: a.GetSkills(),
			Steps: a.GetScripted().GetSteps(), Members: b.Registry,
		})
	case a.GetGrpc() != nil:
		return b.grpc(id, a)
	case a.GetA2A() != nil:
		return b.a2a(id, a)
	}
	return nil, errors.New("it is of no known kind")
}

func (b *builder) grpc(id string, a *teamv1.AgentConfig) (agent.Agent, error) {
	tlsConfig, err := b.tls(a.GetGrpc().GetTls())
	if err != nil {
		return nil, err
	}
	r, err := remote.New(remote.Config{
		ID: id, Address: strings.TrimPrefix(a.GetGrpc().GetAddress(), "dns:///"), AgentID: a.GetGrpc().GetAgentId(),
		Token: a.GetGrpc().GetAuth().GetBearer(), TLS: tlsConfig, Egress: b.Egress, Log: b.Log,
	})
	if err != nil {
		return nil, err
	}
	b.agents.closers = append(b.agents.closers, r)
	return described(r, a), nil
}

// bindings as cards name them.
var bindings = map[teamv1.Binding_Value][]string{
	teamv1.Binding_GRPC: {remote.BindingGRPC}, teamv1.Binding_REST: {remote.BindingREST}, teamv1.Binding_JSONRPC: {remote.BindingJSONRPC},
}

func (b *builder) a2a(id string, a *teamv1.AgentConfig) (agent.Agent, error) {
	r, err := remote.NewA2A(remote.A2AConfig{
		ID: id, Card: a.GetA2A().GetCard(), Token: a.GetA2A().GetAuth().GetBearer(),
		Prefer: bindings[a.GetA2A().GetBinding()], Egress: b.Egress, Log: b.Log,
	})
	if err != nil {
		return nil, err
	}
	b.agents.closers = append(b.agents.closers, r)
	return described(r, a), nil
}

// tls returns how a connection is secured; nil is not at all.
func (b *builder) tls(t *teamv1.TlsConfig) (*tls.Config, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // without TLS
	}
	c := b.Egress.TLS()
	c.ServerName = t.GetServerName()
	if t.GetCa() == "" {
		return c, nil
	}
	pem, err := b.Definition.ReadFile(t.GetCa())
	if err != nil {
		return nil, fmt.Errorf("reading tls.ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.ca %s holds no certificate", t.GetCa())
	}
	return c, nil
}

// team builds a team.
func (b *builder) team(id string, t *teamv1.TeamConfig) (agent.Agent, error) {
	c := team.Config{
		ID: id, Name: t.GetName(), Description: t.GetDescription(), Members: config.Members(t), Registry: b.Registry,
		Mode: config.Mode(t), Limits: t.GetLimits(), Revision: b.Revisions[id], Log: b.Log,
	}
	var err error
	if c.Guards, err = b.guards(t.GetGuardrails()); err != nil {
		return nil, err
	}
	switch {
	case t.GetSupervisor() != nil:
		if c.Scheduler, err = team.NewSupervisor(config.Supervisor(t)); err != nil {
			return nil, err
		}
		if r := t.GetSupervisor().GetRouter(); r != nil {
			if c.Model, err = b.model(r.GetModel()); err != nil {
				return nil, err
			}
		}
	case t.GetWorkflow() != nil:
		c.ReportErrors = t.GetWorkflow().GetOnMemberError() == teamv1.OnMemberError_CONTINUE_PARTIAL
		if c.Scheduler, err = team.NewWorkflow(config.Workflow(t)); err != nil {
			return nil, err
		}
	case t.GetBroadcast() != nil:
		c.ReportErrors = true
		c.Scheduler = team.NewBroadcast(team.BroadcastConfig{Instructions: t.GetBroadcast().GetInstructions()})
		if c.Model, err = b.model(t.GetBroadcast().GetModel()); err != nil {
			return nil, err
		}
	case config.Leader(t) != nil:
		c.ReportErrors = t.GetCoordinator().GetOnMemberError() != teamv1.OnMemberError_FAIL
		if c.Scheduler, err = team.NewCoordinator(config.Coordinator(t, c.Tools)); err != nil {
			return nil, err
		}
		if c.Model, err = b.model(config.Leader(t).GetModel()); err != nil {
			return nil, err
		}
	case t.GetSwarm() != nil:
		if c.Scheduler, err = team.NewSwarm(config.Swarm(t)); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("it is of no known mode")
	}
	return team.New(c)
}
