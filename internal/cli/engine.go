package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
)

// RegisterAttributes registers the search attributes of workflows with Temporal. Those that are registered stay as they are.
func (s *Shell) RegisterAttributes(ctx context.Context, file string) error {
	def, err := (config.Loader{}).Load(file)
	if err != nil {
		return aboutDotEnv(file, err)
	}
	t := config.TemporalOf(def)
	switch {
	case t == nil:
		return console.Usagef("%s has no server.engine.temporal, with which workflows are searched", file)
	case s.Temporal == nil:
		return errors.New(serve.OtherProgram)
	}
	added, err := s.Temporal.Register(ctx, t)
	if err != nil {
		return fmt.Errorf("registering search attributes in the namespace %s: %w", t.GetNamespace(), err)
	}
	if s.JSON {
		return json.NewEncoder(s.Out).Encode(struct {
			Added []string `json:"added"`
		}{append([]string{}, added...)})
	}
	if len(added) == 0 {
		_, err = fmt.Fprintf(s.Out, "the namespace %s has the search attributes\n", t.GetNamespace())
	} else {
		_, err = fmt.Fprintf(s.Out, "the namespace %s has new search attributes: %s\n", t.GetNamespace(), strings.Join(added, ", "))
	}
	return err
}
