package app

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"

	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/config"
)

// Dev serves a file, a folder or, without a path, the demo on this machine, and
// reloads it when it changes, until ctx ends.
func (s *Shell) Dev(ctx context.Context, path, http, grpc string) error {
	env, err := ReadDotEnv(".env")
	if err != nil {
		return err
	}
	d := &Dev{Path: path, Env: env, HTTP: http, GRPC: grpc, Log: s.log(zapcore.InfoLevel), Say: s.sayf}
	running, err := d.Start(ctx)
	if err != nil {
		return err
	}
	if !s.JSON {
		fmt.Fprint(s.Talk, d.Banner(running))
	}
	if err := s.ready(running); err != nil {
		return err
	}
	return d.Run(ctx, running)
}

// Serve serves a file until ctx ends.
func (s *Shell) Serve(ctx context.Context, file, http, grpc string) error {
	def, err := config.Loader{}.Load(file)
	if err != nil {
		return err
	}
	running, err := Serve(ctx, def, http, grpc, s.log(zapcore.InfoLevel))
	if err != nil {
		return err
	}
	if err := s.ready(running); err != nil {
		return err
	}
	return running.Wait()
}

// Version prints the version.
func (s *Shell) Version() error {
	v := Version()
	if s.JSON {
		return json.NewEncoder(s.Out).Encode(map[string]string{"version": v, "go": runtime.Version(), "a2a": "1.0"})
	}
	_, err := fmt.Fprintf(s.Out, "team-server %s  A2A 1.0  %s\n", v, runtime.Version())
	return err
}
