package a2a_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// R-001-42: readers that lag when a stop hides what there is are told nothing of it
// that is read for them from then on, also where it is much.
func TestR_001_42_LateReaders(t *testing.T) {
	const pieces = 12
	subscribed, said := make(chan struct{}), make(chan struct{})
	big := strings.Repeat("x", 100<<10)
	author := &talker{id: "author", talk: func(ctx context.Context, emit func(*teamv1.Event) bool) {
		<-subscribed
		for range pieces {
			emit(&teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{
				Artifact: &a2av1.Artifact{ArtifactId: "a", Parts: agent.TextParts(secretText + big)}, Append: true,
			}}})
		}
		close(said)
		<-ctx.Done()
	}}
	r := start(t, author)
	id := r.send(t, ann(t), atOnce(message("author", "hi"))).GetId()
	updates, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, 1)
	close(subscribed)
	if err != nil {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(updates)
	defer stop()
	<-said
	r.stop(t, id, a2a.Stop{Force: true})
	if n := len(slices.DeleteFunc(r.record(t, id), func(ev *teamv1.Event) bool { return ev.GetArtifact() == nil })); n != pieces {
		t.Fatalf("%d pieces are on record", n)
	}
	for told := 0; ; told++ {
		u, err, ok := next()
		if !ok {
			if told == 0 {
				t.Error("nothing was told")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := protojson.Marshal(u.Response)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), secretText) {
			t.Errorf("it is told %.300s", b)
		}
	}
}
