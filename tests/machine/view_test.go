package machine

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
)

// view is what a reader makes of a stream, as the protocol says.
type view struct {
	task    *a2av1.Task
	message *a2av1.Message
	seq     int64
	ends    int
}

// take folds an update; the error says what is wrong with it.
func (v *view) take(u *a2av1.StreamResponse) error {
	if v.ends > 0 {
		return fmt.Errorf("after the end: %v", u)
	}
	switch k := u.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		if v.task != nil {
			return fmt.Errorf("the task is told twice: %v", u)
		}
		v.task = proto.CloneOf(k.Task)
		return v.status(k.Task.GetStatus(), a2a.RunOf(k.Task.GetMetadata()).GetSeq())
	case *a2av1.StreamResponse_Message:
		v.message = k.Message
		return nil
	case *a2av1.StreamResponse_StatusUpdate:
		if v.task == nil {
			return fmt.Errorf("before the task: %v", u)
		}
		v.task.Status = proto.CloneOf(k.StatusUpdate.GetStatus())
		for key, value := range k.StatusUpdate.GetMetadata().GetFields() {
			v.task.Metadata.Fields[key] = proto.CloneOf(value)
		}
		return v.status(v.task.GetStatus(), a2a.RunOf(k.StatusUpdate.GetMetadata()).GetSeq())
	case *a2av1.StreamResponse_ArtifactUpdate:
		return v.artifact(k.ArtifactUpdate)
	}
	return fmt.Errorf("an empty update")
}

// status notes where the reader stands.
func (v *view) status(s *a2av1.TaskStatus, seq int64) error {
	if seq < v.seq || seq == 0 {
		return fmt.Errorf("the sequence goes from %d to %d", v.seq, seq)
	}
	v.seq = seq
	if taskstate.Final(s.GetState()) {
		v.ends++
	}
	return nil
}

func (v *view) artifact(u *a2av1.TaskArtifactUpdateEvent) error {
	seq := a2a.RunOf(u.GetMetadata()).GetSeq() // none: more of the same event follows
	if v.task == nil || seq != 0 && seq <= v.seq {
		return fmt.Errorf("an artifact of %d comes after %d", seq, v.seq)
	}
	v.seq = max(v.seq, seq)
	i := slices.IndexFunc(v.task.GetArtifacts(), func(a *a2av1.Artifact) bool { return a.GetArtifactId() == u.GetArtifact().GetArtifactId() })
	switch {
	case i < 0 && u.GetAppend():
		return fmt.Errorf("appends to artifact %s, which was never told", u.GetArtifact().GetArtifactId())
	case i < 0:
		v.task.Artifacts = append(v.task.Artifacts, proto.CloneOf(u.GetArtifact()))
	case u.GetAppend():
		a := v.task.GetArtifacts()[i]
		a.Parts = append(a.Parts, proto.CloneOf(u.GetArtifact()).GetParts()...)
	default:
		v.task.Artifacts[i] = proto.CloneOf(u.GetArtifact())
	}
	return nil
}
