package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/agentteams/team-server/pkg/server"
)

// Off as the gRPC address disables gRPC.
const Off = "off"

// Listen listens on an address. If that fails, the error tells the user what to do.
func Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := listenTCP(ctx, address)
	if err == nil {
		return l, nil
	}
	return nil, cannotListen("Use --"+flag+" 127.0.0.1:0 to take any free port", address, err)
}

func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// cannotListen returns the error of listening on an address. instead says what to do.
func cannotListen(instead, address string, err error) error {
	var why string
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why = "in use by another program"
	case errors.Is(err, syscall.EACCES):
		why = "not permitted for this user"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "this machine has no such address"
	default:
		why = "not an address to listen on"
	}
	return listenError{fmt.Sprintf("cannot listen on %s: %s.  %s", address, why, instead), err}
}

// listenError is the reason why listening failed. Its text leaves out the text of the cause.
type listenError struct {
	text  string
	cause error
}

func (e listenError) Error() string { return e.text }
func (e listenError) Unwrap() error { return e.cause }

// listenNear is like Listen, but if the port is in use, it listens on the next free port and
// returns the address in use as taken.
func listenNear(ctx context.Context, flag, address string) (l net.Listener, taken string, err error) {
	l, err = Listen(ctx, flag, address)
	if err == nil || !errors.Is(err, syscall.EADDRINUSE) {
		return l, "", err
	}
	host, port, splitErr := net.SplitHostPort(address)
	n, numErr := strconv.Atoi(port)
	if splitErr != nil || numErr != nil {
		return nil, "", err
	}
	const tries = 20
	for next := n + 1; next <= n+tries && next <= 65535; next++ {
		if l, nextErr := Listen(ctx, flag, net.JoinHostPort(host, strconv.Itoa(next))); nextErr == nil {
			return l, address, nil
		}
	}
	l, err = Listen(ctx, flag, net.JoinHostPort(host, "0"))
	return l, address, err
}

// closeListeners closes the listeners that are not nil.
func closeListeners(l server.Listeners) error {
	var errs []error
	for _, l := range []net.Listener{l.HTTP, l.GRPC} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// addressOf returns the address of a listener, or Off if it is nil.
func addressOf(l net.Listener) string {
	if l == nil {
		return Off
	}
	return l.Addr().String()
}

// Loopback reports whether an address is reachable only from this machine.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// collision is a listener whose address another one has, too.
type collision struct{ of, with setting }

// Error implements error.
func (c collision) Error() string {
	return c.of.value + " is the address of " + c.with.key + ", too; write another port"
}

// collisions returns which of the listeners of a server cannot listen because of another one. An address may be "" or Off.
func collisions(http, grpc, metrics setting) (all []collision) {
	if overlap(http.value, grpc.value) {
		all = append(all, collision{grpc, http})
	}
	switch {
	case overlap(http.value, metrics.value):
		all = append(all, collision{metrics, http})
	case overlap(grpc.value, metrics.value):
		all = append(all, collision{metrics, grpc})
	}
	return all
}

// overlap reports whether two addresses have the same port, and hosts that are equal or include each other. Port 0 is
// never the same.
func overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" { // an error: Off, or not an address
		return false
	}
	return wildcard(hostA) || wildcard(hostB) || plainHost(hostA) == plainHost(hostB)
}

// wildcard reports whether a host stands for all addresses of the machine.
func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// plainHost returns one form of a host that can be written in several.
func plainHost(host string) string {
	if host == "localhost" {
		return "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.String()
	}
	return strings.ToLower(host)
}
