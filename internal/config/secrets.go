package config

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/secret"
)

// Secret returns the secret that a value of Server stands for: there, the values of the fields that the
// definition of the message marks with debug_redact are replaced, so that nothing prints them.
func (c *Config) Secret(value string) secret.Secret { return c.secrets[value] }

// Secrets returns all secrets of the file.
func (c *Config) Secrets() []secret.Secret { return slices.Collect(maps.Values(c.secrets)) }

// conceal replaces each secret of Server by a placeholder with its path, and keeps the secret in secrets.
func (c *Config) conceal() error {
	c.secrets = map[string]secret.Secret{}
	return protorange.Range(c.Server.ProtoReflect(), func(path protopath.Values) error {
		hide := func(v protoreflect.Value) protoreflect.Value {
			shown := secret.Hidden + path.Path[1:].String()
			c.secrets[shown] = secret.New(v.String())
			return protoreflect.ValueOfString(shown)
		}
		last, of := path.Index(-1), path.Index(-2)
		switch last.Step.Kind() {
		case protopath.FieldAccessStep:
			if f := last.Step.FieldDescriptor(); source.IsSecret(f) && f.Kind() == protoreflect.StringKind {
				of.Value.Message().Set(f, hide(last.Value))
			}
		case protopath.MapIndexStep:
			if source.IsSecret(of.Step.FieldDescriptor()) {
				of.Value.Map().Set(last.Step.MapIndex(), hide(last.Value))
			}
		default:
		}
		return nil
	})
}

// Same reports whether c and other serve the same: equal content, and equal content of the files from which agents
// are built.
func (c *Config) Same(other *Config) bool {
	return proto.Equal(c.Server, other.Server) && maps.EqualFunc(c.secrets, other.secrets, secret.Secret.Equal) &&
		maps.EqualFunc(c.scripts, other.scripts, bytes.Equal) && maps.EqualFunc(c.schemas, other.schemas, bytes.Equal) &&
		maps.EqualFunc(c.trusted, other.trusted, bytes.Equal)
}

// SameSetting reports whether a key of server: has the same value in c and other, including the secrets in it. Dots
// separate the names of the levels, as in log.format.
func (c *Config) SameSetting(other *Config, key string) bool {
	return setting(c, key).Equal(setting(other, key)) && maps.EqualFunc(secretsOf(c, key), secretsOf(other, key), secret.Secret.Equal)
}

// setting returns the value of a key of server:, which must be defined.
func setting(c *Config, key string) (v protoreflect.Value) {
	at := c.Server.GetServer().ProtoReflect()
	for name := range strings.SplitSeq(key, ".") {
		f := at.Descriptor().Fields().ByTextName(name)
		if v = at.Get(f); f.Message() != nil && !f.IsList() && !f.IsMap() {
			at = v.Message()
		}
	}
	return v
}

// secretsOf returns the secrets in a key of server:, by what Server has in their place.
func secretsOf(c *Config, key string) map[string]secret.Secret {
	in := map[string]secret.Secret{}
	for shown, s := range c.secrets {
		if rest, ok := strings.CutPrefix(shown, secret.Hidden+".server."+key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			in[shown] = s
		}
	}
	return in
}

// EncryptionKeys returns the keys that encrypt the secrets in the store, the one that encrypts first.
func (c *Config) EncryptionKeys() []secret.Key {
	var keys []secret.Key
	for _, k := range c.Server.GetServer().GetEncryption().GetKeys() {
		keys = append(keys, secret.Key{ID: k.GetId(), Value: c.Secret(k.GetValue())})
	}
	return keys
}

// StoreURL returns the URL of the store, "" if it is not set.
func (c *Config) StoreURL() string { return c.Secret(c.Server.GetServer().GetStore()).Reveal() }

// StoreListen returns the URL for LISTEN, "" if it is not set.
func (c *Config) StoreListen() secret.Secret {
	return c.Secret(c.Server.GetServer().GetStoreListen())
}

// SecretFiles returns the paths of the files with secrets that the configuration names: those of ${file:PATH} in
// values that are secrets, and of private keys. Each is listed once.
func (c *Config) SecretFiles() []string {
	all := slices.Clone(c.secretFiles)
	add := func(name string) {
		if name != "" {
			all = append(all, c.Path(name))
		}
	}
	add(c.Server.GetServer().GetTls().GetKey())
	for _, k := range c.Server.GetServer().GetSigning().GetKeys() {
		add(k.GetFile())
	}
	for _, a := range c.Server.GetAgents() {
		add(a.GetGrpc().GetTls().GetKey())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// String names the file only.
func (c *Config) String() string { return "configuration " + c.File }
