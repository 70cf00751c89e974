package wire

import (
	"strings"
	"testing"
)

// A tenant is one segment of a path.
func TestTenantPath(t *testing.T) {
	for tenant, want := range map[string]string{"": "", "desk": "/desk", "a/b c": "/a%2Fb%20c"} {
		if got := TenantPath(tenant); got != want {
			t.Errorf("tenant %q: %q, want %q", tenant, got, want)
		}
	}
}

// TestT_42_Redacted: no part of a password or query is left, also of addresses that are not valid.
func TestT_42_Redacted(t *testing.T) {
	for _, s := range []string{"http://ann:se/cret@h", "http://ann:se?cret@h", "http://h/?key=\nsecret", "ann:secret@h:1", "http://ann:secret@h/x?token=secret#y"} {
		if got := Redacted(s); strings.Contains(got, "se") || strings.Contains(got, "cret") {
			t.Errorf("%q is shown as %q", s, got)
		}
	}
	for _, s := range []string{"http://h.example:80/path", "h:1"} {
		if got := Redacted(s); got != s {
			t.Errorf("%q is shown as %q", s, got)
		}
	}
}
