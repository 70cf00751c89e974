package a2av03_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
)

// What 1.0 says and 0.3 has a place for comes back as it was, in both forms.

func forms() map[string]a2av03.Form {
	return map[string]a2av03.Form{"JSON-RPC": a2av03.RPC, "REST": a2av03.REST}
}

func TestA_25_EventsRoundTrip(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := event().Draw(t, "event")
				b, err := form.WriteEvent(want, rapid.Bool().Draw(t, "final"))
				if err != nil {
					t.Fatal(err)
				}
				got, err := form.ReadEvent(b)
				same(t, want, got, err, b)
			})
		})
	}
}

func TestA_25_TasksRoundTrip(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := task().Draw(t, "task")
				b, err := form.WriteTask(want)
				if err != nil {
					t.Fatal(err)
				}
				got, err := form.ReadTask(b)
				same(t, want, got, err, b)
			})
		})
	}
}

func TestA_25_SendsRoundTrip(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := &a2av1.SendMessageRequest{Message: message().Draw(t, "message"), Metadata: metadata().Draw(t, "metadata")}
				if rapid.Bool().Draw(t, "configured") {
					want.Configuration = configuration(t)
				}
				b, err := form.WriteSend(want)
				if err != nil {
					t.Fatal(err)
				}
				got, err := form.ReadSend(b)
				same(t, want, got, err, b)
			})
		})
	}
}

func TestA_25_WebhooksRoundTrip(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := webhook(t)
				want.TaskId = "t1"
				b, err := form.WritePush(want)
				if err != nil {
					t.Fatal(err)
				}
				got, err := form.ReadPush(b)
				if form == a2av03.REST && got != nil { // it is in the path
					got.TaskId = "t1"
				}
				same(t, want, got, err, b)
			})
		})
	}
}

// What a client of 0.3 sends is what a server of it reads, and the other way round.

func TestA_25_AnswersRoundTrip(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: task().Draw(t, "task")}}
				if rapid.Bool().Draw(t, "is a message") {
					want.Payload = &a2av1.SendMessageResponse_Message{Message: message().Draw(t, "message")}
				}
				b, err := form.WriteAnswer(want)
				if err != nil {
					t.Fatal(err)
				}
				got, err := form.ReadAnswer(b)
				same(t, want, got, err, b)
			})
		})
	}
}

func TestA_25_PagesOfTasksRoundTrip(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := &a2av1.ListTasksResponse{
					Tasks: rapid.SliceOfN(task(), 0, 2).Draw(t, "tasks"), NextPageToken: text().Draw(t, "token"),
					TotalSize: rapid.Int32().Draw(t, "total"), PageSize: rapid.Int32().Draw(t, "size"),
				}
				b, err := form.WriteTasks(want)
				if err != nil {
					t.Fatal(err)
				}
				got, err := form.ReadTasks(b)
				same(t, want, got, err, b)
			})
		})
	}
}

func TestA_25_ListsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &a2av1.ListTasksRequest{
			ContextId: text().Draw(t, "context"), PageToken: text().Draw(t, "token"),
			Status: a2av1.TaskState(rapid.Int32Range(0, 8).Draw(t, "status")),
		}
		if rapid.Bool().Draw(t, "numbers") {
			want.PageSize, want.HistoryLength = proto.Int32(rapid.Int32().Draw(t, "size")), proto.Int32(rapid.Int32().Draw(t, "history"))
			want.IncludeArtifacts = proto.Bool(true)
			want.StatusTimestampAfter = timestamppb.New(time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "after"), 0))
		}
		b, err := a2av03.WriteList(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := a2av03.ReadList(b)
		same(t, want, got, err, b)
	})
}

func TestA_25_SetWebhooksRoundTrip(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := webhook(t)
				want.Id, want.TaskId = "p1", "t1"
				b, err := form.WritePushRequest(want)
				if err != nil {
					t.Fatal(err)
				}
				asked, err := form.ReadPush(b)
				if form == a2av03.REST && asked != nil { // it is in the path
					asked.TaskId = "t1"
				}
				same(t, want, asked, err, b)
				if b, err = form.WritePush(want); err != nil {
					t.Fatal(err)
				}
				answered, err := form.ReadTaskPush(b)
				same(t, want, answered, err, b)
				all := &a2av1.ListTaskPushNotificationConfigsResponse{Configs: []*a2av1.TaskPushNotificationConfig{want}}
				if b, err = form.WritePushes(all); err != nil {
					t.Fatal(err)
				}
				listed, err := form.ReadPushes(b)
				same(t, all, listed, err, b)
			})
		})
	}
	b, err := a2av03.WritePushID("t1", "p1")
	if err != nil {
		t.Fatal(err)
	}
	if task, id, err := a2av03.ReadPushID(b); task != "t1" || id != "p1" || err != nil {
		t.Errorf("%s: %q, %q, %v", b, task, id, err)
	}
}

// same compares. Faults show the text.
func same(t *rapid.T, want, got proto.Message, err error, b []byte) {
	t.Helper()
	if err != nil {
		t.Fatalf("reading %s: %v", b, err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("%s (-sent +read):\n%s", b, diff)
	}
}

func text() *rapid.Generator[string] { return rapid.StringN(0, 8, 32) }

func value() *rapid.Generator[*structpb.Value] {
	return rapid.Deferred(func() *rapid.Generator[*structpb.Value] {
		return rapid.OneOf(
			rapid.Map(text(), structpb.NewStringValue),
			rapid.Map(rapid.Float64(), structpb.NewNumberValue),
			rapid.Map(rapid.Bool(), structpb.NewBoolValue),
			rapid.Just(structpb.NewNullValue()),
			rapid.Map(rapid.SliceOfN(rapid.Map(rapid.Bool(), structpb.NewBoolValue), 0, 2), func(vs []*structpb.Value) *structpb.Value {
				return structpb.NewListValue(&structpb.ListValue{Values: vs})
			}),
			rapid.Map(object(), structpb.NewStructValue),
		)
	})
}

func object() *rapid.Generator[*structpb.Struct] {
	return rapid.Map(rapid.MapOfN(text(), rapid.Deferred(value), 0, 2), func(m map[string]*structpb.Value) *structpb.Struct {
		return &structpb.Struct{Fields: m}
	})
}

func metadata() *rapid.Generator[*structpb.Struct] {
	return rapid.OneOf(rapid.Just((*structpb.Struct)(nil)), object())
}

func part() *rapid.Generator[*a2av1.Part] {
	return rapid.Custom(func(t *rapid.T) *a2av1.Part {
		p := &a2av1.Part{Metadata: metadata().Draw(t, "metadata")}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			p.Content = &a2av1.Part_Text{Text: text().Draw(t, "text")}
		case 1:
			p.Content = &a2av1.Part_Data{Data: value().Draw(t, "data")}
			if len(p.GetMetadata().GetFields()) == 0 {
				p.Metadata = nil // the mark is all there is, and goes with what holds it
			}
		case 2:
			p.Content = &a2av1.Part_Raw{Raw: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "raw")}
			p.Filename, p.MediaType = text().Draw(t, "name"), text().Draw(t, "type")
		default:
			p.Content = &a2av1.Part_Url{Url: text().Draw(t, "url")}
			p.Filename, p.MediaType = text().Draw(t, "name"), text().Draw(t, "type")
		}
		return p
	})
}

func message() *rapid.Generator[*a2av1.Message] {
	return rapid.Custom(func(t *rapid.T) *a2av1.Message {
		return &a2av1.Message{
			MessageId: text().Draw(t, "id"), ContextId: text().Draw(t, "context"), TaskId: text().Draw(t, "task"),
			Role:  rapid.SampledFrom([]a2av1.Role{a2av1.Role_ROLE_USER, a2av1.Role_ROLE_AGENT}).Draw(t, "role"),
			Parts: rapid.SliceOfN(part(), 0, 3).Draw(t, "parts"), Metadata: metadata().Draw(t, "metadata"),
			Extensions: rapid.SliceOfN(text(), 0, 2).Draw(t, "extensions"), ReferenceTaskIds: rapid.SliceOfN(text(), 0, 2).Draw(t, "references"),
		}
	})
}

func status() *rapid.Generator[*a2av1.TaskStatus] {
	return rapid.Custom(func(t *rapid.T) *a2av1.TaskStatus {
		s := &a2av1.TaskStatus{State: a2av1.TaskState(rapid.Int32Range(0, 8).Draw(t, "state"))}
		if rapid.Bool().Draw(t, "says") {
			s.Message = message().Draw(t, "message")
		}
		if rapid.Bool().Draw(t, "dated") {
			s.Timestamp = timestamppb.New(time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")))
		}
		return s
	})
}

func artifact() *rapid.Generator[*a2av1.Artifact] {
	return rapid.Custom(func(t *rapid.T) *a2av1.Artifact {
		return &a2av1.Artifact{
			ArtifactId: text().Draw(t, "id"), Name: text().Draw(t, "name"), Description: text().Draw(t, "description"),
			Parts: rapid.SliceOfN(part(), 0, 2).Draw(t, "parts"), Metadata: metadata().Draw(t, "metadata"),
			Extensions: rapid.SliceOfN(text(), 0, 2).Draw(t, "extensions"),
		}
	})
}

func task() *rapid.Generator[*a2av1.Task] {
	return rapid.Custom(func(t *rapid.T) *a2av1.Task {
		return &a2av1.Task{
			Id: "t" + text().Draw(t, "id"), ContextId: text().Draw(t, "context"), Status: status().Draw(t, "status"),
			Artifacts: rapid.SliceOfN(artifact(), 0, 2).Draw(t, "artifacts"), History: rapid.SliceOfN(message(), 0, 2).Draw(t, "history"),
			Metadata: metadata().Draw(t, "metadata"),
		}
	})
}

func event() *rapid.Generator[*a2av1.StreamResponse] {
	return rapid.Custom(func(t *rapid.T) *a2av1.StreamResponse {
		switch rapid.IntRange(0, 3).Draw(t, "payload") {
		case 0:
			return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: task().Draw(t, "task")}}
		case 1:
			return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: message().Draw(t, "message")}}
		case 2:
			return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_StatusUpdate{StatusUpdate: &a2av1.TaskStatusUpdateEvent{
				TaskId: "t" + text().Draw(t, "id"), ContextId: text().Draw(t, "context"), Status: status().Draw(t, "status"), Metadata: metadata().Draw(t, "metadata"),
			}}}
		}
		return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2av1.TaskArtifactUpdateEvent{
			TaskId: "t" + text().Draw(t, "id"), ContextId: text().Draw(t, "context"), Artifact: artifact().Draw(t, "artifact"),
			Append: rapid.Bool().Draw(t, "append"), LastChunk: rapid.Bool().Draw(t, "last"), Metadata: metadata().Draw(t, "metadata"),
		}}}
	})
}

func webhook(t *rapid.T) *a2av1.TaskPushNotificationConfig {
	p := &a2av1.TaskPushNotificationConfig{Id: text().Draw(t, "id"), Url: text().Draw(t, "url"), Token: text().Draw(t, "token")}
	if rapid.Bool().Draw(t, "authenticated") {
		p.Authentication = &a2av1.AuthenticationInfo{Scheme: text().Draw(t, "scheme"), Credentials: text().Draw(t, "credentials")}
	}
	return p
}

func configuration(t *rapid.T) *a2av1.SendMessageConfiguration {
	c := &a2av1.SendMessageConfiguration{
		AcceptedOutputModes: rapid.SliceOfN(text(), 0, 2).Draw(t, "modes"), ReturnImmediately: rapid.Bool().Draw(t, "at once"),
	}
	if rapid.Bool().Draw(t, "history") {
		c.HistoryLength = proto.Int32(rapid.Int32().Draw(t, "length"))
	}
	if rapid.Bool().Draw(t, "webhook") {
		c.TaskPushNotificationConfig = webhook(t)
	}
	return c
}
