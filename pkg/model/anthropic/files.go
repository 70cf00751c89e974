package anthropic

import (
	"encoding/base64"
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// contents converts the parts of a message with files.
func contents(parts []*a2av1.Part) []anthropic.ContentBlockParamUnion {
	out := make([]anthropic.ContentBlockParamUnion, 0, len(parts))
	for _, p := range parts {
		switch {
		case !agent.IsFile(p):
			out = append(out, anthropic.NewTextBlock(model.Text(p.GetText())))
		case isImage(p):
			out = append(out, anthropic.ContentBlockParamUnion{OfImage: image(p)})
		default:
			out = append(out, anthropic.ContentBlockParamUnion{OfDocument: document(p)})
		}
	}
	return out
}

// toolResult converts the result of a tool, with its files.
func toolResult(msg agent.ModelMessage) anthropic.ContentBlockParamUnion {
	block := anthropic.NewToolResultBlock(msg.CallID, model.Text(msg.Text), false)
	for _, p := range msg.Parts {
		switch {
		case !agent.IsFile(p): // part of the text
		case isImage(p):
			block.OfToolResult.Content = append(block.OfToolResult.Content, anthropic.ToolResultBlockParamContentUnion{OfImage: image(p)})
		default:
			block.OfToolResult.Content = append(block.OfToolResult.Content, anthropic.ToolResultBlockParamContentUnion{OfDocument: document(p)})
		}
	}
	return block
}

func isImage(p *a2av1.Part) bool { return strings.HasPrefix(agent.MediaType(p), "image/") }

func image(p *a2av1.Part) *anthropic.ImageBlockParam {
	if url := p.GetUrl(); url != "" {
		return anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: url}).OfImage
	}
	return anthropic.NewImageBlockBase64(agent.MediaType(p), base64.StdEncoding.EncodeToString(p.GetRaw())).OfImage
}

// document converts a PDF document.
func document(p *a2av1.Part) *anthropic.DocumentBlockParam {
	var d *anthropic.DocumentBlockParam
	if url := p.GetUrl(); url != "" {
		d = anthropic.NewDocumentBlock(anthropic.URLPDFSourceParam{URL: url}).OfDocument
	} else {
		d = anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: base64.StdEncoding.EncodeToString(p.GetRaw())}).OfDocument
	}
	if name := p.GetFilename(); name != "" {
		d.Title = anthropic.String(agent.Excerpt(name, 255))
	}
	return d
}
