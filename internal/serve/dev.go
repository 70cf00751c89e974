package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/examples/demo"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/server"
)

// Dev is a development server. It serves a file, or the demo without one, and reloads the file when
// it changes.
type Dev struct {
	// Path is the file or folder; "" means the demo.
	Path string
	// DotEnv is the path of a .env file with variables, which is reloaded too; "" means none.
	DotEnv string
	// HTTP and GRPC are the addresses. If "", the addresses in the file apply, else the defaults.
	// If a default port is in use, the next free one is used.
	HTTP, GRPC string
	// Store is the URL of the store; "" means memory, even if the file names a store.
	Store string
	// Log is the log of the server. It must not be nil.
	Log *zap.Logger
	// Say prints a line for the user. It must not be nil.
	Say func(format string, args ...any)

	read   *readings // the files that the last load read
	faults string    // the faults that prevent a reload, as printed; "" means none
}

// Demo returns the configuration that is served without a file.
func Demo() (*config.Config, error) {
	return config.Loader{Files: demo.Files, Loopback: true}.Load("team.yaml")
}

func (d *Dev) load() (*config.Config, error) {
	if d.Path == "" {
		return Demo()
	}
	d.read = &readings{}
	env := Env{}
	if d.DotEnv != "" {
		d.read.record(d.DotEnv)
		var err error
		if env, err = ReadDotEnv(d.DotEnv); err != nil {
			return nil, err
		}
	}
	return config.Loader{Env: env.Lookup, Files: d.read, Loopback: true}.Load(d.Path)
}

// Start starts the server, which runs until ctx ends.
func (d *Dev) Start(ctx context.Context) (*Running, error) {
	def, err := d.load()
	if err != nil {
		return nil, err
	}
	settings := def.Server.GetServer()
	measure, err := startTelemetry(ctx, settings, d.Log)
	if err != nil {
		return nil, err
	}
	kept, err := openStore(ctx, cmp.Or(d.Store, store.MemoryURL), def, 0, measure.meter(), d.Log)
	if err != nil {
		return nil, errors.Join(err, measure.close())
	}
	l, err := d.listeners(ctx, settings)
	if err != nil {
		return nil, errors.Join(err, measure.close(), kept.Close())
	}
	return startServer(ctx, def, kept, measure, server.Config{Listeners: l, Log: d.Log})
}

func (d *Dev) listeners(ctx context.Context, settings *teamv1.ServerSettings) (server.Listeners, error) {
	h, err := d.listen(ctx, "http", cmp.Or(d.HTTP, settings.GetHttp()), DefaultHTTP)
	if err != nil {
		return server.Listeners{}, err
	}
	grpc := cmp.Or(d.GRPC, settings.GetGrpc())
	if grpc == Off {
		return server.Listeners{HTTP: h}, nil
	}
	g, err := d.listen(ctx, "grpc", grpc, DefaultGRPC)
	if err != nil {
		return server.Listeners{}, errors.Join(err, h.Close())
	}
	return server.Listeners{HTTP: h, GRPC: g}, nil
}

// listen listens on the configured address. A default port that is in use is replaced by a free
// one.
func (d *Dev) listen(ctx context.Context, flag, configured, byDefault string) (net.Listener, error) {
	if address := cmp.Or(configured, byDefault); !Loopback(address) {
		return nil, fmt.Errorf("dev listens on loopback only, not on %s.  Use --%s 127.0.0.1:0, or team-server serve with API keys", address, flag)
	}
	if configured != "" {
		return Listen(ctx, flag, configured)
	}
	l, taken, err := ListenNear(ctx, flag, byDefault)
	if err == nil && taken != "" {
		d.Say("%s is in use by another program; %s listens on %s instead", taken, flag, l.Addr())
	}
	return l, err
}

// Run reloads the file when it changes. It returns when the server has stopped.
func (d *Dev) Run(ctx context.Context, r *Running) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if d.Path != "" {
		wg.Go(func() {
			file := r.file
			load := func() *readings {
				file = d.reload(ctx, r, file)
				return d.read
			}
			if err := watch(ctx, d.read, load, d.Say); err != nil {
				d.Say("file changes are not detected: %v", err)
			}
		})
	}
	err := r.Wait()
	cancel()
	wg.Wait()
	return err
}

// reload loads the file and serves it unless it has faults. It returns the configuration that is
// served afterwards.
func (d *Dev) reload(ctx context.Context, r *Running, before *config.Config) *config.Config {
	def, err := d.load()
	switch {
	case err != nil:
		d.refuse("not reloaded; the running agents are unchanged:\n" + err.Error())
		return before
	case def.Same(before):
		if d.faults != "" {
			d.faults = ""
			d.Say("the faults are fixed; the running agents are unchanged")
		}
		return before
	}
	if err := r.Teams.Refresh(ctx, def); err != nil {
		d.refuse("not reloaded; the running agents are unchanged: " + err.Error())
		return before
	}
	d.faults = ""
	d.Say("reloaded %s: %s", def.File, strings.Join(r.Live.IDs(), ", "))
	if !def.SameSettings(before) {
		d.Say("changes under server: take effect at the next start")
	}
	return def
}

// refuse prints why the file is not reloaded, unless that was already printed.
func (d *Dev) refuse(faults string) {
	if faults != d.faults {
		d.faults = faults
		d.Say("%s", faults)
	}
}

// Banner returns the text that dev prints at start: teams, addresses, and a command to try.
func (d *Dev) Banner(r *Running) string {
	teams, id := r.Live.Teams(), r.Live.Default()
	if id == "" && len(teams) > 0 {
		id = teams[0]
	}
	var b strings.Builder
	what := d.Path
	if what == "" {
		what = "demo (scripted model: no API key needed)"
	}
	fmt.Fprintf(&b, "\n  team-server dev   %s\n\n", what)
	for _, team := range teams {
		fmt.Fprintf(&b, "  %-9s %s\n", "Team", describe(team, r.Live.Definition().Server.GetTeams()[team]))
	}
	fmt.Fprintf(&b, "  %-9s http://%s/\n", "Monitor", r.HTTP)
	grpc := ""
	if r.GRPC != Off {
		grpc = fmt.Sprintf("gRPC %s (tenant %q)   ", r.GRPC, id)
	}
	fmt.Fprintf(&b, "  %-9s %sREST http://%s/%s   JSON-RPC http://%s/%s/rpc\n", "A2A", grpc, r.HTTP, id, r.HTTP, id)
	if r.Live.Default() != "" {
		fmt.Fprintf(&b, "  %-9s http://%s/.well-known/agent-card.json   (each team also under /%s/.well-known/agent-card.json)\n", "Card", r.HTTP, id)
	} else {
		fmt.Fprintf(&b, "  %-9s http://%s/%s/.well-known/agent-card.json\n", "Card", r.HTTP, id)
	}
	fmt.Fprintf(&b, "  %-9s http://%s/docs\n", "API docs", r.HTTP)
	fmt.Fprintf(&b, "\n  %-9s team-server run --server http://%s %s \"Write about tides\"\n", "Try", r.HTTP, id)
	if d.Path == "" {
		fmt.Fprintf(&b, "  %-9s copy examples/demo, change it, and: team-server dev FOLDER\n", "Own team")
	}
	fmt.Fprintf(&b, "\n  Development mode: no authentication, loopback only, tasks are stored in %s.\n\n", d.place())
	return b.String()
}

// place describes where tasks are stored.
func (d *Dev) place() string {
	if d.Store == "" || inMemory(d.Store) {
		return "memory (--db team.db keeps them)"
	}
	return store.Redacted(d.Store)
}

// describe returns a line about a team.
func describe(id string, t *teamv1.TeamConfig) string {
	if t == nil {
		return id
	}
	var members []string
	for _, m := range config.Members(t) {
		members = append(members, cmp.Or(m.ID, m.Agent))
	}
	return fmt.Sprintf("%-12s %-11s %s", id, config.Mode(t), strings.Join(slices.Compact(members), ", "))
}
