package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Certificates are the certificates of a server, which are read again when their files change. They
// are safe for concurrent use.
type Certificates struct {
	files  *teamv1.ServerTls
	log    *zap.Logger
	loaded atomic.Pointer[loaded]
	first  *loaded // what was read at the start
	every  time.Duration
	known  verified
}

// loaded are certificates that were read together. They are not modified.
type loaded struct {
	content []byte // of the files
	pair    tls.Certificate
	clients *x509.CertPool // nil without client_ca
	// authorities has the fingerprints of the certificates in clients.
	authorities []string
}

// rereadEvery is how often the files are read. A change takes effect when it was seen twice, so that
// a file that is being written is not used.
const rereadEvery = 2 * time.Second

// ReadCertificates reads the files that f names. The error says which file is wrong. log receives lines about
// changes; nil means no log.
func ReadCertificates(f *teamv1.ServerTls, log *zap.Logger) (*Certificates, error) {
	if log == nil {
		log = zap.NewNop()
	}
	if f.GetClient() == teamv1.ClientCertificate_REQUIRED && f.GetClientCa() == "" {
		return nil, errors.New("certificates of clients are required, but no authority signs them; set server.tls.client_ca as well")
	}
	c := &Certificates{files: f, log: log, every: rereadEvery}
	content, err := read(f)
	if err != nil {
		return nil, err
	}
	l, err := parse(f, content)
	if err != nil {
		return nil, err
	}
	c.first = l
	c.loaded.Store(l)
	return c, nil
}

// read returns the contents of the files, in the order cert, key and client_ca.
func read(f *teamv1.ServerTls) (content [3][]byte, err error) {
	for i, name := range []string{f.GetCert(), f.GetKey(), f.GetClientCa()} {
		if name == "" {
			continue
		}
		if content[i], err = os.ReadFile(name); err != nil { //nolint:gosec // the operator's own file
			return content, fmt.Errorf("reading the certificates of server.tls: %w", err)
		}
	}
	return content, nil
}

// parse parses the contents of the files.
func parse(f *teamv1.ServerTls, content [3][]byte) (*loaded, error) {
	l := &loaded{content: bytes.Join(content[:], []byte{0})}
	var err error
	if l.pair, err = tls.X509KeyPair(content[0], content[1]); err != nil {
		return nil, fmt.Errorf("the certificate %s and the key %s of server.tls: %w", f.GetCert(), f.GetKey(), err)
	}
	if f.GetClientCa() != "" {
		l.clients = x509.NewCertPool()
		if !l.clients.AppendCertsFromPEM(content[2]) {
			return nil, fmt.Errorf("%s of server.tls.client_ca contains no certificate in PEM", f.GetClientCa())
		}
		l.authorities = fingerprints(content[2])
	}
	return l, nil
}

// fingerprint returns the fingerprint of a certificate.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// fingerprints returns the fingerprints of the certificates in PEM.
func fingerprints(text []byte) (list []string) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			list = append(list, fingerprint(c))
		}
	}
	return list
}

// Run reads files that have changed until ctx ends. Files that cannot be used are logged, and
// the previous ones remain in use. A certificate that expires soon is logged once a day.
func (c *Certificates) Run(ctx context.Context) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	var seen []byte
	logged := ""
	var warned time.Time
	for {
		if now := time.Now(); now.Sub(warned) >= 24*time.Hour && c.expiresSoon(now) {
			warned = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		content, err := read(c.files)
		all := bytes.Join(content[:], []byte{0})
		stable := bytes.Equal(all, seen)
		seen = all
		if err == nil && bytes.Equal(all, c.loaded.Load().content) {
			logged = ""
			continue
		}
		if err == nil && !stable {
			continue // it may be written at present
		}
		var l *loaded
		if err == nil {
			l, err = parse(c.files, content)
		}
		switch {
		case err == nil:
			c.loaded.Store(l)
			c.log.Info("certificates of server.tls were read again", zap.Time("valid_until", l.pair.Leaf.NotAfter))
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			c.log.Error("changed certificates of server.tls cannot be used; the previous files remain in use", zap.Error(err))
		}
	}
}

// warnBefore is how long before its end the certificate of the server is logged.
const warnBefore = 14 * 24 * time.Hour

// expiresSoon logs that the certificate of the server expires soon, and reports whether it does.
func (c *Certificates) expiresSoon(now time.Time) bool {
	until := c.loaded.Load().pair.Leaf.NotAfter
	if until.Sub(now) > warnBefore {
		return false
	}
	c.log.Warn("the certificate of server.tls expires soon, or has expired; replace its files", zap.Time("valid_until", until))
	return true
}

// Config returns the configuration of a listener, which offers the given protocols of ALPN.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			l := c.loaded.Load()
			config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{l.pair}}
			if l.clients != nil {
				config.ClientCAs, config.ClientAuth = l.clients, tls.VerifyClientCertIfGiven
				config.SessionTicketsDisabled = true // a session must not outlive the authority of its client
			}
			if c.files.GetClient() == teamv1.ClientCertificate_REQUIRED {
				config.ClientAuth = tls.RequireAndVerifyClientCert
			}
			return config, nil
		},
	}
}

// changed reports whether the files have been read again.
func (c *Certificates) changed() bool { return c.loaded.Load() != c.first }

// errNoAuthority is the error for certificates of clients without server.tls.client_ca.
var errNoAuthority = errors.New("no authority signs the certificates of clients")

// verify returns the fingerprint of the authority that has signed the certificate of a client. The connection may be
// older than the files: the error says that no authority in them has signed it.
func (c *Certificates) verify(chain []*x509.Certificate) (authority string, err error) {
	l := c.loaded.Load()
	if l.clients == nil {
		return "", errNoAuthority
	}
	sum := sha256.Sum256(chain[0].Raw)
	if authority, has := c.known.find(sum, l, time.Now()); has {
		return authority, nil
	}
	between := x509.NewCertPool()
	for _, one := range chain[1:] {
		between.AddCert(one)
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{Roots: l.clients, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return "", err
	}
	until := chain[0].NotAfter
	for _, one := range chains[0] {
		if one.NotAfter.Before(until) {
			until = one.NotAfter
		}
	}
	authority = fingerprint(chains[0][len(chains[0])-1])
	c.known.add(sum, l, authority, until)
	return authority, nil
}
