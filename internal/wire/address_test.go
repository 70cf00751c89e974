package wire

import (
	"net/url"
	"testing"
)

func TestHostPort(t *testing.T) {
	for s, want := range map[string]string{
		"http://A.example/x": "a.example:80", "https://a.example": "a.example:443",
		"https://a.example:8443": "a.example:8443", "http://[::1]:80": "[::1]:80",
	} {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := HostPort(u); got != want {
			t.Errorf("%s leads to %s, want %s", s, got, want)
		}
	}
}

// A tenant is one segment of a path.
func TestTenantPath(t *testing.T) {
	for tenant, want := range map[string]string{"": "", "desk": "/desk", "a/b c": "/a%2Fb%20c"} {
		if got := TenantPath(tenant); got != want {
			t.Errorf("tenant %q: %q, want %q", tenant, got, want)
		}
	}
}
