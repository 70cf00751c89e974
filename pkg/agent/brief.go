package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

type briefKey struct{}

// WithBrief returns a context for work on the collaboration that b describes. It returns ctx if b
// is nil.
func WithBrief(ctx context.Context, b *teamv1.Brief) context.Context {
	if b == nil {
		return ctx
	}
	return context.WithValue(ctx, briefKey{}, b)
}

// BriefOf returns the brief of the collaboration that ctx works on, for agents that are Go
// functions. It returns nil if ctx does not work on a collaboration. Callers must not modify the
// result.
func BriefOf(ctx context.Context) *teamv1.Brief {
	b, _ := ctx.Value(briefKey{}).(*teamv1.Brief)
	return b
}

// BriefText returns the brief as text for models and for agents on other servers. They get it in
// addition to the task. It returns "" if b is nil. The same brief always gives the same text, so
// that repeated requests are identical.
func BriefText(b *teamv1.Brief) string {
	if b == nil {
		return ""
	}
	var t strings.Builder
	t.WriteString("The brief of the collaboration that the task is part of. All who work on it share it.")
	line := func(name, text string) {
		if text != "" {
			t.WriteString("\n" + name + ": " + text)
		}
	}
	line("Goal", b.GetTaskDescription())
	line("Expected output of the whole", b.GetExpectedOutput())
	keys := make([]string, 0, len(b.GetContext().GetFields()))
	for k := range b.GetContext().GetFields() {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		line("Context, "+k, ValueText(b.GetContext().GetFields()[k]))
	}
	return t.String()
}

// ValueText returns a value as text: a string as it is, any other value as JSON, and "" for null
// or nil.
func ValueText(v *structpb.Value) string {
	switch k := v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return ""
	case *structpb.Value_StringValue:
		return k.StringValue
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v.AsInterface()) != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}
