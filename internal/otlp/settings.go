package otlp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
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
	queueVar           = "OTEL_BSP_MAX_QUEUE_SIZE"
	attributesVar      = "OTEL_RESOURCE_ATTRIBUTES"
)

// spanLimitVars are limits of what spans have.
var spanLimitVars = []string{
	"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
	"OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
}

// Limits of values.
const (
	maxQueue        = 1_000_000 // spans; room for all of them is allocated at the start
	maxMilliseconds = 3_600_000 // an hour
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
		Spans:   strings.EqualFold(value(tracesVar), "otlp") || value(tracesVar) == "" && value(endpointVar)+value(tracesEndpointVar) != "",
		Metrics: strings.EqualFold(value(metricsVar), "otlp"),
	}
	if s.Spans || value(tracesVar) != "" && !strings.EqualFold(value(tracesVar), "none") { // also for an exporter that is not supported
		c.sampler()
		for _, name := range strings.Split(value(propagatorsVar), ",") {
			c.check(propagatorsVar, slices.Contains([]string{"", "tracecontext", "baggage", "none"}, strings.TrimSpace(name)), "tracecontext")
		}
		c.milliseconds("OTEL_BSP_SCHEDULE_DELAY")
		c.milliseconds("OTEL_BSP_EXPORT_TIMEOUT")
		queue := c.number(queueVar, 1, maxQueue, sdktrace.DefaultMaxQueueSize)
		c.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, queue, 0)
		for _, name := range spanLimitVars {
			c.number(name, -1, math.MaxInt32, 0) // below 0 means no limit
		}
		c.exporter("TRACES_")
	}
	if s.Metrics || value(metricsVar) != "" && !strings.EqualFold(value(metricsVar), "none") {
		c.milliseconds("OTEL_METRIC_EXPORT_INTERVAL")
		c.milliseconds("OTEL_METRIC_EXPORT_TIMEOUT")
		c.exporter("METRICS_")
	}
	if s != (Settings{}) {
		c.attributes()
	}
	if len(c.faults) > 0 {
		return Settings{}, VariableErrors(c.faults)
	}
	return s, nil
}

// VariableErrors are the errors of variables, each with the name of its variable.
type VariableErrors []error

// Error returns the errors, each on a line.
func (e VariableErrors) Error() string { return errors.Join(e...).Error() }

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

// milliseconds checks that a variable is unset or a number of milliseconds.
func (c *checks) milliseconds(name string) { c.number(name, 1, maxMilliseconds, 0) }

// number returns the value of a variable, otherwise if it is unset or not a number from least to most.
func (c *checks) number(name string, least, most, otherwise int) int {
	if value(name) == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value(name))
	if err != nil || n < least || n > most {
		c.check(name, false, fmt.Sprintf("a number from %d to %d", least, most))
		return otherwise
	}
	return n
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
		c.milliseconds(prefix + "TIMEOUT")
		c.endpoint(prefix + "ENDPOINT")
		c.headers(prefix + "HEADERS")
		c.certificates(prefix)
	}
}

// certificates checks the files of a form of the variables: certificates of authorities, and a certificate with its key.
func (c *checks) certificates(prefix string) {
	if path := value(prefix + "CERTIFICATE"); path != "" {
		b, err := readFile(path)
		c.check(prefix+"CERTIFICATE", err == nil && x509.NewCertPool().AppendCertsFromPEM(b), "the name of a file with certificates in PEM")
	}
	certVar, keyVar := prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY"
	if value(certVar) == "" && value(keyVar) == "" {
		return
	}
	if value(certVar) == "" || value(keyVar) == "" {
		c.faults = append(c.faults, fmt.Errorf("of the environment variables %s and %s only one is set; set both, or unset both", certVar, keyVar))
		return
	}
	cert, err := readFile(value(certVar))
	c.check(certVar, err == nil, "the name of a file with a certificate in PEM")
	key, keyErr := readFile(value(keyVar))
	c.check(keyVar, keyErr == nil, "the name of a file with a private key in PEM")
	if err == nil && keyErr == nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			c.faults = append(c.faults, fmt.Errorf("the files that the environment variables %s and %s name are not a certificate and its private key in PEM: %w", certVar, keyVar, err))
		}
	}
}

// readFile reads a regular file: reading another may never end.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return os.ReadFile(path) //nolint:gosec // the user names the file
}

func (c *checks) endpoint(name string) {
	if value(name) == "" {
		return
	}
	u, err := url.Parse(value(name))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery+u.Fragment != "" {
		c.faults = append(c.faults, fmt.Errorf("the environment variable %s is not an address of a collector; write http://HOST:PORT or, with TLS, https://HOST:PORT, "+
			"without a path, for example http://127.0.0.1:4317; keys belong in OTEL_EXPORTER_OTLP_HEADERS", name)) // it may have a password
	}
}

// attributes checks the attributes of all that is exported.
func (c *checks) attributes() {
	if _, err := resource.New(context.Background(), resource.WithFromEnv()); err != nil {
		c.faults = append(c.faults, fmt.Errorf("the environment variable %s is not a list of attributes; write NAME=VALUE,NAME=VALUE", attributesVar))
	}
}

// headerName matches a name of a header, as RFC 9110 defines it.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func (c *checks) headers(name string) {
	for _, one := range strings.Split(value(name), ",") {
		key, text, ok := strings.Cut(one, "=")
		_, err := url.PathUnescape(text)
		if value(name) != "" && (!ok || !headerName.MatchString(strings.TrimSpace(key)) || err != nil) {
			c.faults = append(c.faults, fmt.Errorf("the environment variable %s is not a list of headers; write NAME=VALUE,NAME=VALUE, each VALUE percent-encoded", name)) // it has secrets
			return
		}
	}
}
