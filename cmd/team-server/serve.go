package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/app"
	"github.com/agentteams/team-server/internal/config"
)

func (s *shell) serveCommand() *cobra.Command {
	f := &listenFlags{}
	var file, store string
	c := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Serves the teams of a file",
		Long: "Serves the teams of a file. Refuses to listen beyond loopback without API keys\n" +
			"(server.auth), and to take another port than the one named.",
		Args: usage(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{errors.New("serve needs a file: team-server serve -c team.yaml")}
			}
			if store != "" && store != "memory:" {
				return usageError{fmt.Errorf("--store %s: this store is not supported yet; use memory:", store)}
			}
			return s.serve(c.Context(), file, f)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "the file, or a folder with a team.yaml")
	c.Flags().StringVar(&store, "store", "", "where tasks are kept: memory:")
	f.add(c)
	return c
}

func (s *shell) serve(ctx context.Context, file string, f *listenFlags) error {
	def, err := config.Loader{}.Load(file)
	if err != nil {
		return err
	}
	running, err := app.Serve(ctx, def, f.http, f.grpc, s.log(zapcore.InfoLevel))
	if err != nil {
		return err
	}
	if err := s.ready(running); err != nil {
		return err
	}
	return running.Wait(ctx)
}

// ready says on one line that the server answers, and where.
func (s *shell) ready(r *app.Running) error {
	if s.json() {
		return json.NewEncoder(s.out).Encode(struct {
			Ready bool   `json:"ready"`
			HTTP  string `json:"http"`
			GRPC  string `json:"grpc"`
		}{true, r.HTTP, r.GRPC})
	}
	_, err := fmt.Fprintf(s.out, "ready http=%s grpc=%s\n", r.HTTP, r.GRPC)
	return err
}
