package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/examples/demo"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/settings"
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
	// Level is the level of Log, which follows server.log.level of the file; nil if it does not.
	Level *zap.AtomicLevel
	// Say prints a line for the user. It must not be nil.
	Say func(format string, args ...any)

	source *Source
	faults string // why the file is not reloaded, as printed; "" means that it is
}

var _ reporter = (*Dev)(nil)

// Demo returns the configuration that is served without a file.
func Demo() (*config.Config, error) {
	return config.Loader{Files: demo.Files, Loopback: true}.Load("team.yaml")
}

func (d *Dev) load() (*config.Config, error) {
	if d.Path == "" {
		return Demo()
	}
	d.source = &Source{Path: d.Path, DotEnv: d.DotEnv, Loopback: true}
	return d.source.Load()
}

// check returns why dev does not listen on the addresses of a file and the flags.
func (d *Dev) check(def *config.Config) (faults source.Faults) {
	s := settings.WithDefaults(def.Server.GetServer())
	http, grpc := choose("http", d.HTTP, s.GetHttp()), choose("grpc", d.GRPC, s.GetGrpc())
	metrics := choose("metrics", "", cmp.Or(s.GetMetrics(), Off))
	for _, of := range []setting{http, grpc, metrics} {
		if of.value != Off && !Loopback(of.value) {
			faults = append(faults, of.fault(def, fmt.Errorf("dev listens on loopback only, not on %s; write 127.0.0.1:0, or use team-server serve", of.value)))
		}
	}
	for _, c := range collisions(http, grpc, metrics) {
		faults = append(faults, c.of.fault(def, c))
	}
	return faults
}

// Start starts the server, which runs until ctx ends.
func (d *Dev) Start(ctx context.Context) (*Running, error) {
	def, err := d.load()
	if err != nil {
		return nil, err
	}
	setLevel(d.Level, def)
	if faults := d.check(def); len(faults) > 0 {
		return nil, faults
	}
	file := def.Server.GetServer()
	measure, err := startTelemetry(ctx, file, d.Log)
	if err != nil {
		return nil, err
	}
	kept, err := openStore(ctx, cmp.Or(d.Store, store.MemoryURL), def, 0, measure.meter(), d.Log)
	if err != nil {
		return nil, errors.Join(err, measure.close())
	}
	l, err := d.listeners(ctx, file)
	if err != nil {
		return nil, errors.Join(err, measure.close(), kept.Close())
	}
	return startServer(ctx, def, resources{l, kept, measure, notForDev, d.Level}, server.Config{Log: d.Log})
}

func (d *Dev) listeners(ctx context.Context, file *teamv1.ServerSettings) (server.Listeners, error) {
	defaults := settings.WithDefaults(nil)
	h, err := d.listen(ctx, "http", cmp.Or(d.HTTP, file.GetHttp()), defaults.GetHttp())
	if err != nil {
		return server.Listeners{}, err
	}
	grpc := cmp.Or(d.GRPC, file.GetGrpc())
	if grpc == Off {
		return server.Listeners{HTTP: h}, nil
	}
	g, err := d.listen(ctx, "grpc", grpc, defaults.GetGrpc())
	if err != nil {
		return server.Listeners{}, errors.Join(err, h.Close())
	}
	return server.Listeners{HTTP: h, GRPC: g}, nil
}

// listen listens on the configured address. A default port that is in use is replaced by a free
// one.
func (d *Dev) listen(ctx context.Context, flag, configured, byDefault string) (net.Listener, error) {
	if configured != "" {
		return Listen(ctx, flag, configured)
	}
	l, taken, err := listenNear(ctx, flag, byDefault)
	if err == nil && taken != "" {
		d.Say("%s is in use by another program; %s listens on %s instead", taken, flag, l.Addr())
	}
	return l, err
}

// Run reloads the file when it changes. It returns when the server has stopped.
func (d *Dev) Run(ctx context.Context, r *Running) error {
	if d.source == nil {
		return r.Wait()
	}
	return r.Run(ctx, Reloads{Source: d.source, Watch: true, report: d})
}

// refused prints why the file is not reloaded, unless that was already printed.
func (d *Dev) refused(err error, _ []string) {
	if faults := err.Error(); faults != d.faults {
		d.faults = faults
		d.Say("not reloaded; the running agents are unchanged:\n%s", faults)
	}
}

func (d *Dev) applied(to reloaded) {
	d.faults = ""
	switch {
	case !to.same:
		d.Say("reloaded %s: %s", to.file.File, strings.Join(slices.Sorted(maps.Keys(to.file.Used)), ", "))
	case to.fixed:
		d.Say("the faults are fixed; the running agents are unchanged")
	}
	if !to.same && len(to.pending) > 0 {
		d.Say("takes effect at the next start: %s", strings.Join(to.pending, ", "))
	}
}

func (d *Dev) unwatched(text string) { d.Say("%s", text) }

// Banner returns the text that dev prints at start: teams, addresses, and a command to try.
func (d *Dev) Banner(r *Running) string {
	def := r.Agents.Served()
	teams, id := def.TeamIDs(), def.DefaultAgent()
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
		fmt.Fprintf(&b, "  %-9s %s\n", "Team", describe(team, def.Server.GetTeams()[team]))
	}
	fmt.Fprintf(&b, "  %-9s http://%s/\n", "Monitor", r.HTTP)
	grpc := ""
	if r.GRPC != Off {
		grpc = fmt.Sprintf("gRPC %s (tenant %q)   ", r.GRPC, id)
	}
	fmt.Fprintf(&b, "  %-9s %sREST http://%s/%s   JSON-RPC http://%s/%s/rpc\n", "A2A", grpc, r.HTTP, id, r.HTTP, id)
	if def.DefaultAgent() != "" {
		fmt.Fprintf(&b, "  %-9s http://%s/.well-known/agent-card.json   (each team also under /%s/.well-known/agent-card.json)\n", "Card", r.HTTP, id)
	} else {
		fmt.Fprintf(&b, "  %-9s http://%s/%s/.well-known/agent-card.json\n", "Card", r.HTTP, id)
	}
	fmt.Fprintf(&b, "  %-9s http://%s/docs\n", "API docs", r.HTTP)
	fmt.Fprintf(&b, "\n  %-9s team-server run --server http://%s %s \"Write about tides\"\n", "Try", r.HTTP, id)
	if d.Path == "" {
		fmt.Fprintf(&b, "  %-9s team-server init writes one into a folder, in which team-server dev serves it\n", "Own team")
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
	for _, m := range modes.Members(t) {
		members = append(members, cmp.Or(m.ID, m.Agent))
	}
	return fmt.Sprintf("%-12s %-11s %s", id, modes.Name(t), strings.Join(slices.Compact(members), ", "))
}
