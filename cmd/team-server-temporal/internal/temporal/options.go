package temporal

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// optionsOf returns the options of a client.
func optionsOf(t *teamv1.TemporalSettings, to *zap.Logger) (client.Options, error) {
	opts := client.Options{HostPort: t.GetAddress(), Namespace: t.GetNamespace(), Logger: logger{to.Sugar()}}
	if t.GetApiKey() != "" {
		opts.Credentials = client.NewAPIKeyStaticCredentials(t.GetApiKey())
	}
	if t.GetTls() == nil && t.GetApiKey() == "" {
		return opts, nil
	}
	config, err := tlsOf(t.GetTls())
	opts.ConnectionOptions.TLS = config
	return opts, err
}

// tlsOf returns the configuration of TLS for settings, which may be nil.
func tlsOf(t *teamv1.TemporalTls) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.GetServerName()}
	if t.GetCa() != "" {
		pem, err := os.ReadFile(t.GetCa())
		if err != nil {
			return nil, fmt.Errorf("reading server.engine.temporal.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("server.engine.temporal.tls.ca: %s has no certificate in PEM", t.GetCa())
		}
	}
	if t.GetCert() != "" {
		pair, err := tls.LoadX509KeyPair(t.GetCert(), t.GetKey())
		if err != nil {
			return nil, fmt.Errorf("reading server.engine.temporal.tls.cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// logger logs what the SDK logs. What it says at level info is debugging here.
type logger struct{ to *zap.SugaredLogger }

var _ log.Logger = logger{}

func (l logger) Debug(msg string, keyvals ...any) { l.to.Debugw(msg, keyvals...) }
func (l logger) Info(msg string, keyvals ...any)  { l.to.Debugw(msg, keyvals...) }
func (l logger) Warn(msg string, keyvals ...any)  { l.to.Warnw(msg, keyvals...) }
func (l logger) Error(msg string, keyvals ...any) { l.to.Errorw(msg, keyvals...) }
