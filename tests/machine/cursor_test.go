package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// TestA_14_EverySequenceIsACursor reads a stream to its end, and resumes it behind
// every sequence that its metadata tell: what follows is what followed.
func TestA_14_EverySequenceIsACursor(t *testing.T) {
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		m, g := cast(t)
		s, _ := at.Open(t)
		rig.Each(t, rig.Serve(t, server.Config{Agents: m, Store: s}), func(t *testing.T, c rig.Client) {
			text := "x over " + c.Binding()
			close(g.of(text))
			all, err := rig.Collect(c.Stream(t.Context(), rig.Text(gates, "m-"+c.Binding(), text)))
			if err != nil || len(all) < 5 {
				t.Fatalf("%v %v", all, err)
			}
			id := all[0].GetTask().GetId()
			for i, u := range all[:len(all)-1] {
				seq := seqOf(u)
				if seq == 0 {
					continue // more of the same event follows
				}
				rest, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, seq))
				if diff := cmp.Diff(all[i+1:], rest, protocmp.Transform()); err != nil || diff != "" {
					t.Errorf("A-14 behind update %d, which says %d: %v (-want +got):\n%s", i, seq, err, diff)
				}
			}
		})
	})
}

// seqOf is the sequence that an update tells.
func seqOf(u *a2av1.StreamResponse) int64 {
	for _, m := range []interface{ GetSeq() int64 }{
		a2a.RunOf(u.GetTask().GetMetadata()), a2a.RunOf(u.GetStatusUpdate().GetMetadata()), a2a.RunOf(u.GetArtifactUpdate().GetMetadata()),
	} {
		if m.GetSeq() > 0 {
			return m.GetSeq()
		}
	}
	return 0
}
