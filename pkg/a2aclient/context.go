package a2aclient

import (
	"context"
	"net/http"
	"slices"
)

type (
	headerKey     struct{}
	extensionsKey struct{}
)

// WithHeader returns a context for calls with additional headers, over gRPC as metadata. A
// header replaces one of the same name in ctx; those of Config take precedence. The headers
// are sent to whichever interface is called, so credentials belong in Config.
func WithHeader(ctx context.Context, h http.Header) context.Context {
	all := headerOf(ctx).Clone()
	if all == nil {
		all = http.Header{}
	}
	for name, values := range h {
		all[http.CanonicalHeaderKey(name)] = values
	}
	return context.WithValue(ctx, headerKey{}, all)
}

func headerOf(ctx context.Context) http.Header {
	h, _ := ctx.Value(headerKey{}).(http.Header)
	return h
}

// WithExtensions returns a context for calls that activate additional protocol extensions.
func WithExtensions(ctx context.Context, uris ...string) context.Context {
	return context.WithValue(ctx, extensionsKey{}, slices.Concat(extensionsOf(ctx), uris))
}

func extensionsOf(ctx context.Context) []string {
	uris, _ := ctx.Value(extensionsKey{}).([]string)
	return uris
}
