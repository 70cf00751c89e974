// Package settings has the settings of a server: the message of the configuration file with its defaults, and the snapshot
// of it that every layer reads.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/egress"
)

// Snapshot is what is in effect at one time: the settings, and what follows from them. It is not modified.
type Snapshot struct {
	// ServerSettings has a value for each setting that has a default.
	*teamv1.ServerSettings
	// BaseURL is the URL at which clients reach REST and JSON-RPC, and Address the host:port at which they reach gRPC; ""
	// without a listener.
	BaseURL, Address string
	// Signer signs cards and push notifications; nil if they are not signed.
	Signer *cardsign.Signer
	// Proxies are the trusted proxies.
	Proxies []netip.Prefix
	// Guard decides where connections to webhooks may lead; nil means everywhere.
	Guard *egress.Guard
}

// CheckWebhook returns what is wrong with the URL of a webhook, in words that follow the name of a field. The URL uses http
// or https, has a host, no user and a valid port.
func (s *Snapshot) CheckWebhook(u *url.URL) error {
	if s.Guard == nil {
		return nil
	}
	return s.Guard.Webhook(u)
}

// Live holds the snapshot that is in effect. Its users take it once for each call, so that a call meets one configuration
// from its beginning to its end.
type Live = atomic.Pointer[Snapshot]

// Of returns a Live with settings that are not checked, and defaults for those that are not set.
func Of(s *teamv1.ServerSettings) *Live {
	l, now := &Live{}, &Snapshot{ServerSettings: WithDefaults(s)}
	now.Proxies, _ = prefixes(now.GetTrustedProxies())
	now.BaseURL = now.GetPublicUrl()
	l.Store(now)
	return l
}

// New returns a snapshot of settings, with defaults for those that are not set. baseURL and address are those of the
// listeners, "" without one; allow are addresses to which connections may lead in addition to those of egress.allow. The
// error names the setting that is not valid.
func New(s *teamv1.ServerSettings, baseURL, address string, allow ...string) (*Snapshot, error) {
	if err := check(s); err != nil {
		return nil, err
	}
	now := &Snapshot{ServerSettings: WithDefaults(s), Address: address}
	if address != "" { // public_grpc has no effect without a listener
		now.Address = cmp.Or(s.GetPublicGrpc(), address)
	}
	now.BaseURL = cmp.Or(s.GetPublicUrl(), baseURL)
	var err error
	if now.Proxies, err = prefixes(s.GetTrustedProxies()); err != nil {
		return nil, fmt.Errorf("trusted_proxies: %w", err)
	}
	if now.Guard, err = egress.NewGuard(append(allow, s.GetEgress().GetAllow()...)...); err != nil {
		return nil, fmt.Errorf("egress.allow: %w", err)
	}
	return now, nil
}

// check returns what is wrong with the first setting that is not valid.
func check(s *teamv1.ServerSettings) error {
	if s == nil {
		return nil
	}
	err := protovalidate.Validate(s)
	var invalid *protovalidate.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	v := invalid.Violations[0].Proto
	if at := protovalidate.FieldPathString(v.GetField()); at != "" {
		return fmt.Errorf("%s: %s", at, v.GetMessage())
	}
	return errors.New(v.GetMessage())
}

// prefixes parses IP addresses and CIDRs.
func prefixes(list []string) (all []netip.Prefix, err error) {
	for _, text := range list {
		p, parsing := netip.ParsePrefix(text)
		if parsing != nil {
			var ip netip.Addr
			ip, parsing = netip.ParseAddr(text)
			p = netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen())
		}
		all, err = append(all, p), errors.Join(err, parsing)
	}
	return all, err
}

// WithDefaults returns a copy of settings with the defaults of those that are not set.
func WithDefaults(s *teamv1.ServerSettings) *teamv1.ServerSettings {
	all := &teamv1.ServerSettings{}
	proto.Merge(all, s)
	fill(all.ProtoReflect())
	return all
}

// fill sets the fields that have defaults and are not set, also in messages below m.
func fill(m protoreflect.Message) {
	each(m.Descriptor(), func(f protoreflect.FieldDescriptor) {
		text := option(f, teamv1.E_DefaultValue).String()
		switch {
		case text != "" && !m.Has(f):
			m.Set(f, valueOf(f, text))
		case text != "" || !isPart(f) || !m.Has(f) && !hasDefaults(f.Message()):
		case f.IsList():
			for i := range m.Get(f).List().Len() {
				fill(m.Get(f).List().Get(i).Message())
			}
		default:
			fill(m.Mutable(f).Message())
		}
	})
}

// isPart reports whether a field has messages of the configuration file.
func isPart(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && !f.IsMap() && f.Message().ParentFile().Package() == "team.v1"
}

// hasDefaults reports whether a message has a field with a default, also in messages below it.
func hasDefaults(d protoreflect.MessageDescriptor) (has bool) {
	each(d, func(f protoreflect.FieldDescriptor) {
		has = has || option(f, teamv1.E_DefaultValue).String() != "" || isPart(f) && !f.IsList() && hasDefaults(f.Message())
	})
	return has
}

// valueOf returns the value of a default.
func valueOf(f protoreflect.FieldDescriptor, text string) protoreflect.Value {
	n, _ := strconv.ParseInt(text, 10, 64)
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(text == "true")
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n)) //nolint:gosec // the definition has the value
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.MessageKind:
		d, _ := time.ParseDuration(text)
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect())
	default:
		return protoreflect.ValueOfString(text)
	}
}

// AtStart returns the names of the settings that take effect when a server starts, and not when it reads its file again.
// Dots separate the names of the levels, as in log.format.
func AtStart() []string { return atStart("", (&teamv1.ServerSettings{}).ProtoReflect().Descriptor()) }

func atStart(above string, d protoreflect.MessageDescriptor) (names []string) {
	each(d, func(f protoreflect.FieldDescriptor) {
		switch name := above + f.TextName(); {
		case option(f, teamv1.E_AtStart).Bool():
			names = append(names, name)
		case isPart(f) && !f.IsList():
			names = append(names, atStart(name+".", f.Message())...)
		}
	})
	return names
}

// Continue gives settings that take effect when a server starts the values with which it was started.
func Continue(started, s *teamv1.ServerSettings) {
	for _, name := range AtStart() {
		from, f := find(started, name, protoreflect.Message.Get)
		to, _ := find(s, name, protoreflect.Message.Mutable)
		if from.Has(f) {
			to.Set(f, from.Get(f))
		} else {
			to.Clear(f)
		}
	}
}

// Clear removes settings by name.
func Clear(s *teamv1.ServerSettings, names ...string) {
	for _, name := range names {
		m, f := find(s, name, protoreflect.Message.Mutable)
		m.Clear(f)
	}
}

// find returns the field with a name, which may have dots, and the message that has it. below returns the value of a
// message above it: Get does not modify s.
func find(s *teamv1.ServerSettings, name string, below func(protoreflect.Message, protoreflect.FieldDescriptor) protoreflect.Value) (m protoreflect.Message, f protoreflect.FieldDescriptor) {
	m = s.ProtoReflect()
	for part := range strings.SplitSeq(name, ".") {
		if f != nil {
			m = below(m, f).Message()
		}
		f = m.Descriptor().Fields().ByTextName(part)
	}
	return m, f
}

// each calls visit for each field of a message.
func each(d protoreflect.MessageDescriptor, visit func(protoreflect.FieldDescriptor)) {
	for i := range d.Fields().Len() {
		visit(d.Fields().Get(i))
	}
}

// option returns the value of an option of a field.
func option(f protoreflect.FieldDescriptor, of protoreflect.ExtensionType) protoreflect.Value {
	return f.Options().ProtoReflect().Get(of.TypeDescriptor())
}
