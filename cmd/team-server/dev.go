package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/app"
)

// listenFlags are where a server listens.
type listenFlags struct{ http, grpc string }

func (f *listenFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.http, "http", "", "address of REST, JSON-RPC and cards; default "+app.DefaultHTTP)
	c.Flags().StringVar(&f.grpc, "grpc", "", "address of gRPC; default "+app.DefaultGRPC)
}

func (s *shell) devCommand() *cobra.Command {
	f := &listenFlags{}
	c := &cobra.Command{
		Use:   "dev [FILE|FOLDER]",
		Short: "Serves teams on this machine and reloads them when their file changes",
		Long: "Serves the teams of a file, or of the team.yaml in a folder; without one a demo\n" +
			"that needs no key. Loopback only, no authentication, tasks are kept in memory.\n" +
			"Variables may stand in .env.",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			return s.dev(c.Context(), path, f)
		},
	}
	f.add(c)
	return c
}

func (s *shell) dev(ctx context.Context, path string, f *listenFlags) error {
	env, err := app.ReadDotEnv(".env")
	if err != nil {
		return err
	}
	d := &app.Dev{Path: path, Env: env, HTTP: f.http, GRPC: f.grpc, Log: s.log(zapcore.InfoLevel), Say: s.sayf}
	running, err := d.Start(ctx)
	if err != nil {
		return err
	}
	if !s.json() {
		fmt.Fprint(s.talk, d.Banner(running))
	}
	if err := s.ready(running); err != nil {
		return err
	}
	return d.Run(ctx, running)
}
