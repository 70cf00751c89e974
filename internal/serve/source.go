package serve

import (
	"github.com/agentteams/team-server/internal/config"
)

// Source is where the configuration of a server comes from. It is not safe for concurrent use.
type Source struct {
	// Path is the file or folder.
	Path string
	// DotEnv is the path of a .env file with variables; "" means none.
	DotEnv string
	// Loopback is as in config.Loader.
	Loopback bool

	read *readings // the files that the last Load read
}

// Load reads the configuration, with all files that it refers to. If it is invalid, the error is of type
// source.Faults.
func (s *Source) Load() (*config.Config, error) {
	s.read = &readings{}
	l := config.Loader{Files: s.read, Loopback: s.Loopback}
	if s.DotEnv != "" {
		s.read.record(s.DotEnv)
		env, err := ReadDotEnv(s.DotEnv)
		if err != nil {
			return nil, err
		}
		l.Env = env.Lookup
	}
	return l.Load(s.Path)
}
