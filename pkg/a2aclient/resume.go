package a2aclient

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
)

const (
	resumes     = 5                      // tries, if Config.Resumes is 0
	firstPause  = 200 * time.Millisecond // before the second try; it doubles
	longestWait = 5 * time.Second
)

// teamRunURI is the URI of the extension whose metadata has the cursors of team-server.
const teamRunURI = "https://github.com/agentteams/team-server/ext/team-run/v1"

// Cursor returns the cursor of a response: the position behind it in the stream of its
// task, at which SubscribeToTask can continue, also in another process. It is 0 if the
// response has none. The responses of team-server have cursors; among several responses for
// one event only the last has one.
func Cursor(r *a2av1.StreamResponse) int64 {
	var metadata *structpb.Struct
	switch k := r.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		metadata = k.Task.GetMetadata()
	case *a2av1.StreamResponse_StatusUpdate:
		metadata = k.StatusUpdate.GetMetadata()
	case *a2av1.StreamResponse_ArtifactUpdate:
		metadata = k.ArtifactUpdate.GetMetadata()
	}
	seq, _ := strconv.ParseInt(metadata.GetFields()[teamRunURI].GetStructValue().GetFields()["seq"].GetStringValue(), 10, 64)
	return seq
}

// taskOf returns the id of the task of a response; ok is false if it has none.
func taskOf(r *a2av1.StreamResponse) (id string, ok bool) {
	switch k := r.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		return k.Task.GetId(), true
	case *a2av1.StreamResponse_StatusUpdate:
		return k.StatusUpdate.GetTaskId(), true
	case *a2av1.StreamResponse_ArtifactUpdate:
		return k.ArtifactUpdate.GetTaskId(), true
	}
	return "", false
}

// position is how far a stream has been read.
type position struct {
	tenant, task string
	cursor       int64 // the newest one; 0 if there is none
	beyond       int   // responses since the cursor
	begun        bool  // a response has arrived
	state        a2av1.TaskState
}

// add records a response. One about another task changes nothing.
func (p *position) add(r *a2av1.StreamResponse) {
	id, ok := taskOf(r)
	if ok && p.task == "" {
		p.task = id
	}
	if ok && id != p.task {
		return
	}
	p.begun = true
	if s := max(r.GetTask().GetStatus().GetState(), r.GetStatusUpdate().GetStatus().GetState()); s != 0 {
		p.state = s
	}
	p.beyond++
	if at := Cursor(r); at != 0 {
		p.cursor, p.beyond = at, 0
	}
}

// ended reports whether the task has ended, so that no response follows.
func (p *position) ended() bool { return taskstate.Final(p.state) }

// resumable reports whether a stream is resumed that ended with err, nil for its regular end.
func (p *position) resumable(err error) bool {
	switch {
	case p.cursor == 0 || p.task == "" || !p.begun || p.ended():
		return false
	case err == nil: // a proxy may have closed the stream of a task that is working
		return p.state == a2av1.TaskState_TASK_STATE_SUBMITTED || p.state == a2av1.TaskState_TASK_STATE_WORKING
	}
	return errors.As(err, new(*TransportError)) || codeOf(err) == codes.Unavailable
}

// resuming yields a stream and resumes it at p if it breaks, without repeating or omitting
// a response.
func (c *Client) resuming(ctx context.Context, p position, stream iter.Seq2[*a2av1.StreamResponse, error]) iter.Seq2[*a2av1.StreamResponse, error] {
	most := c.cfg.Resumes
	if most == 0 {
		most = resumes
	}
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		for tries := 0; ; tries++ {
			before := p.cursor
			more, err := p.follow(stream, yield)
			if !more {
				return
			}
			if p.cursor > before {
				tries = 0
			}
			if tries >= most || !p.resumable(err) || sleep(ctx, tries) != nil {
				if err != nil && !p.ended() {
					yield(nil, err)
				}
				return
			}
			stream = c.via.subscribe(ctx, &a2av1.SubscribeToTaskRequest{Tenant: p.tenant, Id: p.task}, p.cursor)
		}
	}
}

// follow yields the responses of a stream until it ends, except those since the cursor,
// which come again. more reports whether the reader wants more.
func (p *position) follow(stream iter.Seq2[*a2av1.StreamResponse, error], yield func(*a2av1.StreamResponse, error) bool) (more bool, _ error) {
	again := p.beyond
	for r, err := range stream {
		if err == nil && r.GetPayload() == nil {
			err = badAnswer("an event is neither a task nor a message nor an update")
		}
		if err != nil {
			return true, err
		}
		if r.GetTask() != nil || Cursor(r) != 0 {
			again = 0 // the server begins with the task as it is, or this is new
		}
		if again > 0 {
			again--
			continue
		}
		p.add(r)
		if !yield(r, nil) {
			return false, nil
		}
	}
	return true, nil
}

// sleep waits before a try, except the first. It returns the error of ctx if that ends.
func sleep(ctx context.Context, tries int) error {
	if tries == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(min(firstPause<<min(tries-1, 10), longestWait))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
