package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/pkg/server"
)

// Reloads says when a running server reads its configuration again, and from where.
type Reloads struct {
	// Source is what the server was started with.
	Source *Source
	// Signal reloads with each value; nil means that nothing does.
	Signal <-chan os.Signal
	// Watch also reloads when a file that was read has changed.
	Watch bool

	report reporter // nil logs
}

// reporter reports reloads to people. *Dev and logReporter implement it. Its methods are called one at a time.
type reporter interface {
	// refused reports why a configuration is not served. fresh are the faults of err to report: after a signal all,
	// otherwise those that were not reported since the last configuration without faults; there may be none.
	refused(err error, fresh []string)
	// applied reports what is served now.
	applied(reloaded)
	// unwatched reports that changes of files are not detected.
	unwatched(text string)
}

// reloaded is what has become of a configuration without faults.
type reloaded struct {
	file *config.Config
	// unchanged says that the files are the same as before, and same that only text without meaning differs, such
	// as comments.
	unchanged, same bool
	// fixed says that the configuration before had faults.
	fixed bool
	// pending are the keys that take effect at the next start.
	pending []string
}

// Run waits until the server has stopped, and reloads its configuration until then.
func (r *Running) Run(ctx context.Context, c Reloads) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.report == nil {
		c.report = &logReporter{r.log}
	}
	l := &reloader{Reloads: c, r: r, file: r.file, read: c.Source.read.recorded(), known: map[string]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		say := func(format string, args ...any) { c.report.unwatched(fmt.Sprintf(format, args...)) }
		load := func(signaled bool) *readings {
			l.reload(ctx, signaled)
			return c.Source.read
		}
		watch(ctx, watching{read: c.Source.read, load: load, signal: c.Signal, files: c.Watch, say: say})
	})
	err := r.Wait()
	cancel()
	wg.Wait()
	return err
}

// reloader reloads the configuration of a running server. It is not safe for concurrent use.
type reloader struct {
	Reloads
	r     *Running
	file  *config.Config    // that is served
	read  map[string]string // the fingerprints of its files, by path
	known map[string]bool   // the faults that were reported since the last configuration without any
}

// reload reads the configuration, and serves it unless it has faults. signaled says that a person asked for it.
func (l *reloader) reload(ctx context.Context, signaled bool) {
	file, err := l.Source.Load()
	if err == nil {
		err = l.r.apply(ctx, file, l.file)
	}
	if err != nil {
		if ctx.Err() == nil { // else the server stops
			l.refuse(ctx, err, signaled)
		}
		return
	}
	read := l.Source.read.recorded()
	to := reloaded{
		file: file, same: file.Same(l.file), unchanged: maps.Equal(read, l.read) && file.Same(l.file), fixed: len(l.known) > 0, pending: pending(l.r.file, file, l.r.without),
	}
	l.file, l.read, l.known = file, read, map[string]bool{}
	if to.unchanged {
		l.r.reloads.Ended(ctx, metrics.ReloadUnchanged)
	} else {
		l.r.reloads.Ended(ctx, metrics.ReloadApplied)
		l.r.records.add(ctx, "server.reload", file)
	}
	l.report.applied(to)
}

// refuse reports why a configuration is not served.
func (l *reloader) refuse(ctx context.Context, err error, signaled bool) {
	l.r.reloads.Ended(ctx, metrics.ReloadRefused)
	var fresh []string
	for _, fault := range faultsOf(err) {
		if signaled || !l.known[fault] {
			l.known[fault] = true
			fresh = append(fresh, fault)
		}
	}
	l.report.refused(err, fresh)
}

// faultsOf returns the faults of a configuration, each on one line with its place.
func faultsOf(err error) []string {
	var faults source.Faults
	if !errors.As(err, &faults) {
		return []string{strings.Join(strings.Fields(err.Error()), " ")}
	}
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.String()
	}
	return texts
}

// apply serves a file in place of the one before: all of it, or nothing if the error is not nil.
func (r *Running) apply(ctx context.Context, file, before *config.Config) error {
	apply, err := r.server.Prepare(server.Config{Settings: settingsOf(file, r.without), Loopback: file.Loopback()})
	if err != nil {
		return err
	}
	if !file.Same(before) {
		if err := r.Agents.Refresh(ctx, file); err != nil {
			return err
		}
	}
	apply()
	setLevel(r.level, file)
	return nil
}

// logReporter reports reloads in the log.
type logReporter struct{ log *zap.Logger }

func (p *logReporter) refused(_ error, fresh []string) {
	for _, fault := range fresh {
		p.log.Error("configuration not reloaded; the previous one is still served", zap.String("fault", fault))
	}
}

func (p *logReporter) applied(to reloaded) {
	of := []zap.Field{zap.String("file", to.file.File), zap.String("sha256", to.file.Digest()), zap.String("files_sha256", to.file.FilesDigest())}
	switch {
	case to.unchanged && to.fixed:
		p.log.Info("the faults of the configuration are fixed; it is the one that is served", of...)
	case to.unchanged:
		p.log.Info("configuration unchanged", of...)
	default:
		p.log.Info("configuration reloaded", of...)
		warnUnheld(to.file, p.log)
	}
	if len(to.pending) > 0 {
		p.log.Warn("takes effect at the next start: "+strings.Join(to.pending, ", "), of...)
	}
}

func (p *logReporter) unwatched(text string) { p.log.Warn(text) }
