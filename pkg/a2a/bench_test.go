package a2a_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
)

// BenchmarkSend is a blocking send of a task of four events.
func BenchmarkSend(b *testing.B) {
	r := start(b, echo("echo"))
	ctx := ann(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.SendMessage(ctx, message("echo", "hi")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProject is what a reader costs for each event: the 500th no more
// than the 20th.
func BenchmarkProject(b *testing.B) {
	for _, n := range []int{20, 500} {
		b.Run(fmt.Sprint("events=", n), func(b *testing.B) {
			events := journal(n)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				f := project.New("root", "")
				for _, ev := range events {
					f.Project(ev, false)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
		})
	}
}

// BenchmarkApply is what the store folds at every append.
func BenchmarkApply(b *testing.B) {
	events := journal(500)
	b.ReportAllocs()
	for b.Loop() {
		f := project.New("root", "")
		for _, ev := range events {
			f.Apply(ev)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/event")
}

// journal is a run of n events: streamed text and status texts.
func journal(n int) []*teamv1.Event {
	acc := &teamv1.Accepted{TaskId: "root", Agent: "a", Message: agent.UserMessage("m", "hi")}
	events := []*teamv1.Event{{Kind: &teamv1.Event_Accepted{Accepted: acc}}, {Kind: &teamv1.Event_Started{Started: &teamv1.Started{}}}}
	for i := len(events); i < n; i++ {
		events = append(events, chat(i))
	}
	for i, ev := range events {
		ev.Seq, ev.Time, ev.Agent = int64(i+1), timestamppb.Now(), "a"
	}
	return events
}

// BenchmarkWatch is a task of 500 events with a reader.
func BenchmarkWatch(b *testing.B) {
	begin := make(chan struct{})
	close(begin)
	r := start(b, chatter("chatter", 500, begin))
	ctx := ann(b)
	b.ReportAllocs()
	for b.Loop() {
		updates, err := r.SendStreamingMessage(ctx, message("chatter", "hi"))
		if err != nil {
			b.Fatal(err)
		}
		var last *a2av1.StreamResponse
		for u, err := range updates {
			if err != nil {
				b.Fatal(err)
			}
			last = u.Response
		}
		if last.GetStatusUpdate().GetStatus().GetState() != completed {
			b.Fatal(last)
		}
	}
}
