package a2a_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMedia_A_04(t *testing.T) {
	text := &a2av1.Part{Content: &a2av1.Part_Text{Text: "x"}}
	data := &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewBoolValue(true)}}
	raw := func(media string) *a2av1.Part {
		return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte("x")}, MediaType: media}
	}
	cases := []struct {
		name              string
		takes, answers    []string
		parts             []*a2av1.Part
		wants             []string
		field, says, also string // empty: it is taken
	}{
		{name: "an agent that says nothing takes everything", parts: []*a2av1.Part{text, data, raw(""), raw("image/png")}},
		{name: "what it takes", takes: []string{"text/plain", "image/*"}, parts: []*a2av1.Part{text, raw("IMAGE/PNG; q=1")}},
		{name: "everything", takes: []string{"*/*"}, parts: []*a2av1.Part{text, raw("")}},
		{
			name: "what it does not take", takes: []string{"text/plain", "image/*"}, parts: []*a2av1.Part{text, raw("imageX/png"), data},
			field: "message.parts[1].mediaType", says: "is imagex/png; agent \"it\" accepts text/plain, image/*", also: "message.parts[2].mediaType is application/json",
		},
		{name: "a file of no type", takes: []string{"text/plain"}, parts: []*a2av1.Part{raw("")}, field: "message.parts[0].mediaType", says: "is application/octet-stream"},
		{name: "one of the answers that are wanted", parts: []*a2av1.Part{text}, wants: []string{"image/png", "text/*"}},
		{name: "the default answers", parts: []*a2av1.Part{text}, wants: []string{"application/json"}},
		{name: "answers of a group", answers: []string{"image/*"}, parts: []*a2av1.Part{text}, wants: []string{"image/png"}},
		{name: "an answer that nobody gives", parts: []*a2av1.Part{text}, wants: []string{"image/png"}, field: "configuration.acceptedOutputModes", says: "it produces text/plain, application/json"},
	}
	for _, c := range cases {
		t.Run("A-04 "+c.name, func(t *testing.T) {
			r := start(t, &agent.Func{ID: "it", InputModes: c.takes, OutputModes: c.answers, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
				return agent.NewMessage("done"), nil
			}})
			_, err := r.SendMessage(ann(t), &a2av1.SendMessageRequest{
				Tenant: "it", Message: &a2av1.Message{MessageId: "m", Role: a2av1.Role_ROLE_USER, Parts: c.parts},
				Configuration: &a2av1.SendMessageConfiguration{AcceptedOutputModes: c.wants},
			})
			if c.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var e *a2aerror.Error
			if !errors.As(err, &e) || e.Reason != a2aerror.ReasonContentTypeNotSupported || !e.Protocol() {
				t.Fatal(err)
			}
			if v := e.Violations[0]; v.Field != c.field || !strings.Contains(v.Description, c.says) || !strings.Contains(e.Message, c.also) {
				t.Error(e.Violations)
			}
		})
	}
}
