package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/app"
)

func (s *shell) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := app.Version()
			if s.json() {
				return json.NewEncoder(s.out).Encode(map[string]string{"version": v, "go": runtime.Version(), "a2a": "1.0"})
			}
			_, err := fmt.Fprintf(s.out, "team-server %s  A2A 1.0  %s\n", v, runtime.Version())
			return err
		},
	}
}
