package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// part is a part of a message: a text or a file.
type part struct {
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

// filesOfResult returns the files of the result of a tool, which is itself a text.
func filesOfResult(msg *agent.ModelMessage) []part {
	files := slices.DeleteFunc(slices.Clone(msg.Parts), func(p *a2av1.Part) bool { return !agent.IsFile(p) })
	if len(files) == 0 {
		return nil
	}
	return append([]part{{Type: "text", Text: "The files of the result of " + cmp.Or(msg.Tool, "a tool") + ":"}}, contents(files)...)
}

// partsOf returns a content as parts.
func partsOf(content any) []part {
	switch c := content.(type) {
	case string:
		return []part{{Type: "text", Text: model.Text(c)}}
	case []part:
		return c
	case json.RawMessage: // of the assistant
		var text string
		if json.Unmarshal(c, &text) == nil {
			return partsOf(text)
		}
	}
	return nil
}

// contents converts the parts of a message.
func contents(parts []*a2av1.Part) []part {
	out := make([]part, 0, len(parts))
	for _, p := range parts {
		switch kind, _, _ := strings.Cut(agent.MediaType(p), "/"); {
		case !agent.IsFile(p):
			out = append(out, part{Type: "text", Text: model.Text(p.GetText())})
		case kind == "image":
			out = append(out, part{Type: "image_url", ImageURL: &imageURL{model.DataURL(p)}})
		case kind == "audio":
			format := "wav"
			if strings.HasSuffix(agent.MediaType(p), "/mpeg") || strings.HasSuffix(agent.MediaType(p), "/mp3") {
				format = "mp3"
			}
			out = append(out, part{Type: "input_audio", Audio: &audio{base64.StdEncoding.EncodeToString(p.GetRaw()), format}})
		default:
			out = append(out, part{Type: "file", File: &file{cmp.Or(p.GetFilename(), "document.pdf"), model.DataURL(p)}})
		}
	}
	return out
}
