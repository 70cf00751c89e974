package server_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestA_01_SnapshotTooLarge replaces the largest parts of the snapshot that a watcher of a task is sent
// first: a file that many steps were given stands in each of them.
func TestA_01_SnapshotTooLarge(t *testing.T) {
	file := func() []*a2av1.Part {
		return []*a2av1.Part{{Content: &a2av1.Part_Raw{Raw: bytes.Repeat([]byte("x"), 2<<20)}, Filename: "cat.png", MediaType: "image/png"}, {Content: &a2av1.Part_Text{Text: "look"}}}
	}
	root := &teamv1.TraceStep{Id: "t1", Input: &a2av1.Message{Parts: file()}}
	for range 20 {
		step := &teamv1.TraceStep{
			Id: "t1~2", Input: &a2av1.Message{Parts: file()}, Result: &teamv1.TraceStep_Reply{Reply: &a2av1.Message{Parts: file()}},
			Steps: []*teamv1.TraceStep{{Id: "t1~2.1", Result: &teamv1.TraceStep_Tool{Tool: &teamv1.ToolResult{Text: "a cat", Files: file()[:1]}}}},
		}
		root.Steps = append(root.Steps, step)
	}
	full := &teamv1.WatchTaskResponse{Seq: 9, Kind: &teamv1.WatchTaskResponse_Snapshot{Snapshot: &teamv1.TaskSnapshot{
		Task:  &a2av1.Task{Id: "t1", History: []*a2av1.Message{{Parts: file()}}},
		Trace: &teamv1.Trace{TaskId: "t1", Step: root},
	}}}
	before := proto.CloneOf(full)
	got, _ := reduce.Reduce(full, "https://team.test").(*teamv1.WatchTaskResponse)
	if n := proto.Size(got); n > runs.MaxPageBytes || n > wire.MaxEvent {
		t.Errorf("the snapshot has %d bytes", n)
	}
	if !proto.Equal(full, before) {
		t.Error("the snapshot itself was changed")
	}
	if p := got.GetSnapshot().GetTask().GetHistory()[0].GetParts()[0]; !strings.HasPrefix(p.GetUrl(), "https://team.test/tasks/t1/parts/") {
		t.Errorf("the file of the task is replaced by %v", p)
	}
	step := got.GetSnapshot().GetTrace().GetStep().GetSteps()[3]
	if p := step.GetInput().GetParts(); !strings.Contains(p[0].GetText(), "A part of 2097152 bytes is omitted") || p[1].GetText() != "look" {
		t.Errorf("the input of a step is %v", p)
	}
	if text := agent.Text(step.GetReply()); !strings.Contains(text, "look") {
		t.Errorf("the result of a step is %q", text)
	}
	small := &teamv1.WatchTaskResponse{Kind: &teamv1.WatchTaskResponse_Snapshot{Snapshot: &teamv1.TaskSnapshot{Task: &a2av1.Task{Id: "t1"}}}}
	if reduce.Reduce(small, "") != proto.Message(small) {
		t.Error("a small snapshot was changed")
	}
}
