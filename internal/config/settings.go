package config

import (
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Settings returns a copy of the settings of the server, for server.Config: without those that are secrets, and with paths
// that do not depend on the folder of the file.
func (c *Config) Settings() *teamv1.ServerSettings {
	s := &teamv1.ServerSettings{}
	proto.Merge(s, c.Server.GetServer())
	s.Store, s.StoreListen, s.Encryption = "", "", nil
	if allow := c.EgressAllow(); len(allow) > 0 {
		s.Egress = &teamv1.EgressSettings{Allow: allow}
	}
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

// optionalPath returns the path of a file, "" if it is not set.
func (c *Config) optionalPath(name string) string {
	if name == "" {
		return ""
	}
	return c.Path(name)
}
