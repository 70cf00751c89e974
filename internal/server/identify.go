package server

import (
	"errors"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// identify returns the caller of a call. Without authentication every caller is local/local, which
// has all permissions and every role.
func (s *Chain) identify(in *inbound) (a2a.Caller, error) {
	if s.config.Auth != nil {
		return s.config.Auth.Authenticate(in.request(false))
	}
	if len(in.authorization) > 1 {
		return a2a.Caller{}, unauthenticated("more than one authorization header; send one")
	}
	return a2a.Caller{Account: "local", Principal: "local", Permissions: a2a.EveryPermission, EveryRole: true}, nil
}

// request returns what the caller has shown of itself.
func (in *inbound) request(again bool) auth.Request {
	return auth.Request{Authorization: in.authorization, TLS: in.tls, From: in.addr, Again: again}
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
func (s *Chain) logRefusal(in *inbound, err error) {
	var no *auth.Refusal
	if !errors.As(err, &no) || no.Why == auth.WhyUnknown {
		return
	}
	s.refusals.Warn("caller refused: "+no.Why, zap.String("binding", in.binding), zap.Stringer("address", in.addr),
		zap.String("detail", no.Detail), zap.String("request_id", in.id))
}

func unauthenticated(text string) error {
	return agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "%s", text)
}

// recordSignIn records that the credentials of a call were refused. A call without credentials is not
// recorded.
func (s *Chain) recordSignIn(in *inbound, err error) {
	if len(in.authorization) == 0 && (in.tls == nil || len(in.tls.PeerCertificates) == 0) || agent.AsError(err).Code != agent.CodeUnauthenticated {
		return
	}
	s.config.Refused.Add(audit.Refusal{Account: audit.ServerAccount, Action: "sign-in", Subject: whyRefused(err), Address: auth.Network(in.addr).String()})
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
	r := audit.Refusal{Account: audit.ServerAccount, Action: "denied", Subject: c.method, Address: auth.Network(c.in.addr).String()}
	if c.in.caller != nil {
		r.Account, r.Actor = c.in.caller.Account, c.in.caller.Owner()
	}
	c.chain.config.Refused.Add(r)
}
