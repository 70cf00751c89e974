package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// tls returns how commands connect with TLS; nil means with the authorities of the system only.
func (s *Shell) tls() (*tls.Config, error) {
	if s.CA == "" && s.ClientCert == "" && s.ClientKey == "" {
		return nil, nil //nolint:nilnil // the defaults
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, usagef("--ca: %w", err)
		}
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("reading the certificate authorities of the system: %w", err)
		}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca %s: contains no certificate; name a file with certificates in PEM", s.CA)
		}
	}
	if (s.ClientCert == "") != (s.ClientKey == "") {
		return nil, usagef("--client-cert and --client-key belong together; name a certificate and its key in PEM")
	}
	if s.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(s.ClientCert, s.ClientKey)
		if err != nil {
			return nil, usagef("--client-cert %s: %w", s.ClientCert, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
