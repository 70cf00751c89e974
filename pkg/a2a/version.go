package a2a

import (
	"context"
)

// ProtocolVersion is the version of A2A that is spoken.
const ProtocolVersion = "1.0"

type versionKey struct{}

// WithVersion returns a context of a call in another version of the protocol than
// ProtocolVersion.
func WithVersion(ctx context.Context, version string) context.Context {
	return context.WithValue(ctx, versionKey{}, version)
}

// pushVersion is the version that a receiver is told in that the call of ctx names;
// empty is ProtocolVersion.
func pushVersion(ctx context.Context) string {
	if v := VersionOf(ctx); v != ProtocolVersion {
		return v
	}
	return ""
}

// VersionOf returns the version of the protocol that the call of ctx is made in:
// what a caller leaves behind, such as a webhook, is served in it.
func VersionOf(ctx context.Context) string {
	if v, ok := ctx.Value(versionKey{}).(string); ok {
		return v
	}
	return ProtocolVersion
}
