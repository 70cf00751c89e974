package a2av03_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
)

// What servers send that claim one version and write parts of another.
func TestReadMixed(t *testing.T) {
	for name, tt := range map[string]struct {
		m             proto.Message
		mixture, want string
	}{
		"a kind and a state of 1.0": {
			&a2av1.StreamResponse{},
			`{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"kind":"message","role":"ROLE_AGENT","messageId":"m","parts":[{"kind":"text","text":"hi"}]}},"final":false}`,
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"role":"ROLE_AGENT","messageId":"m","parts":[{"text":"hi"}]}}}}`,
		},
		"no kind and no wrapper": {
			&a2av1.StreamResponse{},
			`{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"x","mediaType":"text/plain"},{"url":"https://h/f","filename":"f"},{"data":[1]}]},"append":true,"lastChunk":true}`,
			`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"x","mediaType":"text/plain"},{"url":"https://h/f","filename":"f"},{"data":[1]}]},"append":true,"lastChunk":true}}`,
		},
		"a wrapper around 0.3": {
			&a2av1.StreamResponse{},
			`{"task":{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required","timestamp":"2026-01-02T03:04:05"}}}`,
			`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"2026-01-02T03:04:05Z"}}}`,
		},
		"a message of a2a.v1": {
			&a2av1.SendMessageResponse{},
			`{"message":{"message_id":"m","role":"ROLE_AGENT","content":[{"text":"hi"},{"file":{"fileWithUri":"https://h/f","mimeType":"image/png"}}]}}`,
			`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"},{"url":"https://h/f","mediaType":"image/png"}]}}`,
		},
		"a file of 0.3 in a task of 1.0": {
			&a2av1.Task{},
			`{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"kind":"file","file":{"bytes":"aGk=","name":"f","mimeType":"text/plain"}}]}]}`,
			`{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"raw":"aGk=","filename":"f","mediaType":"text/plain"}]}]}`,
		},
		"a page": {
			&a2av1.ListTasksResponse{},
			`{"tasks":[{"id":"t","status":{"state":"TASK_STATE_CANCELLED"}}],"totalSize":1,"pageSize":50}`,
			`{"tasks":[{"id":"t","status":{"state":"TASK_STATE_CANCELED"}}],"totalSize":1,"pageSize":50}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := tt.m, tt.m.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal([]byte(tt.want), want); err != nil {
				t.Fatal(err)
			}
			if err := a2av03.ReadMixed([]byte(tt.mixture), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if !a2av03.Complete(got) {
				t.Error("it is not complete")
			}
		})
	}
	for text, want := range map[string]string{
		`{"foo":{}}`:                   "is neither a task nor a message nor an update",
		`{"kind":"news","taskId":"t"}`: "kind must be task, message, status-update or artifact-update",
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","parts":[{"kind":"video"}]}}`: "artifact.parts[0] has no content",
		`{"kind":"status-update","taskId":"t","status":{"state":"resting"}}`:                               "status.state must be one of",
	} {
		if err := a2av03.ReadMixed([]byte(text), &a2av1.StreamResponse{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
