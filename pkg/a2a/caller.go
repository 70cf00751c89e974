package a2a

import (
	"context"
	"slices"
	"strings"
)

// Caller is who makes a call, as authentication established it.
type Caller struct {
	// Account is the security boundary.
	Account string
	// Principal is who acts within it.
	Principal string
	// Manages: it may make, change and delete teams and agents.
	Manages bool
	// Roles that it has: it may answer what tasks of its account ask them.
	Roles []string
	// EveryRole: it has all roles that there are.
	EveryRole bool
}

// Owner is what a caller's tasks are kept under: account/principal.
func (c Caller) Owner() string { return c.Account + "/" + c.Principal }

// AccountOf is the account of an owner.
func AccountOf(owner string) string {
	account, _, _ := strings.Cut(owner, "/")
	return account
}

// Has reports whether it has one of these roles.
func (c Caller) Has(roles []string) bool {
	return c.EveryRole && len(roles) > 0 || slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(c.Roles, r) })
}

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
