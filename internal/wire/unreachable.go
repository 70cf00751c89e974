package wire

import (
	"crypto/x509"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Results of WhyUnreachable for a server that speaks another protocol.
const (
	NotHTTP = "it does not speak HTTP"
	NotGRPC = "it does not speak gRPC"
)

// NotAllowed is the result of WhyUnreachable for a server whose address this server does not connect
// to; notAllowed ends the text of the error.
const (
	NotAllowed = "address not allowed"
	notAllowed = " is not public and is not in server.egress.allow: " + NotAllowed
)

// Closed is the result of WhyUnreachable for a server that closed the connection without
// an answer. A gRPC server that is sent an HTTP/1 request does that, and the reset of the
// connection may overtake what would tell that it speaks gRPC.
const Closed = "it closed the connection"

// WhyUnreachable describes in a few words, without an address, why a server cannot be
// reached. An error of gRPC has its cause only as text, so the text is matched.
func WhyUnreachable(cause error) string {
	if cause == nil {
		return "no connection"
	}
	for _, known := range [][2]string{
		{notAllowed, NotAllowed},
		{"malformed HTTP ", NotHTTP},        // response, version or status code
		{"readLoopPeekFailLocked", NotHTTP}, // it sent data before the request
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
		{"connection reset", Closed},
		{"broken pipe", Closed},
		{"server closed idle connection", Closed},
		{"use of closed network connection", Closed}, // by the HTTP client, as the server sent data before the request
		{"EOF", Closed},
	} {
		if strings.Contains(cause.Error(), known[0]) {
			return known[1]
		}
	}
	return "no connection"
}

// IsUnknownAuthority reports whether a server cannot be reached because the authority that has signed its certificate
// is not trusted. As in WhyUnreachable, the text is matched.
func IsUnknownAuthority(cause error) bool {
	return cause != nil && strings.Contains(cause.Error(), x509.UnknownAuthorityError{}.Error())
}

// RefusalOf returns the code with which a gRPC server has refused a call, or "" if err means that it has not answered.
func RefusalOf(err error) string {
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return ""
	default:
		return code.String()
	}
}

// IsOversized reports whether a call over gRPC failed because the answer is larger than the caller
// accepts. The library has no error of its own for that, so the text is matched.
func IsOversized(st *status.Status) bool {
	return st.Code() == codes.ResourceExhausted && InfoOf(st) == nil && strings.Contains(st.Message(), "received message larger than max")
}
