package client

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/wire"
)

// Kinds of errors.
var (
	// ErrUnreachable: the server cannot be reached at all.
	ErrUnreachable = errors.New("cannot reach the server")
	// ErrAddress: what should be an address is none.
	ErrAddress = errors.New("no address")
)

// said is an error in words for a person; what it is of is not part of them.
type said struct {
	text string
	of   error
	code codes.Code // that the server answered with
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.of }

func noAddress(target, expected string) error {
	return &said{text: fmt.Sprintf("%q is no address; expected %s", target, expected), of: ErrAddress}
}

// unreachable says why an address cannot be reached. Over gRPC the cause is there
// as text alone, so that is what is looked at.
func unreachable(address string, cause error) error {
	why := "no connection"
	for _, known := range [][2]string{
		{"malformed HTTP response", "it does not speak HTTP; gRPC is called by grpc://HOST:PORT/TENANT"},
		{"readLoopPeekFailLocked", "it does not speak HTTP; gRPC is called by grpc://HOST:PORT/TENANT"}, // it spoke before it was asked
		{"http2: frame too large", "it does not speak gRPC; a card is read from http://HOST:PORT"},
		{"no application protocol", "it does not speak gRPC"},
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
			why = known[1]
			break
		}
	}
	return &said{text: "cannot reach " + address + ": " + why, of: ErrUnreachable}
}

// refused is the error that a server answered with, nil for OK.
func refused(st *status.Status) error {
	if st.Code() == codes.OK {
		return nil
	}
	return &said{wire.Words(st), wire.Error(st), st.Code()}
}

// notServed reports whether a server has no such call.
func notServed(err error) bool {
	var e *said
	return errors.As(err, &e) && e.code == codes.Unimplemented
}
