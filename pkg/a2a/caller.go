package a2a

import "context"

// Caller is who makes a call, as authentication established it.
type Caller struct {
	// Account is the security boundary.
	Account string
	// Principal is who acts within it.
	Principal string
	// Manages: it may make, change and delete teams and agents.
	Manages bool
}

// Owner is what a caller's tasks are kept under: account/principal.
func (c Caller) Owner() string { return c.Account + "/" + c.Principal }

type (
	callerKey     struct{}
	extensionsKey struct{}
	traceKey      struct{}
)

// WithCaller returns a context of a call by c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who makes the call of ctx.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// WithExtensions returns a context of a call that activates the protocol
// extensions of these URIs (A2A-Extensions).
func WithExtensions(ctx context.Context, uris ...string) context.Context {
	return context.WithValue(ctx, extensionsKey{}, uris)
}

// ExtensionsOf returns the URIs of the extensions that the call of ctx activates.
func ExtensionsOf(ctx context.Context) []string {
	uris, _ := ctx.Value(extensionsKey{}).([]string)
	return uris
}

// WithTrace returns a context with the caller's trace headers, which go on record.
func WithTrace(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, traceKey{}, headers)
}

func traceOf(ctx context.Context) map[string]string {
	headers, _ := ctx.Value(traceKey{}).(map[string]string)
	return headers
}
