package egress_test

import (
	"crypto/tls"
	"testing"

	"github.com/agentteams/team-server/internal/egress"
)

// TestT_22_CertificatesStayWithTheirHost: what the operator set for a host is not shown to the hosts
// that its card names.
func TestT_22_CertificatesStayWithTheirHost(t *testing.T) {
	out, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := egress.NewGuarded()
	if err != nil {
		t.Fatal(err)
	}
	r := egress.NewRoute(egress.RouteConfig{Addresses: []string{"Agent.example:443"}, Own: out, Others: guarded, TLS: &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "inner", Certificates: make([]tls.Certificate, 1),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil },
	}})
	for host, own := range map[string]bool{"agent.example": true, "AGENT.example.": true, "other.example": false, "": false} {
		c := r.TLSFor(host)
		if got := c.ServerName == "inner" && len(c.Certificates) == 1 && c.GetClientCertificate != nil; got != own {
			t.Errorf("%q: %t", host, got)
		}
		if none := c.ServerName == "" && len(c.Certificates) == 0 && c.GetClientCertificate == nil; none == own {
			t.Errorf("%q: without: %t", host, none)
		}
		if c.MinVersion != tls.VersionTLS13 {
			t.Errorf("%q: the version is lost", host)
		}
	}
}
