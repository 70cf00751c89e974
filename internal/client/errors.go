package client

import (
	"errors"
	"fmt"
	"regexp"
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

// user matches what may be a user and a password in an address.
var user = regexp.MustCompile(`[^/\s]*@`)

// shown returns an address without its user.
func shown(address string) string { return user.ReplaceAllString(address, "…@") }

func noAddress(target, expected string) error {
	return &said{text: fmt.Sprintf("%q is no address; expected %s", shown(target), expected), of: ErrAddress}
}

// unreachable returns why an address cannot be reached.
func unreachable(address string, cause error) error {
	why := wire.WhyUnreachable(cause)
	switch {
	case why == wire.NotHTTP, why == wire.Closed && strings.HasPrefix(address, "http://"):
		why += "; a server that speaks gRPC is called as grpc://HOST:PORT/TENANT"
	case why == wire.NotGRPC:
		why += "; a card is read from http://HOST:PORT"
	}
	return &said{text: "cannot reach " + shown(address) + ": " + why, of: ErrUnreachable}
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
