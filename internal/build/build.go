// Package build turns configurations into agents: models, and model-backed, scripted and remote
// agents, and teams of them.
package build

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/mcp"
	modelscript "github.com/agentteams/team-server/pkg/model/scripted"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// Config holds what agents are built from.
type Config struct {
	// Definition is the configuration of the agents. Required.
	Definition *config.Config
	// Revisions are the revisions of the agents' definitions, by id. Runs record them.
	Revisions map[string]string
	// IDs are the agents to build; nil means all that Definition uses. Other agents that they work
	// with must be in Registry already.
	IDs map[string]bool
	// From are previously built agents whose tools are shared rather than started again. They must
	// stay open as long as the new agents.
	From []*Agents
	// Registry is where the agents are registered and look up each other. Required.
	Registry *manager.Manager
	// Egress makes the connections to addresses that the configuration file names. Required.
	Egress *egress.Dialer
	// Guarded makes the connections to addresses that additions or cards name; nil means a dialer for
	// public addresses.
	Guarded *egress.Dialer
	// Upstreams holds the circuit breakers of all agents in the process; nil means that every call
	// is made.
	Upstreams team.Upstreams
	// Current returns the configuration that is served now, so that runs of an earlier definition
	// start no work with members that have been disabled or removed. nil means Definition.
	Current func() *config.Config
	// Boards stores the boards of teams; nil means that teams have no boards.
	Boards board.Store
	// Log receives warnings; nil discards them.
	Log *zap.Logger
}

// Agents are agents that were built. Close them when nothing uses them.
type Agents struct {
	closers []io.Closer
	tools   map[string]*mcp.Server // including shared ones; read-only after Register
}

// Close closes the connections of remote agents and stops tools.
func (a *Agents) Close() error {
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// builder builds the agents of one configuration.
type builder struct {
	Config
	server *teamv1.ServerConfig
	models map[string]agent.Model // with their fallbacks
	single map[string]agent.Model // without fallbacks
	used   *modelscript.Used      // the answers of recorded scripts that were given
	agents *Agents
}

// Register builds the agents and teams and registers them. If it fails, it closes everything that
// it opened.
func Register(c Config) (*Agents, error) {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.IDs == nil {
		c.IDs = c.Definition.Used
		for id := range c.Definition.Server.GetAgents() {
			if !c.IDs[id] {
				c.Log.Info("agent is not served: no team uses it", zap.String("agent", id))
			}
		}
	}
	if c.Guarded == nil {
		var err error
		if c.Guarded, err = egress.NewGuarded(); err != nil {
			return nil, err
		}
	}
	b := &builder{
		Config: c, server: c.Definition.Server, agents: &Agents{tools: map[string]*mcp.Server{}},
		models: map[string]agent.Model{}, single: map[string]agent.Model{}, used: &modelscript.Used{},
	}
	if err := b.register(); err != nil {
		_ = b.agents.Close()
		return nil, err
	}
	return b.agents, nil
}

func (b *builder) register() error {
	if err := b.startTools(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(b.server.GetAgents())) {
		if !b.IDs[id] {
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
		if !b.IDs[id] {
			continue
		}
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

// agent builds an agent that is not a team.
func (b *builder) agent(id string, a *teamv1.AgentConfig) (agent.Agent, error) {
	switch {
	case a.GetModel() != "", a.GetInstructions() != "":
		var m agent.Model // nil means the model of the leader
		if a.GetModel() != "" {
			var err error
			if m, err = b.modelWith(a.GetModel(), a.GetSettings()); err != nil {
				return nil, err
			}
		}
		own, err := b.ownTools(a.GetTools())
		if err != nil {
			return nil, err
		}
		tools, err := b.toolSets(id, fmt.Sprintf("agent %q", id), a.GetTools())
		if err != nil {
			return nil, err
		}
		guards, err := b.guards(a.GetGuardrails())
		if err != nil {
			return nil, err
		}
		c := leader.AgentConfig{
			ID: id, Name: a.GetName(), Description: a.GetDescription(), Instructions: a.GetInstructions(), Skills: a.GetSkills(),
			InputModes: a.GetInputModes(), OutputModes: a.GetOutputModes(),
			Guards: guards, Upstreams: b.Upstreams,
			ToolMemory:      toolMemory(a.GetConversation()),
			AcceptTruncated: a.GetOnTruncated() == teamv1.OnTruncated_ACCEPT, AllowEmpty: a.GetAllowEmpty(),
			Model: m, Tools: own, ToolSets: tools, Limits: a.GetLimits(), Memory: a.Memory == nil || a.GetMemory(), Revision: b.Revisions[id], Log: b.Log,
		}
		if c.Inputs, err = config.Inputs(a.GetInputs()); err != nil {
			return nil, err
		}
		if err := b.output(&c, a.GetOutputSchema()); err != nil {
			return nil, err
		}
		return leader.NewAgent(c)
	case a.GetScripted() != nil:
		return scripted.New(scripted.Config{
			ID: id, Name: a.GetName(), Description: a.GetDescription(), Skills: a.GetSkills(),
			InputModes: a.GetInputModes(), OutputModes: a.GetOutputModes(),
			Steps: a.GetScripted().GetSteps(), Calls: a.GetScripted().GetCalls(), Members: b.Registry,
		})
	case a.GetGrpc() != nil:
		return b.grpc(id, a)
	case a.GetA2A() != nil:
		return b.a2a(id, a)
	case a.GetProgram() != nil:
		return part(b.Definition.Program.Agents, "agent", id)
	}
	return nil, errors.New("unknown kind of agent")
}

// toolMemory returns how many tool calls of a conversation are remembered; nil means the default.
func toolMemory(c *teamv1.ConversationConfig) *int {
	if c == nil || c.Tools == nil {
		return nil
	}
	n := int(c.GetTools())
	return &n
}

// dialer returns the dialer for the address of a remote agent.
func (b *builder) dialer(id string) *egress.Dialer {
	if b.Definition.AddressInFile(id) {
		return b.Egress
	}
	return b.Guarded
}

func (b *builder) grpc(id string, a *teamv1.AgentConfig) (agent.Agent, error) {
	r, err := b.newGRPC(id, a)
	if err != nil {
		return nil, err
	}
	b.agents.closers = append(b.agents.closers, r)
	return described(r, a), nil
}

// newGRPC returns an agent that implements the Agent service.
func (b *builder) newGRPC(id string, a *teamv1.AgentConfig) (*remote.Agent, error) {
	tlsConfig, err := b.tls(a.GetGrpc().GetTls())
	if err != nil {
		return nil, err
	}
	return remote.New(remote.Config{
		ID: id, Address: strings.TrimPrefix(a.GetGrpc().GetAddress(), "dns:///"), AgentID: a.GetGrpc().GetAgentId(),
		Token: b.Definition.Secret(a.GetGrpc().GetAuth().GetBearer()), TLS: tlsConfig, Egress: b.dialer(id), Log: b.Log, CostPerTask: a.GetGrpc().GetCostPerTask(),
		IdleTimeout: a.GetGrpc().GetIdleTimeout().AsDuration(),
	})
}

// bindings are the names of bindings on cards.
var bindings = map[teamv1.Binding_Value][]string{
	teamv1.Binding_GRPC: {remote.BindingGRPC}, teamv1.Binding_REST: {remote.BindingREST}, teamv1.Binding_JSONRPC: {remote.BindingJSONRPC},
}

func (b *builder) a2a(id string, a *teamv1.AgentConfig) (agent.Agent, error) {
	r, err := b.newA2A(id, a)
	if err != nil {
		return nil, err
	}
	b.agents.closers = append(b.agents.closers, r)
	return described(r, a), nil
}

// newA2A returns an agent that speaks A2A.
func (b *builder) newA2A(id string, a *teamv1.AgentConfig) (*remote.A2A, error) {
	verifier, err := b.verifier(a.GetA2A())
	if err != nil {
		return nil, err
	}
	var tokens secret.Source
	if o := a.GetA2A().GetAuth().GetOauth(); o != nil {
		tokens = b.tokens(o)
	}
	return remote.NewA2A(remote.A2AConfig{
		Verifier: verifier, Tokens: tokens,
		ID: id, Card: a.GetA2A().GetCard(), Token: b.Definition.Secret(a.GetA2A().GetAuth().GetBearer()),
		Prefer: bindings[a.GetA2A().GetBinding()], Version: a.GetA2A().GetVersion(), Egress: b.dialer(id), Others: b.Guarded, Log: b.Log, CostPerTask: a.GetA2A().GetCostPerTask(),
		IdleTimeout: a.GetA2A().GetIdleTimeout().AsDuration(),
	})
}

// verifier returns the verifier for the card of an agent, or nil if any card is accepted.
func (b *builder) verifier(a *teamv1.A2AAgent) (remote.CardVerifier, error) {
	trust, err := b.Definition.Trust(a)
	if err != nil {
		return nil, fmt.Errorf("reading trusted_keys: %w", err)
	}
	if trust == nil {
		return nil, nil //nolint:nilnil // an untyped nil
	}
	return trust, nil
}

// tls returns the TLS configuration of a connection, or nil for a connection without TLS.
func (b *builder) tls(t *teamv1.TlsConfig) (*tls.Config, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // without TLS
	}
	c := b.Egress.TLS()
	c.ServerName = t.GetServerName()
	if t.GetCert() != "" {
		cert, key := b.Definition.Path(t.GetCert()), b.Definition.Path(t.GetKey())
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				return nil, fmt.Errorf("reading tls.cert and tls.key: %w", err)
			}
			return &pair, nil
		}
	}
	if t.GetCa() == "" {
		return c, nil
	}
	pem, err := b.Definition.ReadFile(t.GetCa())
	if err != nil {
		return nil, fmt.Errorf("reading tls.ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.ca %s contains no certificate", t.GetCa())
	}
	return c, nil
}

// team builds a team.
func (b *builder) team(id string, t *teamv1.TeamConfig) (agent.Agent, error) {
	c := team.Config{
		ID: id, Name: t.GetName(), Description: t.GetDescription(), InputModes: t.GetInputModes(), OutputModes: t.GetOutputModes(),
		Members: modes.Members(t), Registry: staff{b.Registry, b.Definition, b.Current},
		Mode: modes.Name(t), Limits: t.GetLimits(), AllowEmpty: t.GetAllowEmpty(), ToolMemory: toolMemory(t.GetConversation()), Memory: t.Memory == nil || t.GetMemory(), Revision: b.Revisions[id], Upstreams: b.Upstreams, Log: b.Log,
	}
	if t.GetBoard() && b.Boards != nil {
		key, members := agent.KeyOf(b.Definition.AccountOf(id), id), modes.MemberIDs(t)
		c.MemberTools = func(self string) agent.ToolSet { return board.NewTools(b.Boards, key, members, self) }
	}
	var err error
	if c.Inputs, err = config.Inputs(t.GetInputs()); err != nil {
		return nil, err
	}
	if c.Guards, err = b.guards(t.GetGuardrails()); err != nil {
		return nil, err
	}
	if c.Review, err = b.review(t.GetReview()); err != nil {
		return nil, err
	}
	for i, m := range t.GetMembers() { // modes.Members lists them first, in this order
		if c.Members[i].Accept, err = b.review(m.GetAccept()); err != nil {
			return nil, err
		}
	}
	switch {
	case t.GetSupervisor() != nil, t.GetLoop() != nil:
		if c.Scheduler, err = supervisor.New(modes.Supervisor(t)); err != nil {
			return nil, err
		}
		if r := t.GetSupervisor().GetRouter(); r != nil {
			if c.Model, err = b.model(r.GetModel()); err != nil {
				return nil, err
			}
		}
	case t.GetWorkflow() != nil:
		c.ReportErrors = t.GetWorkflow().GetOnMemberError() == teamv1.OnMemberError_CONTINUE_PARTIAL
		if plan := t.GetWorkflow().GetPlan(); plan != nil {
			if c.Scheduler, err = workflow.NewPlanned(modes.Planned(t)); err != nil {
				return nil, err
			}
			if c.Model, err = b.model(plan.GetModel()); err != nil {
				return nil, err
			}
			break
		}
		if c.Scheduler, err = workflow.New(modes.Workflow(t)); err != nil {
			return nil, err
		}
	case t.GetBroadcast() != nil:
		c.ReportErrors = true
		c.Scheduler = broadcast.New(broadcast.Config{Instructions: t.GetBroadcast().GetInstructions()})
		if c.Model, err = b.model(t.GetBroadcast().GetModel()); err != nil {
			return nil, err
		}
	case modes.Leader(t) != nil:
		c.ReportErrors = t.GetCoordinator().GetOnMemberError() != teamv1.OnMemberError_FAIL
		if c.Tools, err = b.ownTools(modes.Leader(t).GetTools()); err != nil {
			return nil, err
		}
		if c.Scheduler, err = leader.NewCoordinator(modes.Coordinator(t, c.Tools)); err != nil {
			return nil, err
		}
		if c.Model, err = b.modelWith(modes.Leader(t).GetModel(), modes.Leader(t).GetSettings()); err != nil {
			return nil, err
		}
		if c.ToolSets, err = b.toolSets(id, fmt.Sprintf("the leader of team %q", id), modes.Leader(t).GetTools()); err != nil {
			return nil, err
		}
		c.Skills = modes.Leader(t).GetSkills()
	case t.GetSwarm() != nil:
		if c.Scheduler, err = swarm.New(modes.Swarm(t)); err != nil {
			return nil, err
		}
	case t.GetProgram() != nil:
		if c.Scheduler, err = part(b.Definition.Program.Schedulers, "scheduler of team", id); err != nil {
			return nil, err
		}
		if t.GetProgram().GetModel() != "" {
			if c.Model, err = b.model(t.GetProgram().GetModel()); err != nil {
				return nil, err
			}
		}
	default:
		return nil, errors.New("unknown mode of team")
	}
	return team.New(c)
}
