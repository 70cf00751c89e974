// Package doctor checks whether a server can run with a configuration: its store, its addresses, its certificates
// and keys, and everything that it calls. Checks use the code with which a server opens and calls these, and
// change nothing.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/agent"
)

// Status is how a check has ended.
type Status string

// The results of checks.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// Check is the result of a check.
type Check struct {
	// Name is what was checked, such as "model fast".
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Text is what was found, and Do what to do about it; Do is "" if there is nothing to do.
	Text string `json:"text"`
	Do   string `json:"do,omitempty"`
}

const (
	// DefaultTimeout is the time limit of each check.
	DefaultTimeout = 15 * time.Second
	// parallel is the maximum number of checks at the same time.
	parallel = 16
	// expiresSoon is how long before its end the expiry of a certificate or key is a warning.
	expiresSoon = 30 * 24 * time.Hour
)

// Config configures Run. Definition is required.
type Config struct {
	Definition *config.Config
	// HTTP, GRPC and Store override those of the file, as the flags of serve do.
	HTTP, GRPC, Store string
	// Role is that of the server; "" means server.RoleAll.
	Role serve.Role
	// Temporal is the client for server.engine.temporal; nil in a program without one.
	Temporal *serve.Temporal
	// Timeout is the time limit of each check; 0 means DefaultTimeout.
	Timeout time.Duration
	// Clock returns the time of this machine; nil means time.Now.
	Clock func() time.Time
	// Disk returns the free bytes on the disk of a folder, see db.Inspection; nil means that of the
	// operating system.
	Disk func(folder string) (free uint64, remote string, err error)
}

// run is a run of all checks.
type run struct {
	Config
	parts build.Parts
}

// job is a part of the checks. It returns at the end of its context.
type job struct {
	name string // what it checks
	do   func(ctx context.Context) []Check
}

// Run makes all checks, several at the same time, and returns their results in a fixed order: the file, the store, the engine,
// the addresses, certificates, keys, issuers of tokens, models, agents, tools, and what is exported to collectors.
func Run(ctx context.Context, c Config) ([]Check, error) {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	parts, err := build.OpenParts(c.Definition)
	if err != nil {
		return nil, err
	}
	defer parts.Close()
	r := &run{Config: c, parts: parts}
	jobs := slices.Concat([]job{{"file", r.file}, {"store", r.store}, {"engine", r.engine}}, r.addresses(), r.certificates(), []job{{"API keys", r.keys}, {"secret files", r.secretFiles}},
		r.issuers(), r.models(), r.agents(), r.tools(), r.export())
	results := make([][]Check, len(jobs))
	var wg sync.WaitGroup
	free := make(chan struct{}, parallel)
	for i, j := range jobs {
		wg.Go(func() {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-free }()
			ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
			defer cancel()
			results[i] = j.do(ctx)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat(results...), nil
}

var errTimeout = errors.New("no answer in time")

func ok(name, format string, args ...any) []Check {
	return []Check{{Name: name, Status: OK, Text: fmt.Sprintf(format, args...)}}
}

func warning(name, do, format string, args ...any) []Check {
	return []Check{{Name: name, Status: Warning, Text: fmt.Sprintf(format, args...), Do: do}}
}

func failed(name, do, format string, args ...any) []Check {
	return []Check{{Name: name, Status: Failed, Text: fmt.Sprintf(format, args...), Do: do}}
}

// textOf returns what a check shows of an error: of an agent or a model the message for callers, and the error of the
// connection.
func textOf(err error) string {
	text := egress.WithoutURL(err).Error()
	var e *agent.Error
	if errors.As(err, &e) {
		text = e.Message
		var u *url.Error
		if errors.As(e.Err, &u) {
			text += " (" + u.Err.Error() + ")"
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 400
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// file returns the notes about a valid file that concern whether it works.
func (r *run) file(context.Context) []Check {
	var all []Check
	for _, w := range config.Warnings(r.Definition) {
		message, hint := source.CutHint(w.Message)
		all = append(all, warning("file", hint, "%s: %s", w.Path, message)...)
	}
	if len(all) > 0 {
		return all
	}
	return ok("file", "%s is valid", r.Definition.File)
}

// engine checks the service that schedules runs.
func (r *run) engine(ctx context.Context) []Check {
	t := config.TemporalOf(r.Definition)
	switch {
	case t == nil:
		return nil
	case r.Temporal == nil:
		return failed("engine", "check and serve the file with team-server-temporal", "%s", serve.OtherProgram)
	}
	found, missing, err := r.Temporal.Check(ctx, t)
	if err != nil {
		return failed("engine", "start Temporal, or correct server.engine.temporal", "%s: %s", t.GetAddress(), textOf(err))
	}
	all := ok("engine", "%s: %s", t.GetAddress(), found)
	if len(missing) > 0 {
		all = append(all, warning("engine", "team-server-temporal engine register "+r.Definition.File, "search attributes that are not registered, so that Temporal does not find workflows by them: %s", strings.Join(missing, ", "))...)
	}
	return all
}

// store checks the store.
func (r *run) store(ctx context.Context) []Check {
	url := cmp.Or(r.Store, r.Definition.StoreURL(), store.MemoryURL)
	if url == store.MemoryURL {
		return warning("store", "set server.store to sqlite:FILE or postgres://USER@HOST/DATABASE", "tasks are stored in memory and are lost when the server stops")
	}
	in := db.Inspection{URL: url, Keys: r.Definition.EncryptionKeys(), Temporal: config.TemporalOf(r.Definition) != nil, Clock: r.Clock, Disk: r.Disk}
	if r.Store == "" || r.Store == r.Definition.StoreURL() {
		in.Listen = r.Definition.StoreListen()
	}
	var all []Check
	for _, f := range db.Inspect(ctx, in) {
		status := map[db.Level]Status{db.OK: OK, db.Warning: Warning, db.Failed: Failed}[f.Level]
		all = append(all, Check{f.Name, status, f.Text, f.Do})
	}
	return all
}

// keys checks the expiry of the API keys of the file.
func (r *run) keys(context.Context) []Check {
	keys := r.Definition.Server.GetServer().GetAuth().GetApiKeys()
	var all []Check
	for _, k := range keys {
		name := "API key " + cmp.Or(k.GetName(), k.GetAccount())
		until, _ := time.Parse(time.RFC3339, k.GetExpires()) // the file was checked
		switch left := until.Sub(r.Clock()); {
		case until.IsZero():
		case left <= 0:
			all = append(all, failed(name, "give its owner a new key, and remove this one", "it expired at %s, so its calls are refused", until.Format(time.RFC3339))...)
		case left < expiresSoon:
			all = append(all, warning(name, "give its owner a new key", "it expires at %s", until.Format(time.RFC3339))...)
		}
	}
	if len(all) == 0 && len(keys) > 0 {
		all = ok("API keys", "none of %d keys of the file expires within 30 days", len(keys))
	}
	return all
}

// secretFiles checks who can read the files with secrets that the file names.
func (r *run) secretFiles(context.Context) []Check {
	files := r.Definition.SecretFiles()
	var all []Check
	for _, file := range files {
		info, err := os.Stat(file)
		switch {
		case err != nil:
			all = append(all, failed("secret file "+file, "check the path and its permissions", "it cannot be read")...)
		case info.Mode().Perm()&0o007 != 0 && otherUsers:
			all = append(all, warning("secret file "+file, "chmod o= it", "it has mode %#o: every user of this machine can open it", info.Mode().Perm())...)
		}
	}
	if len(all) == 0 && len(files) > 0 {
		all = ok("secret files", "%d files, none of which all users of this machine can read", len(files))
	}
	return all
}
