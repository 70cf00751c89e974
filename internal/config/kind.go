package config

import teamv1 "github.com/agentteams/team-server/gen/team/v1"

// Kind returns the kind of an agent: scripted, grpc, a2a or model. An agent that has only
// instructions is a model agent, because it uses the model of its leader. Nil is a team.
func Kind(a *teamv1.AgentConfig) string {
	switch {
	case a == nil:
		return "team"
	case a.GetScripted() != nil:
		return "scripted"
	case a.GetGrpc() != nil:
		return "grpc"
	case a.GetA2A() != nil:
		return "a2a"
	}
	return "model"
}
