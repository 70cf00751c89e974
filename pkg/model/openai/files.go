package openai

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// requestWithFiles is a request whose messages have files. The library has no types for them.
type requestWithFiles struct {
	openai.ChatCompletionRequest
	Messages []any `json:"messages"`
}

// messageWithFiles is a message of the user with files.
type messageWithFiles struct {
	Role    string    `json:"role"`
	Content []content `json:"content"`
}

// content is a part of a message: a text or a file.
type content struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
	File     *file     `json:"file,omitempty"`
	Audio    *audio    `json:"input_audio,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type file struct {
	Name string `json:"filename"`
	Data string `json:"file_data"`
}

type audio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

// hasFiles reports whether a message of a request has files.
func hasFiles(req *agent.ModelRequest) bool {
	return slices.ContainsFunc(req.Messages, func(m agent.ModelMessage) bool { return m.Parts != nil })
}

// withFiles returns the JSON of a request with its files. converted is the request without them.
// Results of tools are texts; their files follow in a message of the user, after the last result of
// the turn.
func withFiles(converted openai.ChatCompletionRequest, req *agent.ModelRequest) ([]byte, error) {
	r := requestWithFiles{ChatCompletionRequest: converted}
	first := len(converted.Messages) - len(req.Messages)
	for _, m := range converted.Messages[:first] {
		r.Messages = append(r.Messages, m)
	}
	var later []content
	flush := func() {
		if len(later) > 0 {
			r.Messages = append(r.Messages, messageWithFiles{Role: openai.ChatMessageRoleUser, Content: later})
			later = nil
		}
	}
	for i, msg := range req.Messages {
		if msg.Role != agent.RoleTool {
			flush()
		}
		switch {
		case msg.Role == agent.RoleUser && msg.Parts != nil:
			r.Messages = append(r.Messages, messageWithFiles{Role: openai.ChatMessageRoleUser, Content: contents(msg.Parts)})
			continue
		case msg.Role == agent.RoleTool && msg.Parts != nil:
			later = append(later, content{Type: "text", Text: "The files of the result of " + cmp.Or(msg.Tool, "a tool") + ":"})
			later = append(later, contents(slices.DeleteFunc(slices.Clone(msg.Parts), func(p *a2av1.Part) bool { return !agent.IsFile(p) }))...)
		}
		r.Messages = append(r.Messages, converted.Messages[first+i])
	}
	flush()
	return json.Marshal(r)
}

// contents converts the parts of a message.
func contents(parts []*a2av1.Part) []content {
	out := make([]content, 0, len(parts))
	for _, p := range parts {
		switch kind, _, _ := strings.Cut(agent.MediaType(p), "/"); {
		case !agent.IsFile(p):
			out = append(out, content{Type: "text", Text: model.Text(p.GetText())})
		case kind == "image":
			out = append(out, content{Type: "image_url", ImageURL: &imageURL{model.DataURL(p)}})
		case kind == "audio":
			format := "wav"
			if strings.HasSuffix(agent.MediaType(p), "/mpeg") || strings.HasSuffix(agent.MediaType(p), "/mp3") {
				format = "mp3"
			}
			out = append(out, content{Type: "input_audio", Audio: &audio{base64.StdEncoding.EncodeToString(p.GetRaw()), format}})
		default:
			out = append(out, content{Type: "file", File: &file{cmp.Or(p.GetFilename(), "document.pdf"), model.DataURL(p)}})
		}
	}
	return out
}

// doer makes a request with another body than that of the library.
type doer struct {
	*model.Call
	body []byte
}

// Do makes the request.
func (d doer) Do(req *http.Request) (*http.Response, error) {
	req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(d.body)), int64(len(d.body)), nil
	return d.Call.Do(req)
}
