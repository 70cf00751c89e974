package egress_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
)

func guard(t testing.TB, allow ...string) *egress.Guard {
	t.Helper()
	g, err := egress.NewGuard(allow...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestEntries: entries of every form allow what they say, and others are refused with what to write.
func TestEntries(t *testing.T) {
	for entry, at := range map[string]struct{ yes, no string }{
		"10.0.0.0/8":        {"10.1.2.3:80", "11.0.0.1:80"},
		"10.0.0.0/8:443":    {"10.1.2.3:443", "10.1.2.3:80"},
		"10.0.0.1":          {"10.0.0.1:1", "10.0.0.2:1"},
		"10.0.0.1:8080":     {"10.0.0.1:8080", "10.0.0.1:8081"},
		"fd00::/8":          {"[fd00::1]:80", "[fe80::1]:80"},
		"[fd00::/8]:443":    {"[fd12::1]:443", "[fd12::1]:80"},
		"[::1]:9":           {"[::1]:9", "127.0.0.1:9"},
		"::1":               {"[::1]:9", "127.0.0.1:9"},
		"[::1]":             {"[::1]:9", "[::2]:9"},
		"127.0.0.0/8":       {"[::ffff:127.0.0.1]:80", "[::1]:80"},
		"hooks.internal":    {"", "10.0.0.1:80"},
		"Hooks.Internal.:8": {"", "10.0.0.1:8"},
	} {
		g := guard(t, entry)
		for address, allowed := range map[string]bool{at.yes: true, at.no: false} {
			if address == "" {
				continue
			}
			err := g.Allow(t.Context(), netip.MustParseAddrPort(address))
			is, public := egressOf(address), guard(t).Allow(t.Context(), netip.MustParseAddrPort(address)) == nil
			if (err == nil) != (allowed || public) {
				t.Errorf("%s: %s (%s): %v", entry, address, is, err)
			}
		}
	}
	for _, entry := range []string{"", "*", "http://x", "10.0.0.1/8", "10.0.0.0/33", "a b", "x:0", "x:99999", "x:y", "[::1", "[::1]x", "127.1", "0x7f.1", "::ffff:10.0.0.1", "fe80::1%eth0", "user@host", "host/path"} {
		if err := egress.CheckEntry(entry); err == nil || !strings.Contains(err.Error(), " ") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

func egressOf(address string) string { return netip.MustParseAddrPort(address).Addr().String() }

// TestErrorText: the packages that see only the text of an error recognize it.
func TestErrorText(t *testing.T) {
	err := guard(t).Allow(t.Context(), netip.MustParseAddrPort("127.0.0.1:80"))
	if !errors.Is(err, egress.ErrNotAllowed) || wire.WhyUnreachable(err) != wire.NotAllowed {
		t.Errorf("%v is %q", err, wire.WhyUnreachable(err))
	}
}

// blocked are prefixes that are not public, listed apart from the library that is tested.
var blocked = func() (all []netip.Prefix) {
	for _, p := range strings.Fields(`0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16 198.18.0.0/15
		224.0.0.0/4 240.0.0.0/4 168.63.129.16/32 ::/3 fc00::/7 fe80::/10 ff00::/8 64:ff9b::/96 2002::/16 2001:db8::/32 2001::/32`) {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}()

// FuzzP17_Webhook: whatever the URL of a webhook is and its host resolves to, no connection is made to
// an address that is not public.
func FuzzP17_Webhook(f *testing.F) {
	for _, u := range []string{
		"https://example.com/hook", "https://127.0.0.1/", "https://[::ffff:127.0.0.1]:8443/", "https://2130706433/", "https://0x7f.1/", "http://localhost:80/",
		"https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://①②⑦.0.0.1/", "https://a@127.0.0.1/", "https://127.0.0.1.:443/", "https://[fe80::1%25lo]/", "https://EXAMPLE.com:8443/x?y#z",
	} {
		f.Add(u, []byte{127, 0, 0, 1})
		f.Add(u, []byte{93, 184, 216, 34})
		f.Add(u, append(make([]byte, 10), 0xff, 0xff, 10, 0, 0, 5))
	}
	g, err := egress.NewGuard()
	if err != nil {
		f.Fatal(err)
	}
	would := errors.New("would connect")
	f.Fuzz(func(t *testing.T, raw string, resolved []byte) {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || g.Webhook(u) != nil {
			return
		}
		answer, ok := netip.AddrFromSlice(resolved)
		if !ok {
			return
		}
		d, err := egress.New(egress.Config{Allow: func(ctx context.Context, addr netip.AddrPort) error {
			if err := g.Allow(ctx, addr); err != nil {
				return err
			}
			for _, p := range blocked {
				if p.Contains(addr.Addr()) {
					t.Errorf("%q leads to %s, which is in %s", raw, addr, p)
				}
			}
			if u.Scheme != "https" || addr.Port() != 443 && addr.Port() != 8443 {
				t.Errorf("%q leads to %s", raw, addr)
			}
			return would // nothing is sent
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if _, err := netip.ParseAddr(host); err != nil { // a name: it resolves to what the test says
				address = net.JoinHostPort(answer.String(), port)
			}
			return d.DialContext(ctx, network, address)
		}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, raw, nil)
		if err != nil {
			return
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("%q was called", raw)
		}
	})
}

func TestHostPort(t *testing.T) {
	for s, want := range map[string]string{
		"http://A.example/x": "a.example:80", "https://a.example": "a.example:443",
		"https://a.example:8443": "a.example:8443", "http://[::1]:80": "[::1]:80",
	} {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := egress.HostPort(u); got != want {
			t.Errorf("%s leads to %s, want %s", s, got, want)
		}
	}
}
