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

// WithHeader returns a context whose calls carry more headers, over gRPC as metadata. They
// go to every interface that is called; credentials belong into Config, whose headers
// have precedence.
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

// WithExtensions returns a context whose calls activate more extensions of the protocol.
func WithExtensions(ctx context.Context, uris ...string) context.Context {
	return context.WithValue(ctx, extensionsKey{}, slices.Concat(extensionsOf(ctx), uris))
}

func extensionsOf(ctx context.Context) []string {
	uris, _ := ctx.Value(extensionsKey{}).([]string)
	return uris
}
