// Package remote implements agents that run in other processes: those that implement the Agent
// service of package teamv1, and those that speak A2A.
//
// A remote agent receives each message once. As soon as the peer's task is known, it is recorded in
// a Bound event, so that after a crash the call continues with that task instead of sending the
// message again.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// Config configures an Agent. Address or Conn is required.
type Config struct {
	// ID is the agent's id in this process; it names the agent in errors and in its Info.
	ID string
	// Address is the address of the peer, as host:port.
	Address string
	// Conn is used instead of Address. Close does not close it.
	Conn grpc.ClientConnInterface
	// AgentID is the agent's id at the peer; empty means the peer's default agent.
	AgentID string
	// Token is sent to the peer as bearer token, and to no other server.
	Token secret.Secret
	// TLS configures the connection to Address; nil means no TLS.
	TLS *tls.Config
	// Egress makes the connection; nil means a dialer that allows every address.
	Egress *egress.Dialer
	// InfoTTL is how long the peer's Info is cached; 0 means 60 s. An error is cached for half of
	// that time.
	InfoTTL time.Duration
	// Idle is the time without an event after which the stream is opened again; 0 means 60 s.
	Idle time.Duration
	// IdleTimeout is the time for which the peer may send no event of a task. Then the attempt has
	// failed, and the task is canceled. 0 means no limit.
	IdleTimeout time.Duration
	// CancelWait is the timeout for the peer to confirm a cancel; 0 means 30 s.
	CancelWait time.Duration
	// CancelEvery is the pause between two cancel requests for a task that has not ended; 0 means 1
	// s.
	CancelEvery time.Duration
	// CostPerTask is the cost of a task in USD, see agent.TaskPricer.
	CostPerTask float64
	// Log receives warnings; nil turns logging off.
	Log *zap.Logger
}

// withDefaults returns c with default values for the fields that are not set.
func (c Config) withDefaults() Config {
	setDefault(&c.ID, c.AgentID)
	setDefault(&c.ID, "remote")
	setDefault(&c.InfoTTL, time.Minute)
	setDefault(&c.Idle, time.Minute)
	c.Idle = withinSilence(c.Idle, c.IdleTimeout)
	setDefault(&c.CancelWait, 30*time.Second)
	setDefault(&c.CancelEvery, time.Second)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// setDefault sets a field that has its zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Agent is an agent in another process that implements the Agent service: a separate program, or an
// agent or team of another team-server. It is safe for concurrent use.
type Agent struct {
	cfg    Config
	client teamv1.AgentServiceClient
	conn   *grpc.ClientConn // nil if Config.Conn is used
	info   *cache[*teamv1.AgentInfo]
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Reaper     = (*Agent)(nil)
	_ agent.TaskPricer = (*Agent)(nil)
)

// New returns an agent, which connects at its first call. The error names an invalid field of cfg.
func New(cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	a := &Agent{cfg: cfg, info: newCache[*teamv1.AgentInfo](cfg.InfoTTL, cfg.InfoTTL/2)}
	if cfg.Conn != nil {
		a.client = teamv1.NewAgentServiceClient(cfg.Conn)
		return a, nil
	}
	if cfg.Address == "" {
		return nil, errors.New("remote agent: address is missing; expected host:port")
	}
	out, err := newEgress(cfg.Egress)
	if err != nil {
		return nil, err
	}
	if a.conn, err = dial(cfg.ID, cfg.Address, out, cfg.TLS, cfg.Token, cfg.Log); err != nil {
		return nil, err
	}
	a.client = teamv1.NewAgentServiceClient(a.conn)
	return a, nil
}

// Close closes the connection, unless it is Config.Conn. Calls in progress fail.
func (a *Agent) Close() error {
	if a.conn == nil {
		return nil
	}
	return a.conn.Close()
}

// Info implements agent.Agent. It returns the peer's description, which is at most Config.InfoTTL
// old, with the id of Config.
func (a *Agent) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	info, err := a.info.get(ctx, a.fetchInfo)
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(info), nil
}

// fetchInfo reads the description from the peer.
func (a *Agent) fetchInfo(ctx context.Context) (*teamv1.AgentInfo, error) {
	resp, err := a.client.Info(a.outgoing(ctx, 0), &teamv1.InfoRequest{AgentId: a.cfg.AgentID})
	if err != nil {
		return nil, a.failure(ctx, err)
	}
	info := resp.GetInfo()
	if info == nil {
		return nil, senseless(a.cfg.ID, "returned no description", nil)
	}
	return describe(a.cfg.ID, info), nil
}

// HealthCheck implements agent.Agent. A peer that does not implement HealthCheck is healthy if it
// answers Info.
func (a *Agent) HealthCheck(ctx context.Context) (*teamv1.Health, error) {
	resp, err := a.client.HealthCheck(a.outgoing(ctx, 0), &teamv1.HealthCheckRequest{AgentId: a.cfg.AgentID})
	if codeOf(err) == codes.Unimplemented {
		if _, err := a.info.renew(ctx, a.fetchInfo); err != nil {
			return nil, err
		}
		return agent.Healthy(), nil
	}
	if err != nil {
		return nil, a.failure(ctx, err)
	}
	return &teamv1.Health{
		Healthy: resp.GetHealthy(), Usable: resp.GetUsable(), Members: resp.GetMembers(), Detail: clip(resp.GetDetail()),
	}, nil
}

// Process implements agent.Agent. When the call is canceled, it cancels the task of the peer; the
// Receipt of the error CANCELED names the task and reports whether the peer confirmed.
func (a *Agent) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		p := newProcess(a, newCall(ctx, req, yield))
		defer p.limitSilence(a.cfg.ID, a.cfg.IdleTimeout)()
		err := p.work()
		if p.over(err) { // the context ended after its last check
			err = p.ended(nil)
		}
		if p.refuses(err) {
			p.withdraw(func(ctx context.Context) { p.cancelPeer(ctx, nil) })
		}
		p.finish(err)
	}
}

// outgoing returns a context with the metadata of a call. depth is the depth of the request.
func (a *Agent) outgoing(ctx context.Context, depth int32) context.Context {
	return outgoing(ctx, a.cfg.Token, depthOf(ctx, depth))
}

// failure converts the error of a call. If ctx has ended, it returns the cause.
func (a *Agent) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failure(a.cfg.ID, err)
}
