package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/stores"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/otlp"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/store"
)

// DevFlags are the flags of dev.
type DevFlags struct {
	// HTTP and GRPC are the addresses to listen on.
	HTTP, GRPC string
	// Store is the URL of the store. DB is short for a SQLite file; only one of them may be set.
	Store, DB string
}

// url returns the URL of the store, or "" if the flags name none.
func (f *DevFlags) url() (string, error) {
	switch {
	case f.DB != "" && f.Store != "":
		return "", console.Usagef("--db FILE is short for --store sqlite:FILE; set only one of them (the variable TEAM_STORE counts as --store)")
	case strings.Contains(f.DB, "://") || store.CheckURL(f.DB) == nil:
		return "", console.Usagef("--db %s: --db takes a file name; use --store for a URL", store.Redacted(f.DB))
	case f.DB != "":
		return store.SQLite + f.DB, nil
	}
	return f.Store, stores.CheckURL("store", f.Store)
}

// dotEnv is the file that commands read variables from; docs/configuration.md lists which do.
const dotEnv = ".env"

// withDotEnv returns a loader that takes variables from the process and from .env in the working
// directory.
func withDotEnv() (config.Loader, error) {
	env, err := serve.ReadDotEnv(dotEnv)
	return config.Loader{Env: env.Lookup}, err
}

// aboutDotEnv gives the faults of a file that .env would mend, if the command read it, a hint that says so. It returns other
// errors as they are.
func aboutDotEnv(file string, err error) error {
	var faults source.Faults
	if !errors.As(err, &faults) {
		return err
	}
	l, bad := withDotEnv()
	if bad != nil {
		return err
	}
	_, bad = l.Load(file)
	var left source.Faults
	errors.As(bad, &left)
	faults = slices.Clone(faults)
	for i, f := range faults {
		if !slices.Contains(left, f) {
			faults[i].Hint = "there is a .env here, which this command does not read; set the variables of the process, for example with: set -a; . ./" + dotEnv + "; set +a"
		}
	}
	return faults
}

// checkAddresses returns a usage error for an invalid address. "" is valid and means the default.
func checkAddresses(ctx context.Context, http, grpc string) error {
	defaults := settings.WithDefaults(nil)
	for _, f := range []struct{ flag, address, example string }{{"http", http, defaults.GetHttp()}, {"grpc", grpc, defaults.GetGrpc()}} {
		if f.flag == "grpc" && f.address == serve.Off {
			continue
		}
		if f.address != "" && !isAddress(ctx, f.address) {
			return console.Usagef("--%s %s: expected HOST:PORT with a port up to 65535, for example %s", f.flag, f.address, f.example)
		}
	}
	return nil
}

// isAddress reports whether text is a HOST:PORT to listen on. The host may be empty, and the port
// may be the name of a service.
func isAddress(ctx context.Context, text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil || port == "" {
		return false
	}
	_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
	return err == nil
}

// Dev serves a file or folder and reloads it when it changes. If path is "", that is ./team.yaml, or the demo if it does
// not exist. It returns when ctx ends, or on SIGHUP unless that is ignored.
func (s *Shell) Dev(ctx context.Context, path string, f DevFlags) error {
	url, err := f.url()
	if err != nil {
		return err
	}
	if err := checkAddresses(ctx, f.HTTP, f.GRPC); err != nil {
		return err
	}
	for flag, address := range map[string]string{"http": f.HTTP, "grpc": f.GRPC} {
		if address != "" && address != serve.Off && !serve.Loopback(address) {
			return console.Usagef("--%s %s: dev listens on loopback only; use --%s 127.0.0.1:0, or team-server serve with server.auth", flag, address, flag)
		}
	}
	if !signal.Ignored(syscall.SIGHUP) { // stop when the terminal is closed, but not under nohup
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	d := &serve.Dev{Path: fileOrDefault(path), DotEnv: dotEnv, HTTP: f.HTTP, GRPC: f.GRPC, Store: url, Say: s.Sayf}
	d.Log, d.Level = s.serverLog(false)
	running, err := d.Start(ctx)
	if err != nil {
		return err
	}
	if !s.JSON {
		fmt.Fprint(s.Talk, d.Banner(running))
	}
	if err := s.ready(running); err != nil {
		return errors.Join(err, running.Stop())
	}
	return d.Run(ctx, running)
}

// Serve serves a file until ctx ends. It reloads the file on SIGHUP, and with watch when it changes.
func (s *Shell) Serve(ctx context.Context, file string, watch bool, c serve.Config) error {
	if err := stores.CheckURL("store", c.Store); err != nil {
		return err
	}
	if err := checkAddresses(ctx, c.HTTP, c.GRPC); err != nil {
		return err
	}
	source := &serve.Source{Path: file}
	def, err := source.Load()
	if err != nil {
		return aboutDotEnv(file, err)
	}
	serve.UseProcessors()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	inJSON := def.Server.GetServer().GetLog().GetFormat() == "json"
	c.Log, c.Level = s.serverLog(inJSON)
	c.Temporal = s.Temporal
	err = s.serve(ctx, def, c, serve.Reloads{Source: source, Signal: hangups, Watch: watch})
	if err == nil || !inJSON || s.JSON || ctx.Err() != nil { // with -o json the error is printed as those of all commands are
		return err
	}
	for _, why := range s.reasons(err) {
		c.Log.Error("the server has failed", zap.String("error", why))
	}
	return loggedError{err}
}

// serve serves a configuration until ctx ends.
func (s *Shell) serve(ctx context.Context, def *config.Config, c serve.Config, reloads serve.Reloads) error {
	running, err := serve.Start(ctx, def, c)
	if err != nil {
		return err
	}
	if err := s.ready(running); err != nil {
		return errors.Join(err, running.Stop())
	}
	return running.Run(ctx, reloads)
}

// reasons returns the text of an error, of faults and of variables one for each.
func (s *Shell) reasons(err error) (all []string) {
	var faults source.Faults
	var variables otlp.VariableErrors
	switch {
	case errors.As(err, &faults):
		for _, f := range faults {
			all = append(all, f.String())
		}
	case errors.As(err, &variables):
		for _, v := range variables {
			all = append(all, v.Error())
		}
	default:
		all = []string{s.words(err)}
	}
	return all
}

// Version prints the version.
func (s *Shell) Version() error {
	v := serve.Version()
	if s.JSON {
		return json.NewEncoder(s.Out).Encode(map[string]string{"version": v, "go": runtime.Version(), "a2a": "1.0"})
	}
	_, err := fmt.Fprintf(s.Out, "team-server %s  A2A 1.0  %s\n", v, runtime.Version())
	return err
}
