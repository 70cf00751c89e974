package auth

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// mtls authenticates callers by the certificates of their connections.
type mtls struct {
	callers map[string]identity.Caller // by sanKey
	by      *Certificates
	note    func(Right) // notes that a certificate was accepted
}

// newMTLS returns the authentication by certificates that by has accepted.
func newMTLS(clients []*teamv1.CertificateClient, by *Certificates) (*mtls, error) {
	m := &mtls{callers: map[string]identity.Caller{}, by: by, note: func(Right) {}}
	for i, c := range clients {
		if err := checkName(c.GetName(), c.GetAccount()); err != nil {
			return nil, fmt.Errorf("certificate client %d (%q): %w", i, c.GetSan(), err)
		}
		key := configuredSAN(c.GetSan())
		if _, twice := m.callers[key]; twice || c.GetSan() == "" {
			return nil, fmt.Errorf("certificate client %d: %q must be a name of a certificate that no other client has", i, c.GetSan())
		}
		m.callers[key] = identity.Caller{
			Account: cmp.Or(c.GetAccount(), "default"), Principal: c.GetName(), Roles: c.GetRoles(), Permissions: permissionsOf(c.GetPermissions()),
		}
	}
	if by == nil || by.files.GetClientCa() == "" {
		return nil, errors.New("certificates of clients need TLS with an authority that signs them (server.tls.client_ca)")
	}
	return m, nil
}

// Authenticate implements Authenticator.
func (m *mtls) Authenticate(r Request) (identity.Caller, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.Authorization) > 0 {
		return identity.Caller{}, ErrNone
	}
	chain := r.TLS.PeerCertificates
	names := namesOf(chain[0])
	detail := strings.Join(names, ", ")
	if !time.Now().Before(chain[0].NotAfter) {
		return identity.Caller{}, refuse(WhyExpired, detail, fmt.Sprintf("the client certificate expired at %s; connect with a new one", chain[0].NotAfter.UTC().Format(time.RFC3339)))
	}
	trusted := r.TLS.VerifiedChains[0]
	authority := fingerprint(trusted[len(trusted)-1])
	if m.by.changed() { // the connection may be older than the authorities
		var err error
		if authority, err = m.by.verify(chain); err != nil {
			return identity.Caller{}, refuse(WhyRevoked, detail, "the authority of the client certificate is not trusted any more; connect with a certificate of another one")
		}
	}
	i := slices.IndexFunc(names, func(name string) bool { return m.callers[name].Principal != "" })
	if i < 0 {
		return identity.Caller{}, refuse(WhyCertificate, detail, "no name of the client certificate is known; ask the operator of this server to add it to auth.mtls")
	}
	who := m.callers[names[i]]
	who.Expires = chain[0].NotAfter
	m.note(Right{who.Owner(), Source{certificatesOf(names[i]), authority}, who.Expires})
	return who, nil
}

// namesOf returns the subject alternative names of a certificate, each with its kind: URIs, DNS names, and
// e-mail addresses.
func namesOf(c *x509.Certificate) []string {
	var names []string
	for _, u := range c.URIs {
		names = append(names, sanURI+u.String())
	}
	for _, name := range c.DNSNames {
		names = append(names, sanDNS+strings.ToLower(name))
	}
	for _, address := range c.EmailAddresses {
		names = append(names, sanEmail+address)
	}
	return names
}

// Kinds of subject alternative names, so that one of a kind does not pass for one of another.
const (
	sanURI   = "URI "
	sanDNS   = "DNS "
	sanEmail = "e-mail "
)

// configuredSAN returns a name of the configuration with its kind: with a colon it is a URI, else with an
// "@" an e-mail address, else a DNS name, which is compared without regard to case.
func configuredSAN(name string) string {
	switch {
	case strings.Contains(name, ":"):
		return sanURI + name
	case strings.Contains(name, "@"):
		return sanEmail + name
	}
	return sanDNS + strings.ToLower(name)
}

// may reports whether an owner can have a certificate that is accepted.
func (m *mtls) may(owner string) bool {
	if m == nil {
		return false
	}
	for _, who := range m.callers {
		if who.Owner() == owner {
			return true
		}
	}
	return false
}

// sources returns the sources of the certificates that are accepted: each authority for each client.
func (m *mtls) sources() (list []Source) {
	if m == nil {
		return nil
	}
	for _, authority := range m.by.loaded.Load().authorities {
		for name := range m.callers {
			list = append(list, Source{certificatesOf(name), authority})
		}
	}
	return list
}
