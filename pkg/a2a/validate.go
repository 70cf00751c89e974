package a2a

import (
	"regexp"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// MaxPageBytes is how much of a list goes into one answer, as encoded: gRPC clients take
// 4 MiB unless they are told to take more.
const MaxPageBytes = 3 << 20

// Limits of what is accepted. Each is answered with a violation that names it.
const (
	maxParts    = 100
	maxList     = 32       // reference task ids, extensions, output modes
	maxEntry    = 256      // bytes of one of them
	maxMetadata = 64 << 10 // bytes
	maxKeys     = 256      // of metadata
	maxPage     = 100
	defaultPage = 50
	maxMessage  = 2 << 20 // bytes: what one event may hold
)

// PageSize is how many entries a page of a list has: size, 1 to 100, or 50 for 0. A
// fault names the field.
func PageSize(field string, size int32) (int, error) {
	var c checker
	n := c.pageSize(field, size)
	return n, c.Err()
}

func (c *checker) pageSize(field string, size int32) int {
	switch {
	case size == 0:
		return defaultPage
	case size < 0 || size > maxPage:
		c.pageFault(field, size)
	}
	return int(size)
}

func (c *checker) pageFault(field string, size int32) {
	c.Add(field, "is %d; it must be 1 to %d, or left out for %d", size, maxPage, defaultPage)
}

// idPattern is what ids of callers may look like.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,128}$`)

// checker gathers violations, so that a caller sees all of them at once.
type checker struct{ Faults }

// id checks an id that may be empty.
func (c *checker) id(field, id string) {
	if id != "" && !idPattern.MatchString(id) {
		c.Add(field, "must have 1 to 128 of the characters A-Z a-z 0-9 . _ ~ -")
	}
}

// needID checks an id that must be there.
func (c *checker) needID(field, id string) {
	if id == "" {
		c.Add(field, "is required")
		return
	}
	c.id(field, id)
}

// task checks what names a task.
func (c *checker) task(tenant, id string) {
	c.needID("id", id)
	c.id("tenant", tenant)
}

// count checks how many values there are.
func (c *checker) count(field string, values []string) {
	if len(values) > maxList {
		c.Add(field, "has %d entries; at most %d are taken", len(values), maxList)
	}
}

// list checks how many values there are, and how long each is.
func (c *checker) list(field string, values []string) {
	c.count(field, values)
	for i, v := range values {
		if len(v) > maxEntry {
			c.Add(field+"["+strconv.Itoa(i)+"]", "has %d bytes; at most %d are taken", len(v), maxEntry)
		}
	}
}

// What a caller of the Agent service may show an agent.
const (
	maxShown     = 100 // messages of history
	maxTransfers = 64  // members to hand over to
)

// shown checks what a call shows of what was said before, and to whom it may hand over.
func (c *checker) shown(req *teamv1.ProcessRequest) {
	if n := len(req.GetHistory()); n > maxShown {
		c.Add("history", "has %d messages; at most %d are taken", n, maxShown)
	}
	if n := len(req.GetTransfers()); n > maxTransfers {
		c.Add("transfers", "has %d entries; at most %d are taken", n, maxTransfers)
		return
	}
	for i, t := range req.GetTransfers() {
		c.needID("transfers["+strconv.Itoa(i)+"].id", t.GetId())
	}
}

// unsupported refuses what cannot be heeded, where there is some of it.
func (c *checker) unsupported(field string, n int) {
	if n > 0 {
		c.Add(field, "is not supported yet; leave it out")
	}
}

func (c *checker) historyLength(field string, n *int32) {
	if n != nil && *n < 0 {
		c.Add(field, "is %d; it must be 0 or more, or left out", *n)
	}
}

// message checks the message of a send.
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

func (c *checker) parts(parts []*a2av1.Part) {
	switch {
	case len(parts) == 0:
		c.Add("message.parts", "is required; send at least one part, such as {\"text\": \"…\"}")
	case len(parts) > maxParts:
		c.Add("message.parts", "has %d entries; at most %d are taken", len(parts), maxParts)
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
		default:
			empty = false
		}
	}
	if len(parts) > 0 && empty {
		c.Add("message.parts", "are all empty; send some text, data or a file")
	}
}

// metadata checks the size of metadata, and that what is meant for this server
// can be understood.
func (c *checker) metadata(field string, s *structpb.Struct) {
	if len(s.GetFields()) > maxKeys {
		c.Add(field, "has %d keys; at most %d are taken", len(s.GetFields()), maxKeys)
	}
	if n := proto.Size(s); n > maxMetadata {
		c.Add(field, "has %d bytes; at most %d are taken", n, maxMetadata)
	}
	if _, ours := s.GetFields()[TeamRunURI]; ours && RunOf(s) == nil {
		c.Add(field+`["`+TeamRunURI+`"]`, "is no TeamRun of this extension")
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
