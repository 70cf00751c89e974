package config

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// certificates checks the files named by tls.ca of the agents that are served, those of
// server.tls, and those of issuers.
func (k *checker) certificates() {
	k.serverTLS()
	for i, issuer := range k.Server.GetServer().GetAuth().GetJwt() {
		if path := []any{"server", "auth", "jwt", i, "ca"}; issuer.GetCa() != "" && !k.isDamaged(path...) {
			k.certificate("ca", issuer.GetCa(), path...)
		}
	}
	for _, id := range sorted(k.Server.GetAgents()) {
		path := []any{"agents", id, "grpc", "tls", "ca"}
		if ca := k.Server.GetAgents()[id].GetGrpc().GetTls().GetCa(); ca != "" && k.Used[id] && !k.isDamaged(path...) {
			k.trusted[ca] = k.certificate("tls.ca", ca, path...)
		}
		if t := k.Server.GetAgents()[id].GetGrpc().GetTls(); k.Used[id] {
			k.pair(t.GetCert(), t.GetKey(), "agents", id, "grpc", "tls")
		}
	}
}

// certificate returns the content of a file with authorities, and reports a fault if it has none.
func (k *checker) certificate(key, file string, path ...any) []byte {
	n, _ := k.at(path...)
	pem, err := k.ReadFile(file)
	switch {
	case err != nil:
		k.fault(n, key+" "+quote(file)+": "+unreadable(file, err)[0].Message, "the path is relative to this file")
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		k.fault(n, key+" "+quote(file)+": contains no certificate", "name a file with certificates in PEM")
	}
	return pem
}

// serverTLS checks the files of server.tls.
func (k *checker) serverTLS() {
	t := k.Server.GetServer().GetTls()
	at := func(key string) []any { return []any{"server", "tls", key} }
	if ca := t.GetClientCa(); ca != "" && !k.isDamaged(at("client_ca")...) {
		k.certificate("tls.client_ca", ca, at("client_ca")...)
	}
	k.pair(t.GetCert(), t.GetKey(), "server", "tls")
}

// pair checks the files of a certificate and of its key, which the keys cert and key below a path name.
func (k *checker) pair(cert, key string, above ...any) {
	at := func(key string) []any { return append(above[:len(above):len(above)], key) }
	var pair [2][]byte
	for i, file := range []string{cert, key} {
		name := []string{"cert", "key"}[i]
		if file == "" || k.isDamaged(at(name)...) {
			return
		}
		n, _ := k.at(at(name)...)
		var err error
		if pair[i], err = k.ReadFile(file); err != nil {
			k.fault(n, "tls."+name+" "+quote(file)+": "+unreadable(file, err)[0].Message, "the path is relative to this file")
			return
		}
	}
	if _, err := tls.X509KeyPair(pair[0], pair[1]); err != nil {
		n, _ := k.at(at("cert")...)
		k.fault(n, "tls.cert and tls.key are no certificate with its key", "name two files in PEM that belong together; "+err.Error())
	}
}

// KeyExpiry returns the time of auth.api_keys.expires, which was checked; zero for "".
func KeyExpiry(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}
