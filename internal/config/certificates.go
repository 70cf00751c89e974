package config

import "crypto/x509"

// certificates checks the files named by tls.ca of the agents that are served.
func (k *checker) certificates() {
	for _, id := range sorted(k.Server.GetAgents()) {
		path := []any{"agents", id, "grpc", "tls", "ca"}
		if ca := k.Server.GetAgents()[id].GetGrpc().GetTls().GetCa(); ca != "" && k.Used[id] && !k.isDamaged(path...) {
			k.certificate(ca, path...)
		}
	}
}

func (k *checker) certificate(file string, path ...any) {
	n, _ := k.at(path...)
	pem, err := k.ReadFile(file)
	switch {
	case err != nil:
		k.fault(n, "tls.ca "+quote(file)+": "+unreadable(file, err)[0].Message, "the path is relative to this file")
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		k.fault(n, "tls.ca "+quote(file)+": contains no certificate", "name a file with certificates in PEM")
	}
}
