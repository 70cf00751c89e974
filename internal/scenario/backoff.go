package scenario

import (
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// pause is the backoff between attempts in scenarios. It overrides the configuration, because
// scripted agents need no time to recover.
const pause = time.Millisecond

// shortenBackoff sets the backoff of every retry policy to the constant pause. Teams, and
// agents with a model or instructions, get a retry policy if they have none.
func shortenBackoff(c *teamv1.ServerConfig) {
	for _, t := range c.GetTeams() {
		if t.GetLimits() == nil {
			t.Limits = &teamv1.Limits{}
		}
		addRetry(t.Limits)
	}
	for _, a := range c.GetAgents() {
		if a.GetModel() != "" || a.GetInstructions() != "" {
			if a.GetLimits() == nil {
				a.Limits = &teamv1.Limits{}
			}
			addRetry(a.Limits)
		}
	}
	shortenAll(c.ProtoReflect())
}

// addRetry adds a retry policy to limits without one, so that it can be shortened.
func addRetry(l *teamv1.Limits) {
	if l.GetRetry() == nil {
		l.Retry = &teamv1.Retry{}
	}
}

// shortenAll sets the backoff of all retry policies in a message.
func shortenAll(m protoreflect.Message) {
	if r, ok := m.Interface().(*teamv1.Retry); ok {
		r.Backoff = durationpb.New(pause)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { shortenAll(v.Message()); return true })
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				shortenAll(v.List().Get(i).Message())
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			shortenAll(v.Message())
		}
		return true
	})
}
