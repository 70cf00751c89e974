package console

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/agentteams/team-server/internal/client"
)

// Connection says which server commands call, and how.
type Connection struct {
	// Server is the address of a running server; "" starts one in this process, for the commands that can.
	Server string
	// Token is the API key for the server; "" means none.
	Token string
	// CA is a file with certificate authorities to trust in addition to those of the system; "" means
	// none. ClientCert and ClientKey are files with the certificate to show, and its key.
	CA, ClientCert, ClientKey string
}

// Program returns the beginning of a command line that calls the same server: the program, with --server unless TEAM_SERVER
// names it.
func (c *Connection) Program() string {
	if c.Server == "" || c.Server == os.Getenv("TEAM_SERVER") {
		return "team-server"
	}
	return "team-server --server " + Line(c.Server)
}

// Manager returns a client of the server that --server names, for a command that needs one.
func (c *Connection) Manager(command string) (*client.Team, error) {
	if c.Server == "" {
		return nil, Usagef("%s needs a running server: --server http://127.0.0.1:8080, or TEAM_SERVER", command)
	}
	return c.Client(c.Server)
}

// With calls do with a client of the server that --server names, for a command that needs one.
func (c *Connection) With(command string, do func(*client.Team) error) error {
	server, err := c.Manager(command)
	if err != nil {
		return err
	}
	defer server.Close()
	return do(server)
}

// Ask returns what call returns for a client of the server that --server names, for a command that needs one.
func Ask[T any](c *Connection, command string, call func(*client.Team) (T, error)) (answer T, err error) {
	err = c.With(command, func(server *client.Team) error {
		answer, err = call(server)
		return err
	})
	return answer, err
}

// Client returns a client of the team-server at a base address.
func (c *Connection) Client(base string) (*client.Team, error) {
	secure, err := c.TLS()
	if err != nil {
		return nil, err
	}
	return client.NewTeam(base, c.Token, secure)
}

// TLS returns how commands connect with TLS; nil means with the authorities of the system only.
func (c *Connection) TLS() (*tls.Config, error) {
	if c.CA == "" && c.ClientCert == "" && c.ClientKey == "" {
		return nil, nil //nolint:nilnil // the defaults
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, Usagef("--ca: %w", err)
		}
		if conf.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("reading the certificate authorities of the system: %w", err)
		}
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Usagef("--ca %s: contains no certificate; name a file with certificates in PEM", c.CA)
		}
	}
	if (c.ClientCert == "") != (c.ClientKey == "") {
		return nil, Usagef("--client-cert and --client-key belong together; name a certificate and its key in PEM")
	}
	if c.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
		if err != nil {
			return nil, Usagef("--client-cert %s: %w", c.ClientCert, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
