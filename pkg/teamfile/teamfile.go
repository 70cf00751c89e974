// Package teamfile builds the agents and teams of a configuration file in a Go program, and gives them the parts that the
// program brings: tools, agents and schedulers. In the file, a part of the program is written program: {}.
//
//	f, err := teamfile.Load("team.yaml", teamfile.Config{Tools: map[string]agent.Tool{"height": height{}}})
//	if err != nil {
//		return err // with all faults of the file, and their lines
//	}
//	defer f.Close()
//	s, err := server.New(f.ServerConfig())
//	if err != nil {
//		return err
//	}
//	return s.Serve(ctx)
//
// [File.Agent] returns an agent or team for calls without a server. Package teamfiletest plays the tests of such a file.
package teamfile

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
)

// Config is what a program brings to a file, by the names in the file. Load returns a fault for each part that the file
// leaves to the program and that is missing here, and for each that is here and not in the file. The zero value brings
// nothing.
type Config struct {
	// Tools are tools of agents. Models know a tool by the name in its Spec.
	Tools map[string]agent.Tool
	// Agents are agents by their ids.
	Agents map[string]agent.Agent
	// Schedulers are the schedulers of teams, by the ids of the teams.
	Schedulers map[string]team.Scheduler
	// Store stores tasks, boards, and the definitions with which runs have begun; see server.OpenStore. The default is the
	// memory of this process, until Close. server.store of the file is not used.
	Store server.Store
	// Log receives warnings; nil discards them.
	Log *zap.Logger
}

// program returns the parts for the loader of the file.
func (c Config) program() *config.Program {
	return &config.Program{Agents: c.Agents, Tools: c.Tools, Schedulers: c.Schedulers}
}

// File is a configuration file whose agents and teams were built. Its methods are safe for concurrent use. Close it when
// nothing uses the agents.
type File struct {
	def    *config.Config
	agents *manage.Registry
	store  server.Store
	own    server.Store // the default store, which Close closes; nil if Config has one
	log    *zap.Logger
	closed sync.Once
}

// Load reads a configuration file, or the team.yaml of a folder, builds its agents and teams, and starts the tools that they
// use. It reads environment variables that the file names, and no .env. If the file is invalid, the error has a line for each
// fault, with its place.
func Load(path string, c Config) (*File, error) {
	def, err := config.Loader{Program: c.program()}.Load(path)
	if err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	f := &File{def: def, store: c.Store, log: c.Log}
	if f.store == nil {
		if f.own, err = server.OpenStore(context.Background(), "memory:", server.StoreConfig{Settings: def.Settings(), Log: c.Log.Named("store")}); err != nil {
			return nil, err
		}
		f.store = f.own
	}
	if err := f.build(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// build builds the agents.
func (f *File) build() (err error) {
	f.agents, err = manage.New(manage.Config{
		Store: f.store, Definitions: f.store, Boards: f.store, File: f.def, Clock: f.store.Now, Log: f.log.Named("agents"),
	})
	if err != nil {
		return err
	}
	return f.agents.Refresh(context.Background(), nil)
}

// Agent returns an agent or team of the file, for use without a server; see agent.Reply. The error is AGENT_NOT_FOUND.
func (f *File) Agent(id string) (agent.Agent, error) { return f.agents.Get(id) }

// ServerConfig returns the configuration of a server for the agents and teams of the file, with the settings under server in
// the file. The caller may change it before it calls server.New or server.NewLocal. Runs continue with the definition with
// which they began, also if another process loads a changed file with the same store.
func (f *File) ServerConfig() server.Config {
	return server.Config{
		Agents: f.agents, Boards: f.agents, Definitions: f.agents, ExtendedCards: f.agents.ExtendedCards,
		Settings: f.def.Settings(), Store: f.store, Log: f.log,
	}
}

// Close stops the tools, and closes connections and the default store. Agents, tools and schedulers of the program are the
// program's to close. Call it after Serve has returned. Further calls do nothing.
func (f *File) Close() (err error) {
	f.closed.Do(func() {
		if f.agents != nil {
			err = f.agents.Close()
		}
		if f.own != nil {
			err = errors.Join(err, f.own.Close())
		}
	})
	return err
}
