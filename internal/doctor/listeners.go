package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/serve"
	bindings "github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/server"
)

// addresses checks that a server may listen on its addresses, and that they are free, or that a team-server listens
// there.
func (r *run) addresses() (jobs []job) {
	s := settings.WithDefaults(r.Definition.Server.GetServer())
	add := func(name, flag, address string, ours probe) {
		if address != "" && address != serve.Off {
			jobs = append(jobs, job{name, func(ctx context.Context) []Check { return r.address(ctx, name, flag, address, ours) }})
		}
	}
	if r.Role != server.RoleWorker {
		add("address http", "http", cmp.Or(r.HTTP, s.GetHttp()), answersHTTP)
		add("address grpc", "grpc", cmp.Or(r.GRPC, s.GetGrpc()), answersGRPC)
	}
	add("address metrics", "metrics", s.GetMetrics(), answersMetrics)
	return jobs
}

// probe reports whether a team-server serves an address, with TLS unless secure is nil.
type probe func(ctx context.Context, address string, secure *tls.Config) bool

// address checks an address.
func (r *run) address(ctx context.Context, name, flag, address string, ours probe) []Check {
	l, err := serve.Listen(ctx, flag, address)
	if err == nil {
		_ = l.Close()
		return ok(name, "%s is free", address)
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return failed(name, "write another address", "%s", err)
	}
	t := r.Definition.Settings().GetTls()
	var shown atomic.Bool
	secure := own(t.GetCert(), func() { shown.Store(true) })
	switch {
	case ours(ctx, address, secure):
		return ok(name, "a team-server serves %s", address)
	case shown.Load() && t.GetClient() == teamv1.ClientCertificate_REQUIRED: // the server refuses this probe, which has no client certificate
		return ok(name, "a server with the certificate of server.tls serves %s", address)
	}
	return failed(name, "stop the other program, or write another address", "%s is in use by another program", address)
}

// own returns the TLS configuration of a client that accepts only the certificate in a file, and calls shown when a
// server has shown that it has it. It returns nil without a file.
func own(file string, shown func()) *tls.Config {
	if file == "" {
		return nil
	}
	certs := certificatesIn(file)
	return &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the certificate, whatever its names and authority
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(certs) == 0 || !certs[0].Equal(c.PeerCertificates[0]) {
				return errors.New("another certificate")
			}
			shown()
			return nil
		},
	}
}

// probeTimeout is the timeout of a request of a probe.
const probeTimeout = 3 * time.Second

// get reads a page of a server on this machine.
func get(ctx context.Context, address, path string, secure *tls.Config) (status int, body string) {
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	t := &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+dialAddress(address)+path, http.NoBody)
	if err != nil {
		return 0, ""
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(b)
}

// dialAddress returns an address at which a listener on this machine is reached.
func dialAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

// answersHTTP is the probe of the HTTP listener.
func answersHTTP(ctx context.Context, address string, secure *tls.Config) bool {
	if status, _ := get(ctx, address, "/healthz", secure); status != http.StatusOK {
		return false
	}
	status, body := get(ctx, address, "/openapi.json", secure)
	return status == http.StatusOK && strings.Contains(body, `"AuditService"`)
}

// answersMetrics is the probe of the listener for metrics, which has no TLS.
func answersMetrics(ctx context.Context, address string, _ *tls.Config) bool {
	status, body := get(ctx, address, "/metrics", nil)
	return status == http.StatusOK && strings.Contains(body, "team_")
}

// answersGRPC is the probe of the gRPC listener.
func answersGRPC(ctx context.Context, address string, secure *tls.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return bindings.ServesGRPC(ctx, dialAddress(address), secure)
}

// certificates checks the certificates that the file names: those of the listeners, and those of connections to
// agents and issuers.
func (r *run) certificates() (jobs []job) {
	settings := r.Definition.Settings()
	if t := settings.GetTls(); t.GetCert() != "" {
		jobs = append(jobs, job{"server.tls", func(context.Context) []Check { return r.listenerTLS(t) }})
	}
	files := map[string]string{}
	add := func(key, file string) {
		if file != "" {
			files[key] = r.Definition.Path(file) // which an absolute path stays
		}
	}
	add("server.tls.client_ca", settings.GetTls().GetClientCa())
	for id, a := range r.Definition.Server.GetAgents() {
		if r.Definition.Used[id] {
			add("agents."+id+".grpc.tls.cert", a.GetGrpc().GetTls().GetCert())
			add("agents."+id+".grpc.tls.ca", a.GetGrpc().GetTls().GetCa())
			if pair := a.GetGrpc().GetTls(); pair.GetCert() != "" {
				jobs = append(jobs, job{"agents." + id + ".grpc.tls", func(context.Context) []Check {
					name := "agents." + id + ".grpc.tls"
					if _, err := tls.LoadX509KeyPair(r.Definition.Path(pair.GetCert()), r.Definition.Path(pair.GetKey())); err != nil {
						return failed(name, "name a certificate and its key in PEM", "%s", err)
					}
					return nil
				}})
			}
		}
	}
	for _, i := range settings.GetAuth().GetJwt() {
		add("issuer "+i.GetName()+" ca", i.GetCa())
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		jobs = append(jobs, job{key, func(context.Context) []Check { return r.expiry(key, files[key]) }})
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(a.name, b.name) })
	return jobs
}

// listenerTLS checks the certificate of the listeners, its key, its expiry and its names.
func (r *run) listenerTLS(t *teamv1.ServerTls) []Check {
	const name = "server.tls"
	if _, err := auth.ReadCertificates(t, nil); err != nil {
		return failed(name, "name a certificate, followed by its intermediates, and its key in PEM", "%s", err)
	}
	all := r.expiry(name+".cert", t.GetCert())
	certs := certificatesIn(t.GetCert())
	for _, public := range []string{r.Definition.Server.GetServer().GetPublicUrl(), "//" + r.Definition.Server.GetServer().GetPublicGrpc()} {
		u, err := url.Parse(public)
		if err != nil || u.Hostname() == "" || len(certs) == 0 {
			continue
		}
		if err := certs[0].VerifyHostname(u.Hostname()); err != nil {
			all = append(all, warning(name+".cert", "use a certificate with this name", "it is not for %s, the public name of the server", u.Hostname())...)
		}
	}
	return all
}

// expiry checks the time of the certificates in a file.
func (r *run) expiry(name, file string) []Check {
	certs := certificatesIn(file)
	if len(certs) == 0 {
		return failed(name, "name a file with certificates in PEM", "%s cannot be read or has no certificate", file)
	}
	first := slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	latest := slices.MaxFunc(certs, func(a, b *x509.Certificate) int { return a.NotBefore.Compare(b.NotBefore) })
	now, until := r.Clock(), first.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.After(first.NotAfter):
		return failed(name, "renew it", "%s: a certificate expired at %s", file, until)
	case now.Before(latest.NotBefore):
		return failed(name, "check the clock of this machine", "%s: a certificate is valid from %s", file, latest.NotBefore.UTC().Format(time.RFC3339))
	case first.NotAfter.Sub(now) < expiresSoon:
		return warning(name, "renew it", "%s: a certificate expires at %s", file, until)
	}
	return ok(name, "%s: valid until %s", file, until)
}

// certificatesIn returns the certificates in a file, without those that cannot be parsed.
func certificatesIn(file string) (certs []*x509.Certificate) {
	data, err := os.ReadFile(file) //nolint:gosec // the configuration names it
	if err != nil {
		return nil
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, c)
		}
	}
	return certs
}
