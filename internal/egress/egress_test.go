package egress_test

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentteams/team-server/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDialer(t *testing.T, cfg egress.Config) *egress.Dialer {
	t.Helper()
	d, err := egress.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func get(t *testing.T, d *egress.Dialer, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.HTTPClient().Do(req)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

func TestHTTPClient(t *testing.T) {
	hits := atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/", http.StatusFound)
		}
	}))
	defer srv.Close()
	t.Run("a redirect is not followed", func(t *testing.T) {
		resp, err := get(t, newDialer(t, egress.Config{}), srv.URL+"/away")
		if err != nil || resp.StatusCode != http.StatusFound {
			t.Errorf("got %v, %v", resp, err)
		}
	})
	t.Run("a proxy of the environment is not used", func(t *testing.T) {
		t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
		if _, err := get(t, newDialer(t, egress.Config{}), srv.URL); err != nil {
			t.Error(err)
		}
	})
	t.Run("Allow sees the resolved address and refuses it", func(t *testing.T) {
		refused := errors.New("refused")
		var seen netip.AddrPort
		d := newDialer(t, egress.Config{Allow: func(_ context.Context, a netip.AddrPort) error {
			seen = a
			return refused
		}})
		before := hits.Load()
		_, err := get(t, d, strings.Replace(srv.URL, "127.0.0.1", "localhost", 1))
		if !errors.Is(err, refused) {
			t.Errorf("error %v", err)
		}
		if !seen.Addr().IsLoopback() || hits.Load() != before {
			t.Errorf("saw %v, %d hits", seen, hits.Load()-before)
		}
	})
}

func TestCAFile(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, newDialer(t, egress.Config{CAFile: file}), srv.URL); err != nil {
		t.Errorf("trusted by file: %v", err)
	}
	if _, err := get(t, newDialer(t, egress.Config{}), srv.URL); err == nil {
		t.Error("an unknown authority was trusted")
	}
	for name, content := range map[string]string{"none": "", "other.pem": "hello"} {
		other := filepath.Join(t.TempDir(), name)
		if content != "" {
			if err := os.WriteFile(other, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := egress.New(egress.Config{CAFile: other}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestReadBody(t *testing.T) {
	if b, err := egress.ReadBody(strings.NewReader("1234"), 4); err != nil || string(b) != "1234" {
		t.Errorf("at the limit: %q, %v", b, err)
	}
	if _, err := egress.ReadBody(strings.NewReader("12345"), 4); !errors.Is(err, egress.ErrTooLarge) {
		t.Errorf("above the limit: %v", err)
	}
}
