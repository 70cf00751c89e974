package sqlstore

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// R-001-42: of the events of a hidden run only these texts are given to readers: a field
// that is new is not, or is named here.
func TestR_001_42_TextsOfAHiddenRun(t *testing.T) {
	got := map[string]bool{}
	kinds := (&teamv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		ev := &teamv1.Event{Scope: "1"}
		fill(ev.ProtoReflect().Mutable(kinds.Get(i)).Message(), 0)
		if b := bare(ev); b != nil {
			b.Scope = ""
			texts(b.ProtoReflect(), "", got)
		}
	}
	want := map[string]bool{
		"decided.steps.id": true, "decided.steps.member": true, "decided.steps.name": true, "decided.steps.call_id": true, "decided.rule": true,
		"decided.cancel": true, "decided.joins": true, "decided.failure.reason": true,
		"started.model": true, "started.endpoint": true, "started.revision": true, "retried.error.reason": true,
		"ended.error.reason": true, "spawned.task_id": true, "asked.question": true, "asked.roles": true,
		"observed.members.id": true, "observed.members.info.id": true,
	}
	for name := range got {
		whole := false
		for _, kind := range []string{"accepted.", "commanded.", "answered.", "received.", "waiting.", "bound.", "expired.", "ended.receipt."} {
			whole = whole || strings.HasPrefix(name, kind)
		}
		if !want[name] && !whole {
			t.Error("it shows", name)
		}
	}
	for name := range want {
		if !got[name] {
			t.Error("it does not show", name)
		}
	}
}

// fill puts a text into every field of a message, some levels deep.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
		case fd.Kind() == protoreflect.StringKind && fd.IsList():
			m.Mutable(fd).List().Append(protoreflect.ValueOfString("x"))
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString("x"))
		case fd.Kind() == protoreflect.MessageKind && depth < 4 && fd.IsList():
			fill(m.Mutable(fd).List().AppendMutable().Message(), depth+1)
		case fd.Kind() == protoreflect.MessageKind && depth < 4:
			fill(m.Mutable(fd).Message(), depth+1)
		}
	}
}

// texts are the names of the fields of a message that hold a text.
func texts(m protoreflect.Message, at string, found map[string]bool) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := at + string(fd.Name())
		switch {
		case fd.IsMap():
		case fd.Kind() == protoreflect.StringKind:
			found[name] = true
		case fd.Kind() == protoreflect.MessageKind && fd.IsList():
			for i := range v.List().Len() {
				texts(v.List().Get(i).Message(), name+".", found)
			}
		case fd.Kind() == protoreflect.MessageKind:
			texts(v.Message(), name+".", found)
		}
		return true
	})
}
