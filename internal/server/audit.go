package server

import (
	"errors"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/pkg/agent"
)

// recordSignIn records that the credentials of a call were refused. A call without credentials is not
// recorded.
func (s *Server) recordSignIn(in *inbound, err error) {
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
	c.server.config.Refused.Add(r)
}
