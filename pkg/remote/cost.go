package remote

import (
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// claimed returns the cost that a peer reports, marked as its claim: this server cannot check it. It
// returns nil if the peer reports none.
func claimed(s *teamv1.Spent) *teamv1.Spent {
	if proto.Size(s) == 0 {
		return s
	}
	s = proto.CloneOf(s)
	s.Claimed = true
	return s
}

// TaskCost implements agent.TaskPricer.
func (a *A2A) TaskCost() int64 { return agent.Micros(a.cfg.CostPerTask) }

// TaskCost implements agent.TaskPricer.
func (a *Agent) TaskCost() int64 { return agent.Micros(a.cfg.CostPerTask) }
