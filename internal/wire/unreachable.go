package wire

import "strings"

// What WhyUnreachable says of a server that speaks something else.
const (
	NotHTTP = "it does not speak HTTP"
	NotGRPC = "it does not speak gRPC"
)

// WhyUnreachable says in a few words, without an address, why a server cannot be
// reached. Over gRPC the cause is there as text alone, so that is what is looked at.
func WhyUnreachable(cause error) string {
	for _, known := range [][2]string{
		{"malformed HTTP response", NotHTTP},
		{"readLoopPeekFailLocked", NotHTTP}, // it spoke before it was asked
		{"http2: frame too large", NotGRPC},
		{"no application protocol", NotGRPC},
		{"connection refused", "connection refused"},
		{"actively refused", "connection refused"},
		{"no such host", "no such host"},
		{"produced zero addresses", "no such host"},
		{"network is unreachable", "the network is unreachable"},
		{"no route to host", "no route to the host"},
		{"x509:", "its certificate is not trusted"},
		{"gave HTTP response to HTTPS client", "it does not speak TLS"},
		{"first record does not look like a TLS handshake", "it does not speak TLS"},
		{"context canceled", "interrupted"},
		{"deadline exceeded", "no answer in time"},
		{"i/o timeout", "no answer in time"},
		{"connection reset", "it closed the connection"},
		{"EOF", "it closed the connection"},
	} {
		if strings.Contains(cause.Error(), known[0]) {
			return known[1]
		}
	}
	return "no connection"
}
