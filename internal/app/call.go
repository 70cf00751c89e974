package app

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Call says how a server is called.
type Call struct {
	// Binding is grpc, rest or jsonrpc; empty is what the card names first.
	Binding string
	// Tenant is the agent to reach; empty is the card's.
	Tenant string
	// Context and Task are what is gone on with.
	Context, Task string
	// Raw shows what goes over the wire, Stream the answer as it comes.
	Raw, Stream bool
	// Immediately does not wait for the end.
	Immediately bool
}

// bindings are the words of --binding.
var bindings = map[string]string{"": "", "grpc": client.GRPC, "rest": client.REST, "jsonrpc": client.JSONRPC}

// Call sends a message to any A2A server and prints the answer.
func (s *Shell) Call(ctx context.Context, target, text string, f *Call) error {
	cfg := s.client()
	var ok bool
	if cfg.Binding, ok = bindings[strings.ToLower(f.Binding)]; !ok {
		return UsageError{fmt.Errorf("--binding %s: expected grpc, rest or jsonrpc", f.Binding)}
	}
	if f.Raw {
		cfg.Raw = s.Talk
	}
	c, err := client.Open(ctx, target, cfg)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // everything was read
	req := &a2av1.SendMessageRequest{
		Tenant:        f.Tenant,
		Message:       agent.UserMessage(uuid.NewString(), text),
		Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: f.Immediately},
	}
	req.Message.ContextId, req.Message.TaskId = f.Context, f.Task
	if f.Stream {
		return s.follow(ctx, c, req)
	}
	resp, err := c.Send(ctx, req)
	if err != nil {
		return err
	}
	if s.JSON {
		if err := s.print(resp); err != nil || resp.GetTask() == nil {
			return err
		}
		return quiet().state(resp.GetTask().GetId(), resp.GetTask().GetStatus())
	}
	if m := resp.GetMessage(); m != nil {
		_, err := fmt.Fprintln(s.Out, agent.Text(m))
		return err
	}
	return s.task(resp.GetTask())
}

// task prints the answer of a task and says how it stands.
func (s *Shell) task(t *a2av1.Task) error {
	for _, a := range t.GetArtifacts() {
		if !ofMember(a) {
			fmt.Fprintln(s.Out, agent.Text(&a2av1.Message{Parts: a.GetParts()}))
		}
	}
	return s.state(t.GetId(), t.GetStatus())
}

// ofMember reports whether an artifact is what a member of the team said, not
// the answer.
func ofMember(a *a2av1.Artifact) bool { return a2a.RunOf(a.GetMetadata()).GetDelegationId() != "" }

// state says how a task stands. One that has not come to a good end, and is not
// left to go on either, is a failure.
func (s *Shell) state(id string, status *a2av1.TaskStatus) error {
	word := strings.ToLower(strings.TrimPrefix(status.GetState().String(), "TASK_STATE_"))
	line := fmt.Sprintf("task %s  %s", id, strings.ReplaceAll(word, "_", " "))
	if text := agent.Text(status.GetMessage()); text != "" {
		line += "  " + text
	}
	s.sayf("%s", line)
	switch status.GetState() {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING:
		return nil
	case a2av1.TaskState_TASK_STATE_INPUT_REQUIRED:
		s.sayf("answer it with --task %s", id)
	case a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED,
		a2av1.TaskState_TASK_STATE_AUTH_REQUIRED, a2av1.TaskState_TASK_STATE_UNSPECIFIED:
	}
	return ErrFailed
}

// follow prints a stream as it comes.
func (s *Shell) follow(ctx context.Context, c *client.Client, req *a2av1.SendMessageRequest) error {
	p := &streamed{out: s.Out}
	for resp, err := range c.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if s.JSON {
			if err := s.print(resp); err != nil {
				return err
			}
			p.status(resp)
			continue
		}
		p.show(resp)
	}
	if !s.JSON {
		p.end()
	}
	if p.last == nil {
		return nil // a message, no task
	}
	if s.JSON {
		s = quiet()
	}
	return s.state(p.id, p.last)
}

// quiet is a shell that says nothing.
func quiet() *Shell { return &Shell{Out: io.Discard, Talk: io.Discard} }

// streamed prints the pieces of an answer.
type streamed struct {
	out  io.Writer
	id   string
	last *a2av1.TaskStatus
	open bool // the line has no end yet
}

func (p *streamed) status(resp *a2av1.StreamResponse) {
	switch k := resp.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		p.id, p.last = k.Task.GetId(), k.Task.GetStatus()
	case *a2av1.StreamResponse_StatusUpdate:
		p.id, p.last = k.StatusUpdate.GetTaskId(), k.StatusUpdate.GetStatus()
	}
}

func (p *streamed) show(resp *a2av1.StreamResponse) {
	p.status(resp)
	switch k := resp.GetPayload().(type) {
	case *a2av1.StreamResponse_Message:
		fmt.Fprintln(p.out, agent.Text(k.Message))
	case *a2av1.StreamResponse_Task:
		for _, a := range k.Task.GetArtifacts() {
			p.artifact(a, false)
		}
	case *a2av1.StreamResponse_ArtifactUpdate:
		p.artifact(k.ArtifactUpdate.GetArtifact(), k.ArtifactUpdate.GetAppend())
	}
}

// artifact prints a piece. One that does not add to what was printed begins a
// line of its own.
func (p *streamed) artifact(a *a2av1.Artifact, more bool) {
	if ofMember(a) {
		return
	}
	text := agent.Text(&a2av1.Message{Parts: a.GetParts()})
	if !more {
		p.end()
	}
	fmt.Fprint(p.out, text)
	p.open = p.open || text != ""
}

func (p *streamed) end() {
	if p.open {
		fmt.Fprintln(p.out)
	}
	p.open = false
}

// print prints a message as JSON in one line.
func (s *Shell) print(m proto.Message) error {
	data, err := wire.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s\n", data)
	return err
}
