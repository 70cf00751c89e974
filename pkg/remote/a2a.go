package remote

import (
	"context"
	"crypto/tls"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// The bindings of A2A, as cards name them.
const (
	BindingGRPC    = a2aclient.GRPC
	BindingREST    = a2aclient.REST
	BindingJSONRPC = a2aclient.JSONRPC
)

// A2AConfig configures an A2A agent. Card is required.
type A2AConfig struct {
	// ID is the agent's id here; it names the agent in errors and in its Info.
	ID string
	// Card is the URL of the agent's card if its path ends in .json, else the URL below
	// which the card is at /.well-known/agent-card.json.
	Card string
	// Token is sent as bearer token to the origin of Card and to Origins. With a Token,
	// interfaces elsewhere are not used.
	Token secret.Secret
	// Tokens are sent in place of Token; nil sends none.
	Tokens secret.Source
	// Origins are additional origins to which Token is sent, as https://host:port or as
	// host:port.
	Origins []string
	// Prefer lists the bindings to use, the preferred one first. Empty means all, in the
	// order of the card.
	Prefer []string
	// Version is the version of A2A to use, 1.0 or 0.3. Empty means 1.0 if the card offers
	// it, else 0.3, which has no gRPC here.
	Version string
	// TLS configures connections with TLS; nil means the configuration of Egress.
	TLS *tls.Config
	// Egress makes the connections to the hosts of Card and Origins; nil means a dialer that allows
	// every address.
	Egress *egress.Dialer
	// Others makes the connections to hosts that only the card names; nil means a dialer that allows
	// public addresses.
	Others *egress.Dialer
	// InfoTTL is how long a card is cached; 0 means 60 s. An error is cached for half of
	// that time.
	InfoTTL time.Duration
	// Idle is the time without an event after which the task is read; 0 means 60 s.
	Idle time.Duration
	// IdleTimeout is the time for which the agent may send nothing new about a task: no event, and no
	// change when the task is read. Then the attempt has failed, and the task is canceled. 0 means no
	// limit.
	IdleTimeout time.Duration
	// CancelWait is the timeout for the end of a canceled task; 0 means 30 s.
	CancelWait time.Duration
	// PollEvery is the first pause between two reads of a task that is not streamed; 0
	// means 1 s. It doubles up to PollMost; 0 means 10 s.
	PollEvery, PollMost time.Duration
	// Verifier verifies the card; nil accepts every card.
	Verifier CardVerifier
	// CostPerTask is the cost of a task in USD, see agent.TaskPricer.
	CostPerTask float64
	// Log receives warnings; nil turns logging off.
	Log *zap.Logger
}

// withDefaults returns c with default values for the fields that are not set.
func (c A2AConfig) withDefaults() A2AConfig {
	setDefault(&c.ID, "remote")
	setDefault(&c.InfoTTL, time.Minute)
	setDefault(&c.Idle, time.Minute)
	setDefault(&c.CancelWait, 30*time.Second)
	setDefault(&c.PollEvery, time.Second)
	setDefault(&c.PollMost, max(10*time.Second, c.PollEvery))
	c.Idle, c.PollEvery, c.PollMost = withinSilence(c.Idle, c.IdleTimeout), withinSilence(c.PollEvery, c.IdleTimeout), withinSilence(c.PollMost, c.IdleTimeout)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// A2A is an agent on a server that speaks A2A 1.0 or 0.3, known by its card. It is safe for
// concurrent use.
type A2A struct {
	cfg   A2AConfig
	peer  peer
	cards *cache[*a2av1.AgentCard]

	mu     sync.Mutex
	link   *link // to the interface in use; guarded by mu
	closed bool  // guarded by mu
}

var (
	_ agent.Agent      = (*A2A)(nil)
	_ agent.Reaper     = (*A2A)(nil)
	_ agent.TaskPricer = (*A2A)(nil)
)

// NewA2A returns an agent, which reads its card at its first call. The error names an
// invalid field of cfg.
func NewA2A(cfg A2AConfig) (*A2A, error) {
	cfg = cfg.withDefaults()
	out, err := newEgress(cfg.Egress)
	if err != nil {
		return nil, err
	}
	others := cfg.Others
	if others == nil {
		if others, err = egress.NewGuarded(); err != nil {
			return nil, err
		}
	}
	p, err := newPeer(cfg, out, others)
	if err != nil {
		return nil, err
	}
	return &A2A{cfg: cfg, peer: p, cards: newCache[*a2av1.AgentCard](cfg.InfoTTL, cfg.InfoTTL/2)}, nil
}

// Close closes the agent's connections. Later calls fail, and so do calls in progress when
// they need a new connection.
func (a *A2A) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	(&http.Client{Transport: a.peer.call.Transport}).CloseIdleConnections()
	if a.link == nil {
		return nil
	}
	l := a.link
	a.link = nil
	return l.client.Close()
}

// Info implements agent.Agent. It describes the agent by its card, which is at most
// A2AConfig.InfoTTL old, with the id of A2AConfig.
func (a *A2A) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	card, err := a.cards.get(ctx, a.fetchCard)
	if err != nil {
		return nil, err
	}
	return infoOf(a.cfg.ID, card), nil
}

// HealthCheck implements agent.Agent. An agent is healthy if its card has an interface that
// can be used and, over gRPC, its health service does not answer NOT_SERVING.
func (a *A2A) HealthCheck(ctx context.Context) (*teamv1.Health, error) {
	if _, err := a.cards.renew(ctx, a.fetchCard); err != nil {
		return nil, err
	}
	l, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if conn := l.client.Conn(); conn != nil {
		return a.health(ctx, conn, l.at.GetTenant())
	}
	return agent.Healthy(), nil
}

// Interface reads the card and returns the interface of it that calls use: its protocol version, such as 1.0, and
// its binding.
func (a *A2A) Interface(ctx context.Context) (version, binding string, err error) {
	l, err := a.connect(ctx)
	if err != nil {
		return "", "", err
	}
	return clip(l.at.GetProtocolVersion()), clip(l.at.GetProtocolBinding()), nil
}

// Process implements agent.Agent. When the call is canceled it cancels the task of the peer;
// the Receipt of the error CANCELED names the task and reports whether the peer confirmed.
func (a *A2A) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		x := newExchange(a, newCall(ctx, req, yield))
		defer x.limitSilence(a.cfg.ID, a.cfg.IdleTimeout)()
		err := x.work()
		if x.over(err) { // the context ended after its last check
			x.nothing = x.nothing || err != nil && agent.AsError(err).Fresh
			err = x.ended(nil)
		}
		if x.refuses(err) && x.bound != nil {
			x.withdraw(func(ctx context.Context) { x.cancelPeer(ctx) })
		}
		x.finish(err)
	}
}

// health asks the gRPC health service of the peer. A peer without one, or that does not know
// the agent, is healthy because it served the card.
func (a *A2A) health(ctx context.Context, conn grpc.ClientConnInterface, tenant string) (*teamv1.Health, error) {
	service := ""
	if tenant != "" {
		service = "team/" + tenant
	}
	token := a.cfg.Token
	if a.cfg.Tokens != nil {
		var err error
		if token, err = a.cfg.Tokens.Token(ctx); err != nil {
			return nil, err
		}
	}
	ctx = metadata.AppendToOutgoingContext(outgoing(ctx, token, agent.Depth(ctx)), "a2a-version", a2aclient.V1)
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	switch {
	case err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING:
		return agent.Unhealthy("not serving"), nil
	case codeOf(err) == codes.Unavailable, ctx.Err() != nil:
		return nil, unreachable(a.cfg.ID, err)
	}
	return agent.Healthy(), nil
}

// link is a client of a peer, with what its card says about calls.
type link struct {
	at        *a2av1.AgentInterface
	streaming bool
	routing   bool     // the peer supports hand-offs
	required  []string // extensions that each call must activate
	client    *a2aclient.Client
}

// extensions returns the URIs of the extensions that a call activates.
func (l *link) extensions(handsOver bool) []string {
	if handsOver && l.routing && !slices.Contains(l.required, routingURI) {
		return append(slices.Clone(l.required), routingURI)
	}
	return l.required
}

// connect returns a link to the best interface of the current card.
func (a *A2A) connect(ctx context.Context) (*link, error) {
	if err := a.checkOpen(); err != nil {
		return nil, err
	}
	card, err := a.cards.need(ctx, a.fetchCard)
	if err != nil {
		return nil, err
	}
	i, err := a.peer.choose(card)
	if err != nil {
		return nil, err
	}
	required, err := a.peer.required(card)
	if err != nil {
		return nil, err
	}
	l := &link{at: i, required: required, streaming: card.GetCapabilities().GetStreaming(), routing: declares(card, routingURI)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed { // in the meantime: a new connection would never be closed
		return nil, a.closedError()
	}
	if old := a.link; old != nil && proto.Equal(old.at, i) {
		l.client = old.client
	} else if l.client, err = a2aclient.New(card, a.peer.card.String(), a.peer.callTo(i)); err != nil {
		return nil, senseless(a.cfg.ID, "has a card with an unusable address", err)
	} else if old != nil {
		_ = old.client.Close() // the agent has moved: calls in progress reattach
	}
	a.link = l
	return l, nil
}

// checkOpen returns an error if the agent was closed.
func (a *A2A) checkOpen() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return a.closedError()
	}
	return nil
}

// closedError returns the error of calls after Close.
func (a *A2A) closedError() error {
	return agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "agent %q was closed", a.cfg.ID)
}
