// Package remote holds the agents that live in other processes: those that
// implement our Agent service, and those that speak A2A.
//
// A remote agent is a leaf. It is sent each message once: as soon as the peer's
// task is known it is recorded (Bound), and whoever continues after a crash
// reattaches to it.
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
)

// Config configures an Agent. Address or Conn is required.
type Config struct {
	// ID is the agent's id here; it names the agent in errors and in its Info.
	ID string
	// Address of the peer, host:port.
	Address string
	// Conn is used instead of Address; it is not closed.
	Conn grpc.ClientConnInterface
	// AgentID is the agent's id there; empty is the peer's default agent.
	AgentID string
	// Token is sent to the peer as bearer token, and to nobody else.
	Token string
	// TLS of the connection to Address; nil is plaintext.
	TLS *tls.Config
	// Egress makes the connection; nil is a dialer that allows every address.
	Egress *egress.Dialer
	// InfoTTL is how long the peer's Info is kept; 0 is 60 s. That
	// there is none is kept half as long.
	InfoTTL time.Duration
	// Idle is after how long without an event the stream is opened anew; 0 is 60 s.
	Idle time.Duration
	// CancelWait bounds the wait for the peer to confirm a cancel; 0 is 30 s.
	CancelWait time.Duration
	// CancelEvery is the pause between two looks at a cancelled task; 0 is 1 s.
	CancelEvery time.Duration
	// Log may be nil.
	Log *zap.Logger
}

func (c Config) withDefaults() Config {
	setDefault(&c.ID, c.AgentID)
	setDefault(&c.ID, "remote")
	setDefault(&c.InfoTTL, time.Minute)
	setDefault(&c.Idle, time.Minute)
	setDefault(&c.CancelWait, 30*time.Second)
	setDefault(&c.CancelEvery, time.Second)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Agent is an agent that implements our Agent service in another process: a
// program's own, or an agent or team of another team-server. Safe for
// concurrent use.
type Agent struct {
	cfg    Config
	client teamv1.AgentServiceClient
	conn   *grpc.ClientConn // nil when it is not ours to close
	info   *cache[*teamv1.AgentInfo]
}

var (
	_ agent.Agent  = (*Agent)(nil)
	_ agent.Reaper = (*Agent)(nil)
)

// New returns the agent. It connects at the first call.
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
	if a.conn, err = dial(cfg.Address, out, cfg.TLS); err != nil {
		return nil, err
	}
	a.client = teamv1.NewAgentServiceClient(a.conn)
	return a, nil
}

// Close closes the connection, if it is the agent's own. Calls under way fail.
func (a *Agent) Close() error {
	if a.conn == nil {
		return nil
	}
	return a.conn.Close()
}

// Info implements agent.Agent: what the peer says, at most Config.InfoTTL old,
// under the id that the agent has here.
func (a *Agent) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	info, err := a.info.get(ctx, a.fetchInfo)
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(info), nil
}

func (a *Agent) fetchInfo(ctx context.Context) (*teamv1.AgentInfo, error) {
	resp, err := a.client.Info(a.outgoing(ctx, 0), &teamv1.InfoRequest{AgentId: a.cfg.AgentID})
	if err != nil {
		return nil, a.failure(ctx, err)
	}
	info := resp.GetInfo()
	if info == nil {
		return nil, senseless(a.cfg.ID, "does not describe itself", nil)
	}
	info.Id = a.cfg.ID
	return info, nil
}

// HealthCheck implements agent.Agent. A peer without that operation is healthy
// when it describes itself.
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

// Process implements agent.Agent. A cancel goes on to the peer; the Receipt of the
// error CANCELED says which task that was and whether the peer has ended it.
func (a *Agent) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		p := newProcess(a, newCall(ctx, req, yield))
		err := p.work()
		if p.over(err) { // the end came between two looks at the context
			err = p.ended(nil)
		}
		p.finish(err)
	}
}

func (a *Agent) outgoing(ctx context.Context, depth int32) context.Context {
	return outgoing(ctx, a.cfg.Token, depthOf(ctx, depth))
}

// failure is the error of a call; the cause of ctx's end where that ended it.
func (a *Agent) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failure(a.cfg.ID, err)
}
