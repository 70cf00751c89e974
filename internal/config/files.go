package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// files checks the files that a configuration names: certificates, keys, scripts and schemas. Faults within scripts and
// schemas are reported with those of the configuration file.
func (k *checker) files() {
	server := k.at("server")
	t := k.Server.GetServer().GetTls()
	k.authorities(server.At("tls", "client_ca"), "tls.client_ca", t.GetClientCa())
	k.pair(server.At("tls"), t.GetCert(), t.GetKey())
	temporal := k.Server.GetServer().GetEngine().GetTemporal().GetTls()
	k.authorities(server.At("engine", "temporal", "tls", "ca"), "ca", temporal.GetCa())
	k.pair(server.At("engine", "temporal", "tls"), temporal.GetCert(), temporal.GetKey())
	for i, issuer := range k.Server.GetServer().GetAuth().GetJwt() {
		k.authorities(server.At("auth", "jwt", i, "ca"), "ca", issuer.GetCa())
	}
	for i, key := range k.Server.GetServer().GetSigning().GetKeys() {
		k.keyFile(server.At("signing", "keys", i, "file"), "file", key.GetFile(), func(data []byte) error {
			_, err := cardsign.ParsePrivate(data)
			return err
		})
	}
	for _, name := range sorted(k.Server.GetModels()) {
		if m := k.Server.GetModels()[name]; m.GetProvider() == "scripted" && m.GetFile() != "" {
			k.script(name, m.GetFile())
		}
	}
	for _, id := range sorted(k.Server.GetAgents()) {
		k.filesOf(k.at("agents", id), id, k.Server.GetAgents()[id])
	}
	read := map[string]bool{}
	for _, id := range k.ids() {
		for _, u := range k.uses[id] {
			if u.Kind == references.Schema {
				k.schema(k.at(u.Path...), u.Name, read)
			}
		}
	}
}

// filesOf checks the files by which a remote agent that is in use is verified.
func (k *checker) filesOf(at source.Place, id string, a *teamv1.AgentConfig) {
	t := a.GetGrpc().GetTls()
	if !k.Used[id] {
		return
	}
	if ca := t.GetCa(); ca != "" {
		k.trusted[ca] = k.authorities(at.At("grpc", "tls", "ca"), "tls.ca", ca)
	}
	k.pair(at.At("grpc", "tls"), t.GetCert(), t.GetKey())
	for i, file := range a.GetA2A().GetTrustedKeys() {
		k.keyFile(at.At("a2a", "trusted_keys", i), "trusted_keys", file, func(data []byte) error {
			k.trusted[file] = data
			_, err := cardsign.ParseTrusted(data)
			return err
		})
	}
}

// readNamed reads the file that a value names. It returns nil if there is no such value, if the value is damaged, and if the
// file cannot be read, which is a fault.
func (k *checker) readNamed(at source.Place, key, file string) []byte {
	if file == "" || at.Damaged() {
		return nil
	}
	data, err := k.ReadFile(file)
	if err != nil {
		at.Fault(fmt.Sprintf("%s %q: %s", key, file, source.Unreadable(file, err).Message), "the path is relative to this file")
		return nil
	}
	return append([]byte{}, data...) // not nil
}

// authorities returns the content of a file with authorities, and reports a fault if it has none.
func (k *checker) authorities(at source.Place, key, file string) []byte {
	pem := k.readNamed(at, key, file)
	if pem != nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		at.Fault(key+" "+strconv.Quote(file)+": contains no certificate", "name a file with certificates in PEM")
	}
	return pem
}

// pair checks the files of a certificate and of its key, which the keys cert and key of a place name.
func (k *checker) pair(at source.Place, cert, key string) {
	c := k.readNamed(at.At("cert"), "tls.cert", cert)
	if c == nil {
		return
	}
	p := k.readNamed(at.At("key"), "tls.key", key)
	if p == nil {
		return
	}
	if _, err := tls.X509KeyPair(c, p); err != nil {
		at.At("cert").Fault("tls.cert and tls.key are no certificate with its key", "name two files in PEM that belong together; "+err.Error())
	}
}

// keyFile reports a key file that cannot be read or parsed.
func (k *checker) keyFile(at source.Place, key, file string, parse func([]byte) error) {
	data := k.readNamed(at, key, file)
	if data == nil {
		return
	}
	if err := parse(data); err != nil {
		at.Fault(key+" "+strconv.Quote(file)+" "+err.Error(), "docs/configuration-security.md says how to make one")
	}
}

// script reads the script of a scripted model, unless the model has a stand-in.
func (k *checker) script(model, file string) {
	if _, ok := k.played[model]; ok {
		return
	}
	at := k.at("models", model, "file")
	data := k.readNamed(at, "script", file)
	if data == nil {
		return
	}
	if syntax := source.Syntax(k.Path(file), data); syntax != nil {
		k.doc.AddFaults(syntax...)
		return
	}
	s, err := scripted.Parse(k.Path(file), data)
	var faults scripted.Faults
	switch {
	case errors.As(err, &faults):
		text := source.NewText(data)
		for _, f := range faults {
			k.doc.AddFaults(text.Fault(f.File, f.Line, f.Col, f.Message, f.Hint))
		}
	case err != nil:
		at.Fault("script "+strconv.Quote(file)+": "+err.Error(), "correct the script")
	default:
		k.Scripts[model], k.scripts[model] = s, data
	}
}

// schema reads a schema file, once if there are several references to it.
func (k *checker) schema(at source.Place, file string, read map[string]bool) {
	data := k.readNamed(at, "schema", file)
	if data == nil || read[file] {
		return
	}
	read[file] = true
	s, err := guard.ParseSchema(k.Path(file), data)
	var faults guard.Faults
	if errors.As(err, &faults) {
		text := source.NewText(data)
		for _, f := range faults {
			k.doc.AddFaults(text.Fault(f.File, f.Line, f.Col, f.Message, f.Hint))
		}
		return
	}
	k.Schemas[file], k.schemas[file] = s, data
}

// Trust returns the verifier for the card of a remote agent, or nil if any card is accepted.
func (c *Config) Trust(a *teamv1.A2AAgent) (*cardsign.Trust, error) {
	var files [][]byte
	for _, name := range a.GetTrustedKeys() {
		data, err := c.ReadFile(name)
		if err != nil {
			return nil, source.Faults{source.Unreadable(name, err)}
		}
		files = append(files, data)
	}
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // nothing is verified
	}
	return cardsign.NewTrust(files...)
}

// Guardrail builds the guard that a guardrail of the file describes. schema may be nil.
func Guardrail(g *teamv1.Guardrail, schema *guard.Schema) (agent.Guard, error) {
	return guard.New(guard.Config{
		Name: g.GetName(), MaxLength: int(g.GetMaxLength()), Deny: g.GetDeny(), Require: g.GetRequire(), Schema: schema, Message: g.GetMessage(),
	})
}

// patterns reports the invalid regular expressions of guardrails, at the position of the error.
func (k *checker) patterns(at source.Place, g *teamv1.Guardrails) {
	for _, one := range references.Guardrails(g) {
		key := "require"
		if one.GetDeny() != "" {
			key = "deny"
		}
		_, err := Guardrail(one.Guardrail, nil)
		var bad *syntax.Error
		if at := at.At("guardrails", one.List, one.Index, key); one.GetSchema() == "" && errors.As(err, &bad) && !at.Damaged() {
			at.FaultInText(max(0, strings.LastIndex(at.Node().Value, bad.Expr)), fmt.Sprintf("invalid regular expression: %s", bad.Code),
				"correct it; the syntax is RE2, without look-around and back-references")
		}
	}
}
