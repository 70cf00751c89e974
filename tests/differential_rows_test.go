package tests

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// form is what an error is on each binding.
type form struct {
	code    string // gRPC
	rest    int    // HTTP status of REST
	rpc     int    // JSON-RPC code
	rpcHTTP int    // HTTP status of JSON-RPC
	domain  string
	retry   bool // with RetryInfo
}

const (
	ofA2A     = "a2a-protocol.org"
	ownErrors = "team-server"
)

// forms are the table of A2A 1.0.1 and that of the server's own errors, for calls
// of the A2A service. They are written down here, not taken from the product.
var forms = map[string]form{
	"TASK_NOT_FOUND":                     {"NotFound", 404, -32001, 200, ofA2A, false},
	"TASK_NOT_CANCELABLE":                {"FailedPrecondition", 400, -32002, 200, ofA2A, false},
	"PUSH_NOTIFICATION_NOT_SUPPORTED":    {"FailedPrecondition", 400, -32003, 200, ofA2A, false},
	"UNSUPPORTED_OPERATION":              {"FailedPrecondition", 400, -32004, 200, ofA2A, false},
	"CONTENT_TYPE_NOT_SUPPORTED":         {"InvalidArgument", 400, -32005, 200, ofA2A, false},
	"EXTENDED_AGENT_CARD_NOT_CONFIGURED": {"FailedPrecondition", 400, -32007, 200, ofA2A, false},
	"EXTENSION_SUPPORT_REQUIRED":         {"FailedPrecondition", 400, -32008, 200, ofA2A, false},
	"VERSION_NOT_SUPPORTED":              {"FailedPrecondition", 400, -32009, 200, ofA2A, false},
	"INVALID_REQUEST":                    {"InvalidArgument", 400, -32602, 200, ownErrors, false},
	"MESSAGE_ID_REUSED":                  {"InvalidArgument", 400, -32602, 200, ownErrors, false},
	"AGENT_NOT_FOUND":                    {"NotFound", 404, -32602, 200, ownErrors, false},
	"QUESTION_ANSWERED":                  {"FailedPrecondition", 400, -32023, 200, ownErrors, false},
	"HALTED":                             {"FailedPrecondition", 400, -32023, 200, ownErrors, false},
	"INSUFFICIENT_RESOURCES":             {"ResourceExhausted", 429, -32020, 429, ownErrors, false},
	"STORE_UNAVAILABLE":                  {"Unavailable", 503, -32021, 503, ownErrors, true},
	"SHUTTING_DOWN":                      {"Unavailable", 503, -32021, 503, ownErrors, true},
	"UNAUTHENTICATED":                    {"Unauthenticated", 401, -32024, 401, ownErrors, false},
	"PERMISSION_DENIED":                  {"PermissionDenied", 403, -32025, 403, ownErrors, false},
	"WAIT_TIMEOUT":                       {"DeadlineExceeded", 504, -32022, 200, ownErrors, false},
	"TIMEOUT_EXCEEDED":                   {"DeadlineExceeded", 504, -32022, 200, ownErrors, false},
	"DATA_LOSS":                          {"DataLoss", 500, -32603, 200, ownErrors, false},
	"INTERNAL":                           {"Internal", 500, -32603, 200, ownErrors, false},
}

// tooBig is the form of a limit of size.
var tooBig = form{"ResourceExhausted", 413, -32020, 413, ownErrors, false}

// refusal is a way to be refused: of some operations, for one reason.
type refusal struct {
	reason string
	how    string
	rpcs   []string
	by     string // the target that calls; empty is ann
	about  about
	fields []string // of violations
	form   *form    // nil is that of the reason
	// while makes it so, until it is undone.
	while func(h *house) (undo func())
	// untold: over gRPC the transport answers, which knows codes only.
	untold bool
	// but is the name of an operation that is not refused.
	but string
}

var (
	sends  = []string{"SendMessage", "SendStreamingMessage"}
	pushes = []string{
		"CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig",
	}
	tasks   = slices.Concat([]string{"GetTask", "CancelTask", "SubscribeToTask"}, pushes)
	aboutIt = slices.Concat(sends, tasks) // that can name a task
	every   = slices.Concat(aboutIt, []string{"ListTasks", "GetExtendedAgentCard"})
	stored  = slices.Concat(aboutIt, []string{"ListTasks"})
)

// refusals are every way to be refused.
func refusals(h *house) []refusal {
	later := forms["INSUFFICIENT_RESOURCES"] // streams end
	later.retry = true
	working := about{tenant: "works", task: h.id("working")}
	list := slices.Concat(badCalls(h, working), badMessages(h), badTasks(h), badPushes(h), badLists())
	list = append(list,
		refusal{reason: "EXTENDED_AGENT_CARD_NOT_CONFIGURED", how: "for others only", rpcs: []string{"GetExtendedAgentCard"}, about: about{tenant: "hides"}},
		refusal{reason: "UNSUPPORTED_OPERATION", how: "no extended card", rpcs: []string{"GetExtendedAgentCard"}, about: about{tenant: "echoes"}},
		refusal{reason: "AGENT_NOT_FOUND", how: "an unknown tenant", rpcs: slices.Concat(sends, []string{"ListTasks", "GetExtendedAgentCard"}), about: about{tenant: "nobody"}},
		refusal{reason: "AGENT_NOT_FOUND", how: "a tenant that can be none", rpcs: []string{"GetExtendedAgentCard"}, about: about{tenant: "a b"}},
		refusal{reason: "INVALID_REQUEST", how: "no tenant", rpcs: slices.Concat(sends, []string{"GetExtendedAgentCard"}), fields: []string{"tenant"}},
		refusal{reason: "INSUFFICIENT_RESOURCES", how: "no seat", rpcs: []string{"SendStreamingMessage", "SubscribeToTask"}, by: "one seat", form: &later,
			about: about{tenant: "works", task: h.id("seated")}, while: (*house).seated},
		refusal{reason: "HALTED", how: "the server is halted", rpcs: sends, by: "halted", about: about{tenant: "echoes"}},
		refusal{reason: "STORE_UNAVAILABLE", how: "every operation of the store fails", rpcs: stored, about: working,
			while: func(h *house) func() { h.store.Break(faulty.Always(faulty.Fail)); return h.store.Heal }},
		refusal{reason: "STORE_UNAVAILABLE", how: "no task can be made", rpcs: sends, about: about{tenant: "echoes"},
			while: func(h *house) func() { h.store.Break(faulty.Always(faulty.Fail, faulty.Create)); return h.store.Heal }},
		refusal{reason: "DATA_LOSS", how: "a record is damaged", rpcs: aboutIt, about: working,
			while: func(h *house) func() { return h.store.falls(fmt.Errorf("event 3: %w", runs.ErrDataLoss)) }},
		refusal{reason: "INTERNAL", how: "a fault that nobody thought of", rpcs: stored, about: working,
			while: func(h *house) func() { return h.store.falls(errSecret) }},
		refusal{reason: "TIMEOUT_EXCEEDED", how: "the store hangs", rpcs: stored, by: "in a hurry", untold: true, about: working, while: (*house).hanging},
		refusal{reason: "WAIT_TIMEOUT", how: "the agent works on", rpcs: sends, by: "in less of a hurry", untold: true, but: "SendMessage at once", about: about{tenant: "works"}},
		refusal{reason: "WAIT_TIMEOUT", how: "the task works on", rpcs: []string{"SubscribeToTask"}, by: "in less of a hurry", untold: true, about: working},
		refusal{reason: "WAIT_TIMEOUT", how: "the agent does not heed it", rpcs: []string{"CancelTask"}, by: "in less of a hurry", untold: true, about: about{task: h.id("deaf")}},
	)
	return list
}

// badCalls are refused for what comes with the call.
func badCalls(h *house, valid about) []refusal {
	var list []refusal
	for _, by := range []string{"no key", "another scheme"} {
		list = append(list, refusal{reason: "UNAUTHENTICATED", how: by, rpcs: every, by: by, about: valid})
	}
	for _, rpc := range every {
		list = append(list, refusal{reason: "UNAUTHENTICATED", how: "a wrong key", rpcs: []string{rpc}, by: "a wrong key for " + rpc, about: valid})
	}
	for _, by := range []string{"version 0.5", "version 99.0", "no version"} {
		list = append(list, refusal{reason: "VERSION_NOT_SUPPORTED", how: by, rpcs: every, by: by, about: valid})
	}
	for _, by := range []string{"no extension", "another extension"} {
		list = append(list, refusal{reason: "EXTENSION_SUPPORT_REQUIRED", how: by, rpcs: every, by: by, about: valid})
	}
	return append(list,
		refusal{reason: "INVALID_REQUEST", how: "a bad depth", rpcs: every, by: "a bad depth", about: valid, fields: []string{"team-path"}},
		refusal{reason: "INVALID_REQUEST", how: "a bad cursor", rpcs: []string{"SendStreamingMessage", "SubscribeToTask"}, by: "a bad cursor", about: valid, fields: []string{"Last-Event-ID"}},
		refusal{reason: "INSUFFICIENT_RESOURCES", how: "a body over 4 MiB", rpcs: []string{"SendMessage", "SendStreamingMessage", "CancelTask", "CreateTaskPushNotificationConfig"},
			form: &tooBig, untold: true, about: about{tenant: "works", task: h.id("working"), change: func(m proto.Message) {
				switch req := m.(type) {
				case *a2av1.SendMessageRequest:
					req.Message.Parts = agent.TextParts(long(4 << 20))
				case *a2av1.CancelTaskRequest:
					req.Metadata = texts("x", long(4<<20))
				case *a2av1.TaskPushNotificationConfig:
					req.Token = long(4 << 20)
				}
			}}},
	)
}

func texts(key, value string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)}}
}

// sending is a message to an agent that is changed.
func sending(change func(*a2av1.SendMessageRequest)) about {
	return about{tenant: "echoes", change: func(m proto.Message) { change(m.(*a2av1.SendMessageRequest)) }}
}

func many[T any](n int, v T) []T { return slices.Repeat([]T{v}, n) }

func configured(req *a2av1.SendMessageRequest) *a2av1.SendMessageConfiguration {
	if req.GetConfiguration() == nil {
		req.Configuration = &a2av1.SendMessageConfiguration{}
	}
	return req.GetConfiguration()
}

// badMessages are refused for what is sent.
func badMessages(h *house) []refusal {
	var list []refusal
	bad := func(how string, change func(*a2av1.SendMessageRequest), fields ...string) {
		list = append(list, refusal{reason: "INVALID_REQUEST", how: how, rpcs: sends, about: sending(change), fields: fields})
	}
	other := func(reason, how string, about about, fields ...string) {
		list = append(list, refusal{reason: reason, how: how, rpcs: sends, about: about, fields: fields})
	}
	bad("no message", func(r *a2av1.SendMessageRequest) { r.Message = nil }, "message")
	bad("no message id", func(r *a2av1.SendMessageRequest) { r.Message.MessageId = "" }, "message.messageId")
	bad("a message id that can be none", func(r *a2av1.SendMessageRequest) { r.Message.MessageId = "a b" }, "message.messageId")
	bad("a long message id", func(r *a2av1.SendMessageRequest) { r.Message.MessageId = long(129) }, "message.messageId")
	bad("no role", func(r *a2av1.SendMessageRequest) { r.Message.Role = 0 }, "message.role")
	bad("the role of an agent", func(r *a2av1.SendMessageRequest) { r.Message.Role = a2av1.Role_ROLE_AGENT }, "message.role")
	bad("an unknown role", func(r *a2av1.SendMessageRequest) { r.Message.Role = 42 }, "message.role")
	bad("no parts", func(r *a2av1.SendMessageRequest) { r.Message.Parts = nil }, "message.parts")
	bad("an empty part", func(r *a2av1.SendMessageRequest) { r.Message.Parts = []*a2av1.Part{{}} }, "message.parts[0]")
	bad("an empty text", func(r *a2av1.SendMessageRequest) { r.Message.Parts = agent.TextParts("") }, "message.parts")
	bad("too many parts", func(r *a2av1.SendMessageRequest) { r.Message.Parts = many(101, r.GetMessage().GetParts()[0]) }, "message.parts")
	bad("a bad context", func(r *a2av1.SendMessageRequest) { r.Message.ContextId = "a b" }, "message.contextId")
	bad("a bad task", func(r *a2av1.SendMessageRequest) { r.Message.TaskId = "a b" }, "message.taskId")
	bad("a bad tenant", func(r *a2av1.SendMessageRequest) { r.Tenant = "a b" }, "tenant")
	bad("too many references", func(r *a2av1.SendMessageRequest) { r.Message.ReferenceTaskIds = many(33, "x") }, "message.referenceTaskIds")
	bad("a bad reference", func(r *a2av1.SendMessageRequest) { r.Message.ReferenceTaskIds = []string{"x", ""} }, "message.referenceTaskIds[1]")
	bad("too many extensions", func(r *a2av1.SendMessageRequest) { r.Message.Extensions = many(33, "x") }, "message.extensions")
	bad("large metadata of the message", func(r *a2av1.SendMessageRequest) { r.Message.Metadata = texts("x", long(65<<10)) }, "message.metadata")
	bad("large metadata", func(r *a2av1.SendMessageRequest) { r.Metadata = texts("x", long(65<<10)) }, "metadata")
	bad("large metadata of a part", func(r *a2av1.SendMessageRequest) { r.Message.Parts[0].Metadata = texts("x", long(65<<10)) }, "message.parts[0].metadata")
	bad("a negative history length", func(r *a2av1.SendMessageRequest) { configured(r).HistoryLength = proto.Int32(-1) }, "configuration.historyLength")
	bad("too many output modes", func(r *a2av1.SendMessageRequest) { configured(r).AcceptedOutputModes = many(33, "x") }, "configuration.acceptedOutputModes")
	bad("a TeamRun that is none", func(r *a2av1.SendMessageRequest) { r.Metadata = texts(a2a.TeamRunURI, "x") }, `metadata["`+a2a.TeamRunURI+`"]`)
	bad("a bad receiver", func(r *a2av1.SendMessageRequest) {
		configured(r).TaskPushNotificationConfig = &a2av1.TaskPushNotificationConfig{Url: "ftp://x"}
	}, "configuration.taskPushNotificationConfig.url")
	bad("two faults", func(r *a2av1.SendMessageRequest) { r.Message.MessageId, r.Message.Role = "", 0 }, "message.messageId", "message.role")
	other("INVALID_REQUEST", "another context than the task's", about{task: h.id("asking"), change: func(m proto.Message) {
		m.(*a2av1.SendMessageRequest).Message.ContextId = "elsewhere"
	}}, "message.contextId")
	other("INVALID_REQUEST", "a question that is not open", about{task: h.id("asking"), change: func(m proto.Message) {
		m.(*a2av1.SendMessageRequest).Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{a2a.TeamRunURI: structpb.NewStructValue(texts("question", "none"))}}
	}}, `metadata["`+a2a.TeamRunURI+`"].question`)
	list = append(list, refusal{reason: "MESSAGE_ID_REUSED", how: "of a message that began a task", rpcs: sends,
		but: "SendMessage replied to directly", // by an agent that no message was sent to
		about: sending(func(r *a2av1.SendMessageRequest) {
			r.Message.MessageId, r.Message.Parts = "first-completed", agent.TextParts("Low tide")
		})})
	other("MESSAGE_ID_REUSED", "to a task that asks", about{task: h.id("asking"), change: func(m proto.Message) {
		m.(*a2av1.SendMessageRequest).Message.MessageId = "first-canceled" // to the same agent
	}})
	other("QUESTION_ANSWERED", "a second answer", about{task: h.id("answered"), change: func(m proto.Message) {
		m.(*a2av1.SendMessageRequest).Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{a2a.TeamRunURI: structpb.NewStructValue(texts("question", h.answered))}}
	}})
	other("TASK_NOT_FOUND", "a reference to nothing", sending(func(r *a2av1.SendMessageRequest) { r.Message.ReferenceTaskIds = []string{"nothing"} }))
	other("CONTENT_TYPE_NOT_SUPPORTED", "a part that is not taken", about{tenant: "reads", change: func(m proto.Message) {
		m.(*a2av1.SendMessageRequest).Message.Parts[0].MediaType = "image/png"
	}}, "message.parts[0].mediaType")
	other("CONTENT_TYPE_NOT_SUPPORTED", "nothing that is answered with", about{tenant: "reads", change: func(m proto.Message) {
		configured(m.(*a2av1.SendMessageRequest)).AcceptedOutputModes = []string{"image/png"}
	}}, "configuration.acceptedOutputModes")
	list = append(list, refusal{reason: "INSUFFICIENT_RESOURCES", how: "a message over 2 MiB", rpcs: sends, form: &tooBig,
		about: sending(func(r *a2av1.SendMessageRequest) { r.Message.Parts = agent.TextParts(long(2 << 20)) })})
	return list
}

// badTasks are refused for the task that they are about.
func badTasks(h *house) []refusal {
	list := []refusal{
		{reason: "TASK_NOT_FOUND", how: "unknown", rpcs: aboutIt, about: about{task: "nothing"}},
		{reason: "TASK_NOT_FOUND", how: "of somebody else", rpcs: aboutIt, by: "bob", about: about{task: h.id("working")}},
		{reason: "TASK_NOT_FOUND", how: "of another tenant", rpcs: aboutIt, about: about{tenant: "echoes", task: h.id("working")}},
		{reason: "TASK_NOT_FOUND", how: "of an unknown tenant", rpcs: aboutIt, about: about{tenant: "nobody", task: h.id("working")}},
		{reason: "TASK_NOT_FOUND", how: "a delegation that there is not", rpcs: aboutIt, about: about{task: h.id("working") + "~1"}},
		{reason: "TASK_NOT_FOUND", how: "an unknown configuration", rpcs: []string{"GetTaskPushNotificationConfig"}, about: about{task: h.id("working")}},
		{reason: "PERMISSION_DENIED", how: "it asks a role", rpcs: sends, about: about{task: h.id("approving")}},
		{reason: "INVALID_REQUEST", how: "a bad id", rpcs: []string{"GetTask", "CancelTask", "SubscribeToTask"}, about: about{task: "a b"}, fields: []string{"id"}},
		{reason: "INVALID_REQUEST", how: "a long id", rpcs: []string{"GetTask", "CancelTask", "SubscribeToTask"}, about: about{task: long(129)}, fields: []string{"id"}},
		{reason: "INVALID_REQUEST", how: "a bad id", rpcs: pushes, about: about{task: "a b"}, fields: []string{"taskId"}},
		{reason: "INVALID_REQUEST", how: "a bad tenant", rpcs: tasks, about: about{tenant: "a b", task: h.id("working")}, fields: []string{"tenant"}},
		{reason: "INVALID_REQUEST", how: "a negative history length", rpcs: []string{"GetTask"}, about: about{task: h.id("working"), change: func(m proto.Message) {
			m.(*a2av1.GetTaskRequest).HistoryLength = proto.Int32(-1)
		}}, fields: []string{"historyLength"}},
	}
	for _, id := range []string{"a/b", "a?b", "a#b", "ä", "a\x00b"} { // that a path could lose
		list = append(list, refusal{reason: "INVALID_REQUEST", how: "the id " + strconv.QuoteToASCII(id), rpcs: []string{"GetTask", "CancelTask", "SubscribeToTask"}, about: about{task: id}, fields: []string{"id"}})
	}
	for _, state := range []string{"completed", "failed", "rejected", "canceled"} {
		list = append(list, refusal{reason: "UNSUPPORTED_OPERATION", how: "it is " + state, rpcs: slices.Concat(sends, []string{"SubscribeToTask"}), about: about{task: h.id(state)}})
		if state != "canceled" {
			list = append(list, refusal{reason: "TASK_NOT_CANCELABLE", how: "it is " + state, rpcs: []string{"CancelTask"}, about: about{task: h.id(state)}})
		}
	}
	return list
}

// badPushes are refused for what they say of receivers.
func badPushes(h *house) []refusal {
	conf := func(change func(*a2av1.TaskPushNotificationConfig)) about {
		return about{task: h.id("asking"), change: func(m proto.Message) { change(m.(*a2av1.TaskPushNotificationConfig)) }}
	}
	create := []string{"CreateTaskPushNotificationConfig"}
	listing := func(change func(*a2av1.ListTaskPushNotificationConfigsRequest)) about {
		return about{task: h.id("asking"), change: func(m proto.Message) { change(m.(*a2av1.ListTaskPushNotificationConfigsRequest)) }}
	}
	inline := about{tenant: "echoes", change: func(m proto.Message) {
		configured(m.(*a2av1.SendMessageRequest)).TaskPushNotificationConfig = hook("", "", "http://127.0.0.1:1/hook")
	}}
	full := inline
	full.tenant, full.task = "", h.id("hooked")
	return []refusal{
		{reason: "PUSH_NOTIFICATION_NOT_SUPPORTED", how: "switched off", rpcs: pushes, by: "no push", about: about{task: "nothing"}},
		{reason: "PUSH_NOTIFICATION_NOT_SUPPORTED", how: "switched off", rpcs: sends, by: "no push", about: inline},
		{reason: "INSUFFICIENT_RESOURCES", how: "as many as there may be", rpcs: create, about: about{task: h.id("hooked")}},
		{reason: "INSUFFICIENT_RESOURCES", how: "as many receivers as there may be", rpcs: sends, about: full},
		{reason: "INVALID_REQUEST", how: "no address", rpcs: create, fields: []string{"url"}, about: conf(func(c *a2av1.TaskPushNotificationConfig) { c.Url = "" })},
		{reason: "INVALID_REQUEST", how: "a bad address", rpcs: create, fields: []string{"url"}, about: conf(func(c *a2av1.TaskPushNotificationConfig) { c.Url = "/x" })},
		{reason: "INVALID_REQUEST", how: "a bad token", rpcs: create, fields: []string{"token"}, about: conf(func(c *a2av1.TaskPushNotificationConfig) { c.Token = "\n" })},
		{reason: "INVALID_REQUEST", how: "no scheme", rpcs: create, fields: []string{"authentication.scheme"}, about: conf(func(c *a2av1.TaskPushNotificationConfig) { c.Authentication.Scheme = "" })},
		{reason: "INVALID_REQUEST", how: "a masked token", rpcs: create, fields: []string{"token"}, about: conf(func(c *a2av1.TaskPushNotificationConfig) { c.Id, c.Token = "new", a2a.Masked })},
		{reason: "INVALID_REQUEST", how: "a bad configuration id", rpcs: create, fields: []string{"id"}, about: conf(func(c *a2av1.TaskPushNotificationConfig) { c.Id = "a b" })},
		{reason: "INVALID_REQUEST", how: "a bad configuration id", rpcs: []string{"GetTaskPushNotificationConfig"}, fields: []string{"id"}, about: about{task: h.id("asking"), change: func(m proto.Message) {
			m.(*a2av1.GetTaskPushNotificationConfigRequest).Id = "a b"
		}}},
		{reason: "INVALID_REQUEST", how: "a bad configuration id", rpcs: []string{"DeleteTaskPushNotificationConfig"}, fields: []string{"id"}, about: about{task: h.id("asking"), change: func(m proto.Message) {
			m.(*a2av1.DeleteTaskPushNotificationConfigRequest).Id = "a b"
		}}},
		{reason: "INVALID_REQUEST", how: "a large page", rpcs: []string{"ListTaskPushNotificationConfigs"}, fields: []string{"pageSize"}, about: listing(func(r *a2av1.ListTaskPushNotificationConfigsRequest) { r.PageSize = 101 })},
		{reason: "INVALID_REQUEST", how: "a negative page", rpcs: []string{"ListTaskPushNotificationConfigs"}, fields: []string{"pageSize"}, about: listing(func(r *a2av1.ListTaskPushNotificationConfigsRequest) { r.PageSize = -1 })},
		{reason: "INVALID_REQUEST", how: "a bad page token", rpcs: []string{"ListTaskPushNotificationConfigs"}, fields: []string{"pageToken"}, about: listing(func(r *a2av1.ListTaskPushNotificationConfigsRequest) { r.PageToken = "x" })},
	}
}

// badLists are refused for what they ask for.
func badLists() []refusal {
	var list []refusal
	bad := func(how string, change func(*a2av1.ListTasksRequest), fields ...string) {
		list = append(list, refusal{reason: "INVALID_REQUEST", how: how, rpcs: []string{"ListTasks"}, fields: fields, about: about{change: func(m proto.Message) {
			change(m.(*a2av1.ListTasksRequest))
		}}})
	}
	bad("a negative page", func(r *a2av1.ListTasksRequest) { r.PageSize = proto.Int32(-1) }, "pageSize") // 0 is none over gRPC
	bad("a page of 101", func(r *a2av1.ListTasksRequest) { r.PageSize = proto.Int32(101) }, "pageSize")
	bad("a bad page token", func(r *a2av1.ListTasksRequest) { r.PageToken = "x" }, "pageToken")
	bad("a negative history length", func(r *a2av1.ListTasksRequest) { r.HistoryLength = proto.Int32(-1) }, "historyLength")
	bad("a bad context", func(r *a2av1.ListTasksRequest) { r.ContextId = "a b" }, "contextId")
	bad("a bad tenant", func(r *a2av1.ListTasksRequest) { r.Tenant = "a b" }, "tenant")
	bad("an unknown state", func(r *a2av1.ListTasksRequest) { r.Status = 99 }, "status")
	bad("a time out of range", func(r *a2av1.ListTasksRequest) {
		r.StatusTimestampAfter = timestamppb.New(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC))
		r.PageSize = proto.Int32(-1)
	}, "pageSize")
	return list
}

// seated has the only stream that its owner may have open.
func (h *house) seated() func() {
	for { // until the one before has left
		ctx, leave := context.WithCancel(context.Background())
		next, stop := iter.Pull2(h.clients["one seat"][0].Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: h.id("seated")}, 0))
		free := func() {
			leave()
			stop()
		}
		if _, err, _ := next(); err == nil {
			return free
		}
		free()
	}
}

// hanging has the calls wait for the store, and nothing else.
func (h *house) hanging() func() {
	h.store.Break(faulty.Always(faulty.Hang, faulty.Create, faulty.Sent, faulty.Put, faulty.GetTask, faulty.Events, faulty.List))
	return h.store.Heal
}
