package scenario

import (
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// pause is how long a scenario waits between attempts, whatever the
// configuration says: nobody needs time to recover.
const pause = time.Millisecond

// hurry shortens the pauses between attempts.
func hurry(c *teamv1.ServerConfig) {
	for _, t := range c.GetTeams() {
		if t.GetLimits() == nil {
			t.Limits = &teamv1.Limits{}
		}
		shorten(t.Limits)
	}
	for _, a := range c.GetAgents() {
		if a.GetModel() != "" || a.GetInstructions() != "" {
			if a.GetLimits() == nil {
				a.Limits = &teamv1.Limits{}
			}
			shorten(a.Limits)
		}
	}
	shortenAll(c.ProtoReflect())
}

// shorten gives limits something to shorten.
func shorten(l *teamv1.Limits) {
	if l.GetRetry() == nil {
		l.Retry = &teamv1.Retry{}
	}
}

// shortenAll shortens every pause that is set somewhere below a message.
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
