package otlp

import (
	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
)

// LogTo makes the libraries of OpenTelemetry log to log instead of to stderr, in the whole process.
func LogTo(log *zap.Logger) {
	otel.SetLogger(logr.New(sink{log}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry reports an error", zap.Error(err)) }))
}

// sink logs errors and warnings. It leaves out their values, which may be secrets such as headers.
type sink struct{ log *zap.Logger }

// warnings is the level at which the libraries log warnings; what is above says what they do.
const warnings = 1

// Init implements logr.LogSink.
func (sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (sink) Enabled(level int) bool { return level <= warnings }

// Info implements logr.LogSink.
func (s sink) Info(_ int, msg string, _ ...any) {
	s.log.Warn("OpenTelemetry warns", zap.String("what", msg))
}

// Error implements logr.LogSink.
func (s sink) Error(err error, msg string, _ ...any) {
	s.log.Warn("OpenTelemetry reports an error", zap.String("what", msg), zap.Error(err))
}

// WithValues implements logr.LogSink.
func (s sink) WithValues(...any) logr.LogSink { return s }

// WithName implements logr.LogSink.
func (s sink) WithName(string) logr.LogSink { return s }
