package doctor

import (
	"context"
	"errors"

	"github.com/agentteams/team-server/internal/otlp"
	"github.com/agentteams/team-server/internal/wire"
)

// export checks the variables of OpenTelemetry, and that the collectors accept what is exported. A server works
// without them.
func (r *run) export() (jobs []job) {
	settings, err := otlp.Read()
	var variables otlp.VariableErrors
	if errors.As(err, &variables) {
		return []job{{"environment", func(context.Context) (all []Check) {
			for _, err := range variables {
				all = append(all, failed("environment", "", "%s", err)...) // which says what to do
			}
			return all
		}}}
	}
	for _, s := range settings.Signals() {
		name := "export of " + s.Name
		jobs = append(jobs, job{name, func(ctx context.Context) []Check {
			const do = "start the collector, or correct the variables OTEL_EXPORTER_OTLP_…; a server runs, but what it would export is lost"
			err := s.Probe(ctx)
			if err == nil {
				return ok(name, "the collector at %s accepts them", s.Collector)
			}
			if refusal := wire.RefusalOf(err); refusal != "" {
				return warning(name, do, "the collector at %s does not accept them: %s", s.Collector, refusal)
			}
			return warning(name, do, "the collector at %s cannot be reached: %s", s.Collector, wire.WhyUnreachable(err))
		}})
	}
	return jobs
}
