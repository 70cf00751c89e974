package cli

import (
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
)

// dotEnv is the file that dev, run, validate and test read variables from. serve does not read it.
const dotEnv = ".env"

// withDotEnv returns a loader that takes variables from the process and from .env in the working
// directory.
func withDotEnv() (config.Loader, error) {
	env, err := serve.ReadDotEnv(dotEnv)
	return config.Loader{Env: env.Lookup}, err
}
