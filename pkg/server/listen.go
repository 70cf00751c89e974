package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/agentteams/team-server/internal/settings"
)

func addrs(l Listeners, secure bool) Addrs {
	var a Addrs
	if l.GRPC != nil {
		a.GRPC = l.GRPC.Addr().String()
	}
	if l.HTTP != nil {
		a.URL = scheme(secure) + l.HTTP.Addr().String()
	}
	return a
}

func scheme(secure bool) string {
	if secure {
		return "https://"
	}
	return "http://"
}

// public returns the addresses at which clients reach the listeners. For a listener on all
// addresses it uses the host name of this machine.
func public(l Listeners, secure bool) Addrs {
	var a Addrs
	if l.GRPC != nil {
		a.GRPC = reachable(l.GRPC.Addr())
	}
	if l.HTTP != nil {
		a.URL = scheme(secure) + reachable(l.HTTP.Addr())
	}
	return a
}

func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
		return a.String()
	}
	name, err := os.Hostname()
	if err != nil {
		return a.String()
	}
	return net.JoinHostPort(name, port)
}

// listen returns the listeners of a server.
func (c *Config) listen() (l Listeners, err error) {
	if c.Listeners != (Listeners{}) || c.Role == RoleWorker {
		return c.Listeners, nil
	}
	with, err := settings.New(c.Settings, "", "")
	if err != nil {
		return l, fmt.Errorf("server.Config.Settings: %w", err)
	}
	if with.GetGrpc() != "off" {
		if l.GRPC, err = listenOn(with.GetGrpc()); err != nil {
			return l, err
		}
	}
	if l.HTTP, err = listenOn(with.GetHttp()); err != nil {
		return l, errors.Join(err, closeAll(l))
	}
	return l, nil
}

func listenOn(address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return l, nil
}

func closeAll(l Listeners) error {
	var errs []error
	for _, l := range []net.Listener{l.GRPC, l.HTTP} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
