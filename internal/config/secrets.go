package config

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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
			if f := last.Step.FieldDescriptor(); isSecret(f) && f.Kind() == protoreflect.StringKind {
				of.Value.Message().Set(f, hide(last.Value))
			}
		case protopath.MapIndexStep:
			if isSecret(of.Step.FieldDescriptor()) {
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
	return c.setting(key).Equal(other.setting(key)) && maps.EqualFunc(c.secretsOf(key), other.secretsOf(key), secret.Secret.Equal)
}

// setting returns the value of a key of server:, which must be defined.
func (c *Config) setting(key string) (v protoreflect.Value) {
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
func (c *Config) secretsOf(key string) map[string]secret.Secret {
	in := map[string]secret.Secret{}
	for shown, s := range c.secrets {
		if rest, ok := strings.CutPrefix(shown, secret.Hidden+".server."+key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			in[shown] = s
		}
	}
	return in
}

// isSecret reports whether the definition marks a field as a secret.
func isSecret(f protoreflect.FieldDescriptor) bool {
	o, _ := f.Options().(*descriptorpb.FieldOptions)
	return o.GetDebugRedact()
}

// secretKind is what the values of a key with secrets are.
type secretKind int

const (
	secretText secretKind = 1 + iota
	secretMap             // a mapping of names to secrets
)

// secretFields returns the keys of the configuration file whose values are secrets.
var secretFields = sync.OnceValue(func() map[string]secretKind {
	names := map[string]secretKind{}
	eachField(func(f protoreflect.FieldDescriptor) {
		switch {
		case isSecret(f) && f.IsMap():
			names[f.TextName()] = secretMap
		case isSecret(f) && !f.ContainingMessage().IsMapEntry():
			names[f.TextName()] = secretText
		}
	})
	return names
})

// isSecretPath reports whether the value at a path of the file is a secret, such as api_key, or part of one,
// such as a variable of env.
func isSecretPath(path []any) bool {
	message := (&teamv1.ServerConfig{}).ProtoReflect().Descriptor()
	var f protoreflect.FieldDescriptor
	entry := false // the step before was a key of the map f
	for _, step := range path {
		key, ok := step.(string)
		switch {
		case !ok: // an index
		case f != nil && f.IsMap() && !entry:
			message, entry = f.MapValue().Message(), true
		case message == nil:
			return false
		default:
			if f, entry = message.Fields().ByTextName(key), false; f == nil {
				return false
			}
			message = f.Message()
		}
	}
	return f != nil && isSecret(f)
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

// recordSecretFile records a file that ${file:PATH} names for a secret.
func (c *Config) recordSecretFile(name string) { c.secretFiles = append(c.secretFiles, c.Path(name)) }

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

// eachField calls visit for each field of the messages of configuration files and test files.
func eachField(visit func(protoreflect.FieldDescriptor)) {
	seen := map[protoreflect.FullName]bool{}
	var message func(m protoreflect.MessageDescriptor)
	message = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			visit(f)
			if f.IsMap() {
				f = f.MapValue()
				visit(f)
			}
			if f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "team.") {
				message(f.Message())
			}
		}
	}
	message((&teamv1.ServerConfig{}).ProtoReflect().Descriptor())
	message((&teamv1.ScenarioFile{}).ProtoReflect().Descriptor())
}
