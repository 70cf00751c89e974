package a2a

import (
	"context"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// A call carries, in its context, what the bindings know of it besides the request.
type (
	extensionsKey struct{}
	traceKey      struct{}
	cursorKey     struct{}
	versionKey    struct{}
	baseKey       struct{}
	transcriptKey struct{}
)

// WithExtensions returns a context for a call that activates the protocol extensions with these
// URIs, as in the A2A-Extensions header.
func WithExtensions(ctx context.Context, uris ...string) context.Context {
	return context.WithValue(ctx, extensionsKey{}, uris)
}

// ExtensionsOf returns the URIs of the extensions that the call of ctx activates.
func ExtensionsOf(ctx context.Context) []string {
	uris, _ := ctx.Value(extensionsKey{}).([]string)
	return uris
}

// WithTrace returns a context with the trace headers of the caller, which are recorded with the
// task.
func WithTrace(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, traceKey{}, headers)
}

// traceOf returns the headers set by WithTrace.
func traceOf(ctx context.Context) map[string]string {
	headers, _ := ctx.Value(traceKey{}).(map[string]string)
	return headers
}

// WithCursor returns a context for a SendStreamingMessage call that repeats an earlier one, whose
// stream broke after the sequence number after.
func WithCursor(ctx context.Context, after int64) context.Context {
	return context.WithValue(ctx, cursorKey{}, after)
}

// CursorOf returns the sequence number set by WithCursor, or 0.
func CursorOf(ctx context.Context) int64 {
	after, _ := ctx.Value(cursorKey{}).(int64)
	return after
}

// ProtocolVersion is the version of A2A that the handler implements.
const ProtocolVersion = "1.0"

// WithVersion returns a context for a call in a version of the protocol other than
// ProtocolVersion.
func WithVersion(ctx context.Context, version string) context.Context {
	return context.WithValue(ctx, versionKey{}, version)
}

// pushVersion returns the version of the protocol in which the receiver of a push configuration
// is notified: that of the call which creates the configuration. Empty means ProtocolVersion.
func pushVersion(ctx context.Context) string {
	if v := VersionOf(ctx); v != ProtocolVersion {
		return v
	}
	return ""
}

// VersionOf returns the version of the protocol in which the call of ctx was made.
func VersionOf(ctx context.Context) string {
	if v, ok := ctx.Value(versionKey{}).(string); ok {
		return v
	}
	return ProtocolVersion
}

// WithBase returns a context for a call that reached the server under another base URL than that
// in the settings. Cards returned to this call have that URL for the REST and JSON-RPC interfaces.
// An empty url changes nothing.
func WithBase(ctx context.Context, url string) context.Context {
	if url == "" {
		return ctx
	}
	return context.WithValue(ctx, baseKey{}, url)
}

// baseOf returns the URL set by WithBase, or "".
func baseOf(ctx context.Context) string {
	url, _ := ctx.Value(baseKey{}).(string)
	return url
}

// Transcript is what a client that keeps the conversation itself sends along with a message.
type Transcript struct {
	// Earlier holds the messages before the one that is sent, oldest first.
	Earlier []*a2av1.Message
	// Remember says that the context of the message is a conversation of the server: what the agent remembers of it
	// takes the place of Earlier. Otherwise the agent remembers nothing of the context.
	Remember bool
}

// WithTranscript returns a context for a SendMessage or SendStreamingMessage call of such a client. The answer is then always
// a task.
func WithTranscript(ctx context.Context, t Transcript) context.Context {
	return context.WithValue(ctx, transcriptKey{}, &t)
}

// transcriptOf returns what WithTranscript has set, nil without.
func transcriptOf(ctx context.Context) *Transcript {
	t, _ := ctx.Value(transcriptKey{}).(*Transcript)
	return t
}

// forgets reports whether the agent is not to remember the context.
func (t *Transcript) forgets() bool { return t != nil && !t.Remember }
