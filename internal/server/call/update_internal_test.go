package call

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/wire"
)

// TestReducedUpdateNamesTheURLOfItsReader: parts of an update that are too large are replaced by URLs at the address
// that the reader has used, or at that of the settings with which its request began.
func TestReducedUpdateNamesTheURLOfItsReader(t *testing.T) {
	u := feed.Update{Seq: 1, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2av1.TaskArtifactUpdateEvent{
		TaskId:   "t",
		Artifact: &a2av1.Artifact{ArtifactId: "a", Parts: []*a2av1.Part{{Content: &a2av1.Part_Text{Text: strings.Repeat("x", wire.MaxEvent+1)}}}},
	}}}}
	for want, in := range map[string]*Inbound{
		"https://proxy.example/tasks/t/parts/": {Base: "https://proxy.example", Settings: &settings.Snapshot{BaseURL: "https://team.example"}},
		"https://team.example/tasks/t/parts/":  {Settings: &settings.Snapshot{BaseURL: "https://team.example"}},
	} {
		for form, encode := range map[feed.Form]func(proto.Message) ([]byte, error){feed.FormJSON: protojson.Marshal, feed.FormProto: proto.Marshal} {
			data, err := EncodeUpdate(WithInbound(t.Context(), in), u, form, encode)
			if err != nil || !strings.Contains(string(data), want) || len(data) > wire.MaxEvent {
				t.Errorf("form %v: %d bytes, %v, without %s", form, len(data), err, want)
			}
		}
	}
}
