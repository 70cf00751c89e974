package call

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// Identify sets the caller of a request, and its TLS and authorization must be set before. A refusal is logged, measured and
// recorded, unless the request needs no key: it has no caller then, and no error.
func (s *Chain) Identify(ctx context.Context, in *Inbound, keyless bool) error {
	caller, err := s.identify(in)
	switch {
	case err == nil:
		in.Caller = &caller
	case keyless:
		return nil
	default:
		s.logRefusal(in, err)
		s.recordSignIn(in, err)
		if s.config.Metrics != nil {
			s.config.Metrics.SignInRefused(ctx, whyRefused(err))
		}
	}
	return err
}

// identify returns the caller of a call. Without authentication every caller is local/local, which
// has all permissions and every role.
func (s *Chain) identify(in *Inbound) (identity.Caller, error) {
	if s.config.Auth != nil {
		return s.config.Auth.Authenticate(in.request(false))
	}
	if len(in.Authorization) > 1 {
		return identity.Caller{}, unauthenticated("more than one authorization header; send one")
	}
	return identity.Caller{Account: "local", Principal: "local", Permissions: identity.EveryPermission, EveryRole: true}, nil
}

// request returns what the caller has shown of itself.
func (in *Inbound) request(again bool) auth.Request {
	return auth.Request{Authorization: in.Authorization, TLS: in.TLS, From: in.Addr, Again: again}
}

// sampledRefusals returns a logger that writes the first lines of each text in ten seconds, and then every
// thousandth.
func sampledRefusals(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, 10*time.Second, 5, 1000)
	}))
}

// logRefusal logs that the credentials of a call were refused. Unknown keys are not logged here: the
// authentication counts them by address.
func (s *Chain) logRefusal(in *Inbound, err error) {
	var no *auth.Refusal
	if !errors.As(err, &no) || no.Why == auth.WhyUnknown {
		return
	}
	s.refusals.Warn("caller refused: "+no.Why, zap.String("binding", in.Binding), zap.Stringer("address", in.Addr),
		zap.String("detail", no.Detail), zap.String("request_id", in.ID))
}

func unauthenticated(text string) error {
	return agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "%s", text)
}

// recordSignIn records that the credentials of a call were refused. A call without credentials is not
// recorded.
func (s *Chain) recordSignIn(in *Inbound, err error) {
	if len(in.Authorization) == 0 && (in.TLS == nil || len(in.TLS.PeerCertificates) == 0) || agent.AsError(err).Code != agent.CodeUnauthenticated {
		return
	}
	s.config.Refused.Add(audit.Refusal{Account: audit.ServerAccount, Action: "sign-in", Subject: whyRefused(err), Address: auth.Network(in.Addr).String()})
}

// whyRefused returns the reason for which credentials were refused, one of few texts.
func whyRefused(err error) string {
	var no *auth.Refusal
	if errors.As(err, &no) {
		return no.Why
	}
	return auth.WhyOther
}

// recordDenied records that a caller lacks the permission for a call.
func (c *call) recordDenied() {
	r := audit.Refusal{Account: audit.ServerAccount, Action: "denied", Subject: c.method, Address: auth.Network(c.in.Addr).String()}
	if c.in.Caller != nil {
		r.Account, r.Actor = c.in.Caller.Account, c.in.Caller.Owner()
	}
	c.chain.config.Refused.Add(r)
}
