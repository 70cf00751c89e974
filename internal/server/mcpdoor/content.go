package mcpdoor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// callResult is the result of a call.
type callResult struct {
	ResultType string         `json:"resultType,omitempty"`
	Content    []mcp.Content  `json:"content"`
	IsError    bool           `json:"isError,omitempty"`
	Meta       map[string]any `json:"_meta,omitempty"`
}

// metaKey is the key of what results say of their task beside its answer.
const metaKey = "team-server/task"

// maxEmbedded is the maximum size of a file that is part of a result. Larger ones are links.
const maxEmbedded = 1 << 20

func texts(text string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: text}} }

// resultOf returns the result with what a task has answered, or with what is to be done for it.
func resultOf(ctx context.Context, q *request, tool string, task *a2av1.Task) callResult {
	state := task.GetStatus().GetState()
	r := callResult{ResultType: q.resultType()}
	if id := task.GetId(); id != "" {
		r.Meta = map[string]any{metaKey: map[string]any{"id": id, "context": task.GetContextId(), "state": stateName(state)}}
	}
	switch {
	case state == a2av1.TaskState_TASK_STATE_COMPLETED:
		r.Content = contentOf(ctx, task)
	case taskstate.Final(state):
		r.Content, r.IsError = texts(whyEnded(task)), true
	case taskstate.Interrupted(state):
		r.Content = texts(fmt.Sprintf("%s\n\nThe task waits for this answer. To give it, call the tool %s again with task %q and the answer as message.",
			questionText(task), tool, task.GetId()))
	default:
		r.Content = texts(fmt.Sprintf("The task is still running. To wait for its answer, call the tool %s again with task %q and an empty message.", tool, task.GetId()))
	}
	return r
}

func stateName(s a2av1.TaskState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "TASK_STATE_"))
}

// whyEnded returns why a task has ended without success.
func whyEnded(task *a2av1.Task) string {
	text := agent.Text(task.GetStatus().GetMessage())
	if e := project.RunOf(task.GetMetadata()).GetError(); e != nil && !strings.Contains(text, e.GetReason()) {
		text = strings.TrimSpace(e.GetReason() + ": " + cmp.Or(text, e.GetMessage()))
	}
	return cmp.Or(text, "The task was "+stateName(task.GetStatus().GetState())+".") + fmt.Sprintf("\n\nThe task was %s. The same call would begin a new one.", task.GetId())
}

// contentOf returns the answer of a task: its artifacts, or the message of its status without any.
func contentOf(ctx context.Context, task *a2av1.Task) []mcp.Content {
	content := []mcp.Content{}
	for _, a := range task.GetArtifacts() {
		for _, p := range a.GetParts() {
			content = append(content, partContent(ctx, task.GetId(), p))
		}
	}
	if len(content) == 0 {
		for _, p := range task.GetStatus().GetMessage().GetParts() {
			content = append(content, partContent(ctx, task.GetId(), p))
		}
	}
	return content
}

// partContent returns a part as clients keep it.
func partContent(ctx context.Context, task string, p *a2av1.Part) mcp.Content {
	media, body := reduce.PartContent(p)
	uri := "urn:sha256:" + reduce.PartDigest(p)
	if base := call.InboundOf(ctx).BaseURL(); base != "" && task != "" {
		uri = base + "/tasks/" + task + "/parts/" + reduce.PartDigest(p)
	}
	size := int64(len(body))
	_, isText := p.GetContent().(*a2av1.Part_Text)
	switch {
	case p.GetUrl() != "":
		return &mcp.ResourceLink{URI: p.GetUrl(), Name: cmp.Or(p.GetFilename(), p.GetUrl()), MIMEType: p.GetMediaType()}
	case size > maxEmbedded && strings.HasPrefix(uri, "http") && !isText:
		return &mcp.ResourceLink{URI: uri, Name: cmp.Or(p.GetFilename(), "file"), MIMEType: media, Size: &size}
	case isText && p.GetFilename() != "":
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: named(uri, p), MIMEType: media, Text: p.GetText()}}
	case isText, p.GetData() != nil:
		return &mcp.TextContent{Text: string(body)}
	case strings.HasPrefix(media, "image/"):
		return &mcp.ImageContent{MIMEType: media, Data: body}
	case strings.HasPrefix(media, "audio/"):
		return &mcp.AudioContent{MIMEType: media, Data: body}
	}
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: named(uri, p), MIMEType: media, Blob: body}}
}

// named returns the URI of a part with the name of its file.
func named(uri string, p *a2av1.Part) string {
	if p.GetFilename() == "" {
		return uri
	}
	return uri + "#" + strings.ReplaceAll(p.GetFilename(), " ", "%20")
}
