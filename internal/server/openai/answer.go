package openai

import (
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// answer is what a task has said so far. Its texts only grow, because clients cannot take back what they have got.
type answer struct {
	base   string // URL of the server as the caller sees it
	task   string // id of the task
	text   strings.Builder
	from   int               // where in text begins what answers the message; before it are the answers to earlier ones
	others []*a2av1.Artifact // those that are not the result
	status *a2av1.TaskStatus
	run    *structpb.Struct // the TeamRun of the last status
}

// said returns what the task has said to the message.
func (a *answer) said() string { return a.text.String()[a.from:] }

// take adds a task with all that it has.
func (a *answer) take(t *a2av1.Task) {
	a.task = t.GetId()
	for _, artifact := range t.GetArtifacts() {
		a.artifact(artifact, false)
	}
	a.turn(t.GetStatus(), t.GetMetadata())
}

// update adds an update of the task.
func (a *answer) update(u *a2av1.StreamResponse) {
	switch u := u.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		a.take(u.Task)
	case *a2av1.StreamResponse_ArtifactUpdate:
		a.task = u.ArtifactUpdate.GetTaskId()
		a.artifact(u.ArtifactUpdate.GetArtifact(), u.ArtifactUpdate.GetAppend())
	case *a2av1.StreamResponse_StatusUpdate:
		a.task = u.StatusUpdate.GetTaskId()
		a.turn(u.StatusUpdate.GetStatus(), u.StatusUpdate.GetMetadata())
	}
}

// artifact adds an artifact, or more of one.
func (a *answer) artifact(of *a2av1.Artifact, more bool) {
	if of.GetName() != "result" {
		a.keep(of, more)
		return
	}
	text := a.render(of.GetParts())
	switch {
	case more:
		a.text.WriteString(text)
	case strings.HasPrefix(text, a.text.String()):
		a.text.WriteString(text[a.text.Len():])
	default:
		a.paragraph(text)
	}
}

// keep keeps an artifact for the end.
func (a *answer) keep(of *a2av1.Artifact, more bool) {
	for i, have := range a.others {
		if have.GetArtifactId() != of.GetArtifactId() {
			continue
		}
		if more {
			of = &a2av1.Artifact{ArtifactId: of.GetArtifactId(), Name: have.GetName(), Parts: slices.Concat(have.GetParts(), of.GetParts())}
		}
		a.others[i] = of
		return
	}
	a.others = append(a.others, &a2av1.Artifact{ArtifactId: of.GetArtifactId(), Name: of.GetName(), Parts: of.GetParts()})
}

// paragraph adds a text after an empty line.
func (a *answer) paragraph(text string) {
	if a.text.Len() > a.from && text != "" {
		a.text.WriteString("\n\n")
	}
	a.text.WriteString(text)
}

// turn notes a status of the task. One that ends the work adds what clients must see of it.
func (a *answer) turn(s *a2av1.TaskStatus, metadata *structpb.Struct) {
	a.status, a.run = s, metadata.GetFields()[project.TeamRunURI].GetStructValue()
	switch {
	case taskstate.Interrupted(s.GetState()):
		a.paragraph(question(s.GetMessage()))
	case s.GetState() == a2av1.TaskState_TASK_STATE_COMPLETED:
		for _, of := range a.others {
			a.paragraph(a.render(of.GetParts()))
		}
		a.others = nil
	}
}

// question returns a question with its options as a text.
func question(m *a2av1.Message) string {
	text := agent.Text(m)
	if options := a2a.OptionsOf(m); len(options) > 0 {
		text = strings.TrimSpace(text + "\n\nOptions: " + strings.Join(options, ", "))
	}
	return text
}

// render returns parts as a text: data as JSON, files as links.
func (a *answer) render(parts []*a2av1.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if text, ok := p.GetContent().(*a2av1.Part_Text); ok {
			b.WriteString(text.Text)
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		switch k := p.GetContent().(type) {
		case *a2av1.Part_Data:
			_, data := reduce.PartContent(p)
			b.Write(data)
		case *a2av1.Part_Url:
			b.WriteString(markdownLink(p, k.Url))
		case *a2av1.Part_Raw:
			b.WriteString(markdownLink(p, a.base+"/tasks/"+a.task+"/parts/"+reduce.PartDigest(p)))
		}
	}
	return b.String()
}

// markdownLink returns a link to a file in Markdown.
func markdownLink(p *a2av1.Part, address string) string {
	name := p.GetFilename()
	if name == "" {
		name = p.GetMediaType()
	}
	image := ""
	if strings.HasPrefix(p.GetMediaType(), "image/") {
		image = "!"
	}
	return image + "[" + name + "](" + address + ")"
}

// Why a provider has ended a text that is not whole.
const (
	byLength = "length"
	byFilter = "content_filter"
)

// fault returns the reason and the text of the error that the task has ended with.
func (a *answer) fault() (reason, text string) {
	e := a.run.GetFields()["error"].GetStructValue().GetFields()
	return e["reason"].GetStringValue(), e["message"].GetStringValue()
}

// cut returns why the text of the task is not whole, "" if it is, or if there is no text.
func (a *answer) cut() string {
	reason, _ := a.fault()
	warned := func(v *structpb.Value) bool { return v.GetStringValue() == agent.CutWarning }
	switch {
	case a.said() == "":
	case reason == agent.ReasonAnswerFiltered:
		return byFilter
	case reason == agent.ReasonAnswerTruncated, slices.ContainsFunc(a.run.GetFields()["warnings"].GetListValue().GetValues(), warned):
		return byLength
	}
	return ""
}

// failed returns the status of a task that has ended without success, nil for any other task. It also returns nil if the task
// has failed because its text was cut: the client gets that text, and the answer says that it was cut.
func (a *answer) failed() *status.Status {
	state := a.status.GetState()
	if !taskstate.Final(state) || state == a2av1.TaskState_TASK_STATE_COMPLETED || a.cut() != "" {
		return nil
	}
	reason, text := a.fault()
	if reason == "" && state == a2av1.TaskState_TASK_STATE_CANCELED {
		reason, text = agent.ReasonCanceled, "the task was canceled"
	}
	if text == "" {
		text = agent.Text(a.status.GetMessage())
	}
	// Whatever the reason, a repeat must not run again what has failed.
	err := agent.Errorf(agent.CodeFailedPrecondition, reason, "%s", text).With("task_id", a.task)
	st := wire.Status(err)
	if st.Code() == codes.Internal {
		return status.New(codes.FailedPrecondition, text)
	}
	return st
}

// spent is how many tokens a task has spent, by the record of its run.
type spent struct{ input, cached, output, reasoning int64 }

// spent returns what the task has spent.
func (a *answer) spent() spent {
	of := a.run.GetFields()["spent"].GetStructValue().GetFields()
	number := func(name string) int64 {
		v := of[name]
		if n, err := strconv.ParseInt(v.GetStringValue(), 10, 64); err == nil {
			return n
		}
		return int64(v.GetNumberValue())
	}
	return spent{number("inputTokens"), number("cachedInputTokens"), number("outputTokens"), number("reasoningTokens")}
}
