package config

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Settings returns a copy of the settings of the server, for server.Config: without those that are secrets, and with paths
// that do not depend on the folder of the file. Without a default agent it is the only team.
func (c *Config) Settings() *teamv1.ServerSettings {
	s := &teamv1.ServerSettings{}
	proto.Merge(s, c.Server.GetServer())
	s.Store, s.StoreListen, s.Encryption, s.Engine, s.DefaultAgent = "", "", nil, nil, c.DefaultAgent()
	if t := s.GetTls(); t != nil {
		t.Cert, t.Key, t.ClientCa = c.optionalPath(t.GetCert()), c.optionalPath(t.GetKey()), c.optionalPath(t.GetClientCa())
	}
	for _, k := range s.GetSigning().GetKeys() {
		k.File = c.optionalPath(k.GetFile())
	}
	for _, i := range s.GetAuth().GetJwt() {
		i.Ca = c.optionalPath(i.GetCa())
	}
	return s
}

// TemporalOf returns how Temporal is reached, with defaults and with paths that do not depend on the folder of the file; nil
// if the store schedules the runs.
func TemporalOf(c *Config) *teamv1.TemporalSettings {
	t := proto.CloneOf(c.Server.GetServer().GetEngine().GetTemporal())
	if t == nil {
		return nil
	}
	t.Namespace, t.TaskQueue = cmp.Or(t.GetNamespace(), "default"), cmp.Or(t.GetTaskQueue(), "team-server")
	if s := t.GetTls(); s != nil {
		s.Ca, s.Cert, s.Key = c.optionalPath(s.GetCa()), c.optionalPath(s.GetCert()), c.optionalPath(s.GetKey())
	}
	return t
}

// DefaultAgent returns the agent that handles calls without a tenant: the configured one, else the only team of the file.
// It returns "" if there is no such agent.
func (c *Config) DefaultAgent() string {
	if id := c.Server.GetServer().GetDefaultAgent(); id != "" {
		return id
	}
	if ids := slices.DeleteFunc(c.TeamIDs(), func(id string) bool { return c.Addition(id) != "" }); len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// TeamIDs returns the ids of the teams, sorted. Without teams, it returns the ids of the agents that are served.
func (c *Config) TeamIDs() []string {
	if teams := c.Server.GetTeams(); len(teams) > 0 {
		return sorted(teams)
	}
	return sorted(c.Used)
}

// optionalPath returns the path of a file, "" if it is not set.
func (c *Config) optionalPath(name string) string {
	if name == "" {
		return ""
	}
	return c.Path(name)
}

// Kind returns the kind of an agent: scripted, grpc, a2a, program or model. An agent that has only
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
	case a.GetProgram() != nil:
		return "program"
	}
	return "model"
}
