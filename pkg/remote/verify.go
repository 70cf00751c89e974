package remote

import (
	"strconv"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// CardVerifier verifies cards. Safe for concurrent use.
type CardVerifier interface {
	// Verify returns what somebody who is trusted has signed of a card, which is
	// all that is believed of it, and the id of the key. The error is for operators.
	Verify(card *a2av1.AgentCard) (signed *a2av1.AgentCard, kid string, err error)
}

// verifiedCard reads a card as it is defined now, since that is what signatures
// are over, and believes what was signed of it.
func (a *A2A) verifiedCard(body []byte) (*a2av1.AgentCard, error) {
	card := &a2av1.AgentCard{}
	if err := wire.Unmarshal(body, card); err != nil {
		return nil, unreadableCard(a.cfg.ID, err)
	}
	signed, _, err := a.cfg.Verifier.Verify(card)
	if err != nil {
		return nil, refusedCard(a.cfg.ID, err)
	}
	return signed, nil
}

// refusedCard is the error of a peer whose card is by nobody who is trusted: no call
// is made, and none helps before somebody looks.
func refusedCard(id string, err error) error {
	return &agent.Error{
		Reason: agent.ReasonUnavailable, Code: agent.CodeFailedPrecondition, Fresh: true, Err: err,
		Message: clip("agent " + strconv.Quote(id) + " is not used: " + err.Error() + " (see trusted_keys)"),
	}
}
