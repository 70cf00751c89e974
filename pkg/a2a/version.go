package a2a

import (
	"context"
)

// ProtocolVersion is the version of A2A that the handler implements.
const ProtocolVersion = "1.0"

type versionKey struct{}

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
