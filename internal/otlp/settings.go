package otlp

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Settings say what is exported, according to the variables of the environment that OpenTelemetry defines. The
// others of these variables are read where they apply; Read has checked them.
type Settings struct {
	// Spans and Metrics say whether they are exported.
	Spans, Metrics bool
}

// Names of variables.
const (
	disabledVar        = "OTEL_SDK_DISABLED"
	tracesVar          = "OTEL_TRACES_EXPORTER"
	metricsVar         = "OTEL_METRICS_EXPORTER"
	logsVar            = "OTEL_LOGS_EXPORTER"
	propagatorsVar     = "OTEL_PROPAGATORS"
	samplerVar         = "OTEL_TRACES_SAMPLER"
	samplerArgVar      = "OTEL_TRACES_SAMPLER_ARG"
	endpointVar        = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVar  = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	metricsEndpointVar = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
)

// Read reads the settings from the environment. Without any of the variables nothing is exported. The error names
// every variable with a value that is not supported.
func Read() (Settings, error) {
	if strings.EqualFold(value(disabledVar), "true") {
		return Settings{}, nil
	}
	c := checks{}
	c.oneOf(disabledVar, "true", "false")
	c.oneOf(tracesVar, "otlp", "none")
	c.oneOf(metricsVar, "otlp", "none")
	c.oneOf(logsVar, "none")
	s := Settings{
		Spans:   value(tracesVar) == "otlp" || value(tracesVar) == "" && value(endpointVar)+value(tracesEndpointVar) != "",
		Metrics: value(metricsVar) == "otlp",
	}
	if s.Spans {
		c.sampler()
		for _, name := range strings.Split(value(propagatorsVar), ",") {
			c.check(propagatorsVar, slices.Contains([]string{"", "tracecontext", "baggage", "none"}, strings.TrimSpace(name)), "tracecontext")
		}
		for _, name := range []string{"SCHEDULE_DELAY", "EXPORT_TIMEOUT", "MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE"} {
			c.number("OTEL_BSP_" + name)
		}
		c.exporter("TRACES_")
	}
	if s.Metrics {
		c.number("OTEL_METRIC_EXPORT_INTERVAL")
		c.number("OTEL_METRIC_EXPORT_TIMEOUT")
		c.exporter("METRICS_")
	}
	return s, errors.Join(c.faults...)
}

// value returns the value of a variable without surrounding spaces.
func value(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// checks collects faults.
type checks struct{ faults []error }

// check adds a fault unless ok. The fault has the value of the variable, which must not be a secret.
func (c *checks) check(name string, ok bool, want string) {
	if !ok {
		c.faults = append(c.faults, fmt.Errorf("the environment variable %s is %q, which is not supported; use %s, or unset it", name, value(name), want))
	}
}

// oneOf checks that a variable is unset or has one of the values.
func (c *checks) oneOf(name string, values ...string) {
	c.check(name, value(name) == "" || slices.Contains(values, strings.ToLower(value(name))), strings.Join(values, " or "))
}

// number checks that a variable is unset or a number above 0.
func (c *checks) number(name string) {
	n, err := strconv.Atoi(value(name))
	c.check(name, value(name) == "" || err == nil && n > 0, "a number above 0")
}

// sampler checks which traces are sampled.
func (c *checks) sampler() {
	c.oneOf(samplerVar, "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
	if strings.HasSuffix(strings.ToLower(value(samplerVar)), "traceidratio") && value(samplerArgVar) != "" {
		ratio, err := strconv.ParseFloat(value(samplerArgVar), 64)
		c.check(samplerArgVar, err == nil && ratio >= 0 && ratio <= 1, "a number from 0 to 1")
	}
}

// exporter checks the variables of the exporter of a signal. Each also has a form for all signals.
func (c *checks) exporter(signal string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_" + signal} {
		c.oneOf(prefix+"PROTOCOL", "grpc")
		c.oneOf(prefix+"COMPRESSION", "gzip", "none")
		c.oneOf(prefix+"INSECURE", "true", "false")
		c.number(prefix + "TIMEOUT")
		c.endpoint(prefix + "ENDPOINT")
		c.headers(prefix + "HEADERS")
		for _, file := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
			if path := value(prefix + file); path != "" {
				_, err := os.Stat(path)
				c.check(prefix+file, err == nil, "the name of a file that exists")
			}
		}
	}
}

func (c *checks) endpoint(name string) {
	if value(name) == "" {
		return
	}
	u, err := url.Parse(value(name))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		c.faults = append(c.faults, fmt.Errorf("the environment variable %s is not an address of a collector; write http://HOST:PORT or, with TLS, https://HOST:PORT, "+
			"for example http://127.0.0.1:4317; keys belong in OTEL_EXPORTER_OTLP_HEADERS", name)) // it may have a password
	}
}

func (c *checks) headers(name string) {
	for _, one := range strings.Split(value(name), ",") {
		key, text, ok := strings.Cut(one, "=")
		_, err := url.PathUnescape(text)
		if value(name) != "" && (!ok || strings.TrimSpace(key) == "" || err != nil) {
			c.faults = append(c.faults, fmt.Errorf("the environment variable %s is not a list of headers; write NAME=VALUE,NAME=VALUE, each VALUE percent-encoded", name)) // it has secrets
			return
		}
	}
}
