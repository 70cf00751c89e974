package conn

import (
	stdlog "log" //nolint:depguard // net/http takes no other logger
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// ConnectionLog returns a log for failures of connections, which any peer can cause: of each kind the first ten in a
// minute are logged, and then one in a thousand. All failed handshakes are one kind.
func ConnectionLog(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Minute, 10, 1000)
	}))
}

// LogHandshake logs a TLS handshake that has failed.
func LogHandshake(log *zap.Logger, address, why string) {
	log.Warn("a TLS handshake failed", zap.String("address", address), zap.String("error", why))
}

// ConnectionErrors returns a logger for what net/http reports, for example failed TLS handshakes.
func ConnectionErrors(log *zap.Logger) *stdlog.Logger {
	log = ConnectionLog(log)
	return stdlog.New(lineWriter(func(line string) {
		if from, failed := strings.CutPrefix(line, "http: TLS handshake error from "); failed {
			address, why, _ := strings.Cut(from, ": ")
			LogHandshake(log, address, why)
		} else {
			log.Warn("net/http reports a failure", zap.String("report", line))
		}
	}), "", 0)
}

// lineWriter calls itself with each line, without the newline.
type lineWriter func(line string)

func (w lineWriter) Write(b []byte) (int, error) {
	w(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// MaxHeader is the maximum size of the headers of a request, in bytes.
const MaxHeader = 16 << 10

// MaxStreams is the maximum number of streams of a connection with HTTP/2.
const MaxStreams = 128
