package machine

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// badField is what is wrong with a message.
type badField struct {
	field string
	spoil func(*a2av1.SendMessageRequest)
}

// badFields are ways to spoil a message. What is sent otherwise begins a task.
var badFields = map[string]badField{
	"no id":          {"message.messageId", func(r *a2av1.SendMessageRequest) { r.Message.MessageId = "" }},
	"no role":        {"message.role", func(r *a2av1.SendMessageRequest) { r.Message.Role = 0 }},
	"agent's role":   {"message.role", func(r *a2av1.SendMessageRequest) { r.Message.Role = a2av1.Role_ROLE_AGENT }},
	"no parts":       {"message.parts", func(r *a2av1.SendMessageRequest) { r.Message.Parts = nil }},
	"empty part":     {"message.parts[0]", func(r *a2av1.SendMessageRequest) { r.Message.Parts[0].Content = nil }},
	"bad context":    {"message.contextId", func(r *a2av1.SendMessageRequest) { r.Message.ContextId = "a b" }},
	"bad tenant":     {"tenant", func(r *a2av1.SendMessageRequest) { r.Tenant = "a b" }},
	"many":           {"message.extensions", func(r *a2av1.SendMessageRequest) { r.Message.Extensions = make([]string, 33) }},
	"negative":       {"configuration.historyLength", func(r *a2av1.SendMessageRequest) { r.GetConfiguration().HistoryLength = new(int32(-1)) }},
	"large metadata": {"metadata", func(r *a2av1.SendMessageRequest) { r.Metadata = keys(257) }},
	"bad receiver": {"configuration.taskPushNotificationConfig.url", func(r *a2av1.SendMessageRequest) {
		r.GetConfiguration().TaskPushNotificationConfig = &a2av1.TaskPushNotificationConfig{Url: "x"}
	}},
}

func keys(n int) *structpb.Struct {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range n {
		s.Fields[fmt.Sprint(i)] = structpb.NewNullValue()
	}
	return s
}

// invalid sends a message with a bad field, to an agent or to a task: the field is
// named, and nothing comes of it.
func (s *sequence) invalid(o *owner) bool {
	bad := badFields[rapid.SampledFrom(slices.Sorted(maps.Keys(badFields))).Draw(s.T, "fault")]
	m := message{owner: o, id: "invalid", agent: rapid.SampledFrom([]string{echoes, asks, gates}).Draw(s.T, "agent"), text: "x"}
	if rapid.Bool().Draw(s.T, "to task") {
		m.to, m.agent = s.some(o, anyTask), ""
	}
	streamed := rapid.Bool().Draw(s.T, "streamed")
	got := s.each("invalid", func(w *world) string {
		req := s.request(w, m)
		req.Configuration = &a2av1.SendMessageConfiguration{}
		bad.spoil(req)
		if streamed {
			_, err := rig.Collect(w.clients[o.name].Stream(s.ctx, req))
			return w.fault(err)
		}
		_, err := w.clients[o.name].Send(s.ctx, req)
		return w.fault(err)
	})
	s.wantFault(got, "InvalidArgument", agent.ReasonInvalidRequest+" ["+bad.field+"]")
	if m.to != nil {
		s.settled(m.to)
	}
	return true
}

// nowhere is where nobody takes what receivers are told.
const nowhere = "http://127.0.0.1:1/"

// hook makes, shows, replaces or deletes a push configuration of a task, and lists
// those that it has.
func (s *sequence) hook(o *owner) bool {
	t := s.some(o, anyTask)
	if t == nil {
		return false
	}
	id := rapid.SampledFrom([]string{"h1", "h2", "h3"}).Draw(s.T, "hook")
	url, has := t.hooks[id]
	var got, want string
	switch what := rapid.SampledFrom([]string{"create", "create", "get", "delete"}).Draw(s.T, "what"); what {
	case "create":
		t.hooks[id] = nowhere + rapid.SampledFrom([]string{"a", "b"}).Draw(s.T, "url")
		want = id + " " + t.hooks[id]
		got = s.each(what+" "+id, func(w *world) string {
			return w.hooked(w.push(o).CreatePush(s.ctx, &a2av1.TaskPushNotificationConfig{TaskId: w.ids[t.n], Id: id, Url: t.hooks[id]}))
		})
	case "get":
		want = id + " " + url
		got = s.each(what+" "+id, func(w *world) string {
			return w.hooked(w.push(o).GetPush(s.ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: w.ids[t.n], Id: id}))
		})
		if !has {
			s.wantFault(got, "NotFound", "TASK_NOT_FOUND")
			want = got
		}
	case "delete":
		delete(t.hooks, id)
		got = s.each(what+" "+id, func(w *world) string {
			if err := w.push(o).DeletePush(s.ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: w.ids[t.n], Id: id}); err != nil {
				return w.fault(err)
			}
			return ""
		})
	}
	if got != want {
		s.Fatalf("%s of %v: %s, want %s", id, t, got, want)
	}
	s.hooks(t)
	return true
}

// hooks lists the configurations of a task, a page after the other.
func (s *sequence) hooks(t *task) {
	var want []string
	for _, id := range slices.Sorted(maps.Keys(t.hooks)) {
		want = append(want, id+" "+t.hooks[id])
	}
	size := rapid.SampledFrom([]int32{0, 1, 2}).Draw(s.T, "size")
	got := s.each("hooks", func(w *world) string {
		var all []string
		req := &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: w.ids[t.n], PageSize: size}
		for {
			page, err := w.push(t.owner).ListPushes(s.ctx, req)
			if err != nil {
				return w.fault(err)
			}
			for _, c := range page.GetConfigs() {
				all = append(all, w.hooked(c, nil))
			}
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				return fmt.Sprint(all)
			}
		}
	})
	if got != fmt.Sprint(want) {
		s.Fatalf("%v has the hooks %s, want %v", t, got, want)
	}
}

func (w *world) push(o *owner) rig.PushClient { return w.clients[o.name].(rig.PushClient) }

// hooked is what a configuration says.
func (w *world) hooked(c *a2av1.TaskPushNotificationConfig, err error) string {
	switch {
	case err != nil:
		return w.fault(err)
	case w.name(c.GetTaskId(), -1) == "an unknown task":
		return fmt.Sprint("of another task: ", c)
	}
	return c.GetId() + " " + c.GetUrl()
}
