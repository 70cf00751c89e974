package a2a

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/nesting"
	"github.com/agentteams/team-server/pkg/a2aerror"
)

// Limits of requests. A request that exceeds one gets an error that names the limit.
const (
	maxParts    = 100
	maxList     = 32       // entries of a list: reference task ids, extensions, output modes
	maxEntry    = 256      // bytes of one entry
	maxMetadata = 64 << 10 // bytes of metadata
	maxKeys     = 256      // keys of metadata
)

// MaxMessage is how many bytes a message may have with what goes along with it, such as earlier messages: an event must
// hold all of it.
const MaxMessage = 2 << 20

// idPattern matches ids that clients may send.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,128}$`)

// checker collects the violations of a request, so that the client sees all of them at once.
type checker struct{ a2aerror.Faults }

// id checks an optional id.
func (c *checker) id(field, id string) {
	if id != "" && !idPattern.MatchString(id) {
		c.Add(field, "must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ -")
	}
}

// needID checks a required id.
func (c *checker) needID(field, id string) {
	if id == "" {
		c.Add(field, "is required")
		return
	}
	c.id(field, id)
}

// task checks the tenant and the id of a task.
func (c *checker) task(tenant, id string) {
	c.needID("id", id)
	c.id("tenant", tenant)
}

// count checks the number of entries of a list.
func (c *checker) count(field string, values []string) {
	if len(values) > maxList {
		c.Add(field, "has %d entries; at most %d are allowed", len(values), maxList)
	}
}

// list checks the number of entries of a list and the length of each.
func (c *checker) list(field string, values []string) {
	c.count(field, values)
	for i, v := range values {
		if len(v) > maxEntry {
			c.Add(field+"["+strconv.Itoa(i)+"]", "has %d bytes; at most %d are allowed", len(v), maxEntry)
		}
	}
}

// Limits of what a caller of the Agent service may pass to an agent.
const (
	maxShown       = 100     // messages of the history
	maxTransfers   = 64      // agents to which control may be handed
	maxDescription = 4 << 10 // bytes of the description of one of them
)

// shown checks the history and the transfer targets of a request.
func (c *checker) shown(req *teamv1.ProcessRequest) {
	if n := len(req.GetHistory()); n > maxShown {
		c.Add("history", "has %d messages; at most %d are allowed", n, maxShown)
	}
	c.transfers(req.GetTransfers())
}

// transfers checks the agents to which control may be handed.
func (c *checker) transfers(targets []*teamv1.TransferTarget) {
	if n := len(targets); n > maxTransfers {
		c.Add("transfers", "has %d entries; at most %d are allowed", n, maxTransfers)
		return
	}
	for i, t := range targets {
		c.needID("transfers["+strconv.Itoa(i)+"].id", t.GetId())
	}
}

// unsupported adds a violation if a field that is not supported has n entries and n is greater
// than 0.
func (c *checker) unsupported(field string, n int) {
	if n > 0 {
		c.Add(field, "is not supported yet; omit it")
	}
}

// historyLength checks an optional history length.
func (c *checker) historyLength(field string, n *int32) {
	if n != nil && *n < 0 {
		c.Add(field, "is %d; it must be 0 or more, or omitted", *n)
	}
}

// message checks the message of a send request.
func (c *checker) message(m *a2av1.Message) {
	if m == nil {
		c.Add("message", "is required")
		return
	}
	c.needID("message.messageId", m.GetMessageId())
	c.id("message.contextId", m.GetContextId())
	c.id("message.taskId", m.GetTaskId())
	switch m.GetRole() {
	case a2av1.Role_ROLE_USER:
	case a2av1.Role_ROLE_UNSPECIFIED:
		c.Add("message.role", "is required; a client sends ROLE_USER")
	case a2av1.Role_ROLE_AGENT:
		c.Add("message.role", "is ROLE_AGENT; a client sends ROLE_USER")
	default:
		c.Add("message.role", "%d is unknown; a client sends ROLE_USER", m.GetRole())
	}
	c.parts(m.GetParts())
	c.metadata("message.metadata", m.GetMetadata())
	c.list("message.extensions", m.GetExtensions())
	c.references(m)
}

// references checks the ids of the tasks that a message refers to.
func (c *checker) references(m *a2av1.Message) {
	const field = "message.referenceTaskIds"
	ids := m.GetReferenceTaskIds()
	c.count(field, ids)
	for i, id := range ids {
		c.needID(field+"["+strconv.Itoa(i)+"]", id)
	}
}

// parts checks the parts of a message.
func (c *checker) parts(parts []*a2av1.Part) {
	switch {
	case len(parts) == 0:
		c.Add("message.parts", "is required; send at least one part, such as {\"text\": \"…\"}")
	case len(parts) > maxParts:
		c.Add("message.parts", "has %d entries; at most %d are allowed", len(parts), maxParts)
	}
	empty := true
	for i, p := range parts {
		c.metadata("message.parts["+strconv.Itoa(i)+"].metadata", p.GetMetadata())
		switch k := p.GetContent().(type) {
		case nil:
			c.Add("message.parts["+strconv.Itoa(i)+"]", "has no content; set one of text, raw, url, data")
			empty = false
		case *a2av1.Part_Text:
			empty = empty && k.Text == ""
		case *a2av1.Part_Url:
			empty = empty && k.Url == ""
		case *a2av1.Part_Raw:
			empty = empty && len(k.Raw) == 0
		case *a2av1.Part_Data:
			if nesting.TooDeep(k.Data) { // of a Go program: what comes over the wire is checked when it is read
				c.Add("message.parts["+strconv.Itoa(i)+"].data", nesting.Text)
			}
			empty = false
		default:
			empty = false
		}
	}
	if len(parts) > 0 && empty {
		c.Add("message.parts", "are all empty; send some text, data or a file")
	}
}

// metadata checks the size of metadata, and that a TeamRun in it is valid.
func (c *checker) metadata(field string, s *structpb.Struct) {
	if len(s.GetFields()) > maxKeys {
		c.Add(field, "has %d keys; at most %d are allowed", len(s.GetFields()), maxKeys)
	}
	if n := proto.Size(s); n > maxMetadata {
		c.Add(field, "has %d bytes; at most %d are allowed", n, maxMetadata)
	}
	if nesting.TooDeepStruct(s) {
		c.Add(field, nesting.Text)
	}
	if _, ours := s.GetFields()[TeamRunURI]; ours && RunOf(s) == nil {
		c.Add(field+`["`+TeamRunURI+`"]`, "is not a valid TeamRun of this extension")
	}
}

// send checks a SendMessageRequest.
func (c *checker) send(req *a2av1.SendMessageRequest) {
	c.id("tenant", req.GetTenant())
	c.message(req.GetMessage())
	c.metadata("metadata", req.GetMetadata())
	conf := req.GetConfiguration()
	if conf != nil {
		c.historyLength("configuration.historyLength", conf.HistoryLength)
	}
	c.list("configuration.acceptedOutputModes", conf.GetAcceptedOutputModes())
}

// Limits of push configurations, in bytes.
const (
	maxPushURL    = 2 << 10
	maxPushSecret = 4 << 10
)

// schemePattern matches authentication schemes of HTTP, which are tokens of at most 64 characters
// (RFC 9110, section 11.1).
var schemePattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")

// secretPattern matches values that can be sent in a header unchanged.
var secretPattern = regexp.MustCompile(`^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$`)

// push checks a push configuration. prefix is its place in the request, and allowed is
// Config.CheckWebhook. Violations do not repeat values that may be secret.
func (c *checker) push(prefix string, p *a2av1.TaskPushNotificationConfig, allowed func(*url.URL) error) {
	c.id(prefix+"tenant", p.GetTenant())
	c.id(prefix+"id", p.GetId())
	c.receiver(prefix+"url", p.GetUrl(), allowed)
	c.secret(prefix+"token", p.GetToken())
	if a := p.GetAuthentication(); a != nil {
		switch {
		case a.GetScheme() == "":
			c.Add(prefix+"authentication.scheme", "is required, for example Bearer; omit authentication to send no credentials")
		case !schemePattern.MatchString(a.GetScheme()):
			c.Add(prefix+"authentication.scheme", "is not an HTTP authentication scheme such as Bearer or Basic")
		}
		c.secret(prefix+"authentication.credentials", a.GetCredentials())
	}
}

// receiver checks the URL of the receiver of notifications.
func (c *checker) receiver(field, raw string, allowed func(*url.URL) error) {
	u, err := receiver(raw)
	if err == nil && allowed != nil {
		err = allowed(u)
	}
	if err != nil {
		c.Add(field, "%v", err)
	}
}

// receiver parses the URL of the receiver of notifications. The error follows the name of a field.
func receiver(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, errors.New("is required; send an address such as https://example.com/hook")
	case len(raw) > maxPushURL:
		return nil, fmt.Errorf("has %d bytes; at most %d are allowed", len(raw), maxPushURL)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("is not a valid URL; send an address such as https://example.com/hook")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with https:// or http://")
	case u.Hostname() == "":
		return nil, errors.New("has no host; send an address such as https://example.com/hook")
	case u.User != nil:
		return nil, errors.New("contains a user or password; send them in authentication")
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return nil, errors.New("has an invalid port; it must be 1 to 65535")
		}
	}
	return u, nil
}

// secret checks a value that is sent in a header.
func (c *checker) secret(field, s string) {
	switch {
	case s == "":
	case len(s) > maxPushSecret:
		c.Add(field, "has %d bytes; at most %d are allowed", len(s), maxPushSecret)
	case !secretPattern.MatchString(s):
		c.Add(field, "contains characters that cannot be sent in a header; use printable ASCII without leading or trailing spaces")
	}
}

// inlinePush checks the push configuration in a send request.
func (c *checker) inlinePush(req *a2av1.SendMessageRequest, p *a2av1.TaskPushNotificationConfig, allowed func(*url.URL) error) {
	c.push(inlineField, p, allowed)
	if id := p.GetTaskId(); id != "" && id != req.GetMessage().GetTaskId() {
		c.Add(inlineField+"taskId", "must be omitted or match the task of the message")
	}
	if t := p.GetTenant(); t != "" && t != req.GetTenant() {
		c.Add(inlineField+"tenant", "must be omitted or match the tenant of the request")
	}
}

// inlineField is the place of a push configuration in a send request.
const inlineField = "configuration.taskPushNotificationConfig."
