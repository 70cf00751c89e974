package gemini

import (
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// contents converts the parts of a message with files.
func contents(parts []*a2av1.Part) []*part {
	out := make([]*part, 0, len(parts))
	for _, p := range parts {
		if agent.IsFile(p) {
			out = append(out, files([]*a2av1.Part{p})...)
			continue
		}
		out = append(out, &part{Text: model.Text(p.GetText())})
	}
	return out
}

// files converts the files among parts.
func files(parts []*a2av1.Part) []*part {
	var out []*part
	for _, p := range parts {
		switch {
		case !agent.IsFile(p):
		case p.GetUrl() != "":
			out = append(out, &part{FileData: &fileData{FileURI: p.GetUrl(), MIMEType: agent.MediaType(p)}})
		default:
			out = append(out, &part{InlineData: &blob{Data: p.GetRaw(), MIMEType: agent.MediaType(p)}})
		}
	}
	return out
}
