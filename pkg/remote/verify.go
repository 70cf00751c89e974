package remote

import (
	"strconv"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

// CardVerifier verifies the signatures of cards.
type CardVerifier = a2aclient.Verifier

// refusing wraps the errors of a CardVerifier in refusal.
type refusing struct{ CardVerifier }

// refusal is the error of a CardVerifier.
type refusal struct{ error }

// Verify implements CardVerifier.
func (r refusing) Verify(card *a2av1.AgentCard) (*a2av1.AgentCard, string, error) {
	signed, kid, err := r.CardVerifier.Verify(card)
	if err != nil {
		err = refusal{err}
	}
	return signed, kid, err
}

// refusedCard returns the error for a peer whose card no trusted key has signed. The peer is
// not called, and a retry does not help.
func refusedCard(id string, err error) error {
	return &agent.Error{
		Reason: agent.ReasonUnavailable, Code: agent.CodeFailedPrecondition, Fresh: true, Err: err,
		Message: clip("agent " + strconv.Quote(id) + " is not used: " + err.Error() + " (see trusted_keys)"),
	}
}
