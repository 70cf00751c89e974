// Command reckon estimates what runs need of databases, servers and Temporal: from what a run costs, as measured
// (costs.json), and from the rates that a user expects.
//
//	reckon -in-flight=1000000 -per-second=300
//
// It adds up. Contention, replicas, backups and vacuum are not in it, and a database under load groups more changes into a
// commit than the measured one.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed costs.json
var measured []byte

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reckon:", err)
		os.Exit(2)
	}
}

// costs are what a run costs, by engine ("store" or "temporal"), kind of run, and what it uses.
type costs map[string]map[string]map[string]float64

// expected is what a user expects, and what a database can do.
type expected struct {
	inFlight, perSecond float64
	kinds               map[string]float64 // the part of the runs of each kind
	keep, keepWorkflows time.Duration
	cores, wal, disk    float64 // of a database: processors, bytes per second, bytes
}

func run(args []string, out io.Writer) error {
	var all costs
	if err := json.Unmarshal(measured, &all); err != nil {
		return fmt.Errorf("reading costs.json: %w", err)
	}
	e := expected{}
	f := flag.NewFlagSet("reckon", flag.ContinueOnError)
	f.Float64Var(&e.inFlight, "in-flight", 1_000_000, "runs that have not ended, most of which wait")
	f.Float64Var(&e.perSecond, "per-second", 300, "runs that begin in a second, and as many that end")
	kinds := f.String("kinds", "instant=0.2,question=0.5,three steps=0.3", "the part of the runs of each kind of costs.json")
	f.DurationVar(&e.keep, "keep", 7*24*time.Hour, "how long ended tasks are kept")
	f.DurationVar(&e.keepWorkflows, "keep-workflows", 24*time.Hour, "how long Temporal keeps ended workflows")
	f.Float64Var(&e.cores, "cores", 8, "processors that a database may use")
	f.Float64Var(&e.wal, "wal", 50e6, "bytes of WAL that a database may write in a second")
	f.Float64Var(&e.disk, "disk", 1e12, "bytes that a database may hold")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := e.parseKinds(*kinds, all); err != nil {
		return err
	}
	return e.print(out, all)
}

// parseKinds reads parts of kinds. They must be in the costs of every engine, and together 1.
func (e *expected) parseKinds(text string, all costs) error {
	e.kinds = map[string]float64{}
	sum := 0.0
	for pair := range strings.SplitSeq(text, ",") {
		kind, value, _ := strings.Cut(pair, "=")
		part, err := strconv.ParseFloat(value, 64)
		if err != nil || part < 0 {
			return fmt.Errorf("-kinds: %q is not KIND=PART, with a part from 0 to 1", pair)
		}
		for engine, of := range all {
			if of[kind] == nil {
				return fmt.Errorf("-kinds: costs.json has no %q of the engine %s", kind, engine)
			}
		}
		e.kinds[kind] = part
		sum += part
	}
	if math.Abs(sum-1) > 1e-6 {
		return fmt.Errorf("-kinds: the parts are together %g, not 1", sum)
	}
	return nil
}

// each returns what a run costs on average.
func (e *expected) each(of map[string]map[string]float64, what string) (sum float64) {
	for kind, part := range e.kinds {
		sum += part * of[kind][what]
	}
	return sum
}

// database is what the databases of a subject need.
type database struct{ commits, wal, disk, cores float64 }

// databaseOf returns the need of the databases of the store, or of Temporal.
func (e *expected) databaseOf(of map[string]map[string]float64, subject string, keep time.Duration) database {
	return database{
		commits: e.perSecond * e.each(of, "commits of "+subject),
		wal:     e.perSecond * e.each(of, "WAL of "+subject+", KB") * 1e3,
		disk:    (e.inFlight + e.perSecond*keep.Seconds()) * e.each(of, "disk of "+subject+", KB") * 1e3,
		cores:   e.perSecond * e.each(of, "CPU of the database of "+subject+", ms") / 1e3,
	}
}

// partitions returns how many databases are needed, and because of what.
func (e *expected) partitions(d database) (n int, why string) {
	for _, bound := range []struct {
		why  string
		need float64
	}{{"disk", d.disk / e.disk}, {"WAL", d.wal / e.wal}, {"CPU", d.cores / e.cores}} {
		if needs := max(int(math.Ceil(bound.need)), 1); needs > n {
			n, why = needs, bound.why
		}
	}
	return n, why
}

func (e *expected) print(out io.Writer, all costs) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%.0f runs in flight, %g begin and end in a second\n", e.inFlight, e.perSecond)
	fmt.Fprintln(w, "engine\tof\tdatabases\tbound by\tdisk\tWAL\tcommits\tCPU of databases\tCPU of servers")
	row := func(engine, subject string, d database, servers float64) {
		n, why := e.partitions(d)
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%.2f TB\t%.1f MB/s\t%.0f/s\t%.1f\t%.1f\n", engine, subject, n, why, d.disk/1e12, d.wal/1e6, d.commits, d.cores, servers)
	}
	for _, engine := range []string{"store", "temporal"} {
		of := all[engine]
		row(engine, "team-server", e.databaseOf(of, "the store", e.keep), e.perSecond*e.each(of, "CPU of servers, ms")/1e3)
		if events := e.each(of, "events of Temporal"); events > 0 {
			row(engine, "Temporal", e.databaseOf(of, "Temporal", e.keepWorkflows), e.perSecond*e.each(of, "CPU of Temporal, ms")/1e3)
			fmt.Fprintf(w, "%s\t\t\t\t\t\t%.0f events/s\n", engine, e.perSecond*events)
		}
	}
	return w.Flush()
}
