package project

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// end folds the end of the task.
func (f *Fold) end(ev *teamv1.Event, e *teamv1.Ended) {
	f.ended = e
	f.warn(e.GetWarnings()...)
	f.answer = e.GetReply()
	if n := f.view.Node(f.scope); n != nil && e.GetReplyRef() > 0 {
		f.answer = n.Reply
	}
	switch {
	case f.hasResult():
		f.put(piece{artifact: f.result(f.answer), last: true})
		f.joined(f.joins)
	case e.GetOutcome() == teamv1.Outcome_OUTCOME_FAILED, e.GetOutcome() == teamv1.Outcome_OUTCOME_TIMED_OUT, f.Stop() != nil:
		f.keep()
		f.partial()
	}
	f.turn(taskstate.Of(e.GetOutcome()), ev, f.endMessage(e))
}

// abandon cancels a task whose step had not begun when a scope above it ended.
func (f *Fold) abandon(ev *teamv1.Event) {
	if f.Exists() && f.ended == nil {
		f.seq = ev.GetSeq()
		f.end(ev, &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_CANCELED})
	}
}

// hasResult reports whether the task has ended with content.
func (f *Fold) hasResult() bool {
	return len(f.answer.GetParts()) > 0 && f.ended.GetOutcome() != teamv1.Outcome_OUTCOME_EMPTY
}

// keep shows the latest result that was given to a judge, for a run that has failed or was stopped
// without an answer.
func (f *Fold) keep() {
	if f.closed || !slices.ContainsFunc(f.handedIn.GetParts(), filled) {
		return
	}
	f.kept = f.handedIn
	f.put(piece{artifact: f.result(f.kept), last: true})
}

// Kept returns the result that keep has shown, nil without one. The result must not be changed.
func (f *Fold) Kept() *a2av1.Message { return f.kept }

// filled reports whether a part has content.
func filled(p *a2av1.Part) bool {
	text, is := p.GetContent().(*a2av1.Part_Text)
	return !is || strings.TrimSpace(text.Text) != ""
}

// result returns the artifact of the answer m. It has the id of the streamed text, which it
// replaces.
func (f *Fold) result(m *a2av1.Message) *a2av1.Artifact {
	id := f.streamed
	if id == "" {
		id = (&agent.Run{Root: f.view.Root}).ID(f.scope, "artifact", 1)
	}
	return &a2av1.Artifact{
		ArtifactId: id, Name: "result",
		Parts: m.GetParts(), Metadata: m.GetMetadata(), Extensions: m.GetExtensions(),
	}
}

// endMessage returns the status message of an ended task: its error, its transfer to another
// member, or the status that its agent has set.
func (f *Fold) endMessage(e *teamv1.Ended) *a2av1.Message {
	if t := e.GetTransfer(); t != nil {
		return f.handsOver(t)
	}
	if e.GetError() == nil {
		return e.GetStatus()
	}
	text := e.GetError().GetReason()
	if e.GetError().GetMessage() != "" {
		text += ": " + e.GetError().GetMessage()
	}
	m := agent.NewMessage(text)
	m.MessageId = (&agent.Run{Root: f.view.Root}).ID(f.scope, "error", 1)
	return m
}

// output holds the artifacts of a task.
type output struct {
	artifacts []*a2av1.Artifact
	pieces    []piece // what the last event has written to them, if tells is set
	tells     bool    // collect pieces, because readers receive updates
	closed    bool    // ignore further output
}

// put stores an artifact, or appends the parts of a piece to an existing one.
func (o *output) put(p piece) {
	if o.closed {
		return
	}
	a := p.artifact
	a = &a2av1.Artifact{ // a copy, because the fold appends to it
		ArtifactId: a.GetArtifactId(), Name: a.GetName(), Description: a.GetDescription(), Parts: slices.Clone(a.GetParts()),
		Metadata: a.GetMetadata(), Extensions: a.GetExtensions(),
	}
	i := slices.IndexFunc(o.artifacts, func(have *a2av1.Artifact) bool { return have.GetArtifactId() == a.GetArtifactId() })
	p.add = p.add && i >= 0
	if o.tells && i >= 0 && !p.add {
		o.pieces = append(o.pieces, addition(o.artifacts[i], p))
	} else if o.tells {
		o.pieces = append(o.pieces, p)
	}
	switch {
	case i < 0:
		o.artifacts = append(o.artifacts, a)
	case p.add:
		o.artifacts[i].Parts = append(o.artifacts[i].Parts, a.GetParts()...)
	default:
		o.artifacts[i] = a
	}
}

// addition returns p, which replaces an artifact that readers have, as a piece that adds to it, if
// it begins with what they have: some clients add the last update of an artifact to the pieces
// before it whether it says so or not.
func addition(have *a2av1.Artifact, p piece) piece {
	a := p.artifact
	if have.GetName() != a.GetName() || have.GetDescription() != a.GetDescription() {
		return p
	}
	more, ok := beyond(have.GetParts(), a.GetParts())
	if !ok {
		return p
	}
	if len(more) == 0 { // an artifact has at least one part
		more = []*a2av1.Part{{Content: &a2av1.Part_Text{}}}
	}
	p.add, p.artifact = true, &a2av1.Artifact{
		ArtifactId: a.GetArtifactId(), Name: a.GetName(), Description: a.GetDescription(), Parts: more, Metadata: a.GetMetadata(), Extensions: a.GetExtensions(),
	}
	return p
}

// beyond returns the parts behind some parts that they begin with; ok reports whether they do. Texts
// in a row count as one.
func beyond(have, all []*a2av1.Part) (more []*a2av1.Part, ok bool) {
	have, all = JoinTexts(have), JoinTexts(all)
	for i, part := range have {
		if i >= len(all) {
			return nil, false
		}
		if proto.Equal(part, all[i]) {
			continue
		}
		text, cut := strings.CutPrefix(all[i].GetText(), part.GetText())
		if i < len(have)-1 || !cut || !isPlainText(part) || !isPlainText(all[i]) {
			return nil, false
		}
		return append(agent.TextParts(text), all[i+1:]...), true
	}
	return all[len(have):], true
}

// JoinTexts returns parts with plain texts in a row joined to one, as readers see pieces of an artifact.
func JoinTexts(parts []*a2av1.Part) []*a2av1.Part {
	var list []*a2av1.Part
	for i := 0; i < len(parts); i++ {
		var text strings.Builder
		n := i
		for ; n < len(parts) && isPlainText(parts[n]); n++ {
			text.WriteString(parts[n].GetText())
		}
		if n == i {
			list = append(list, parts[i])
			continue
		}
		list, i = append(list, agent.TextParts(text.String())...), n-1
	}
	return list
}

// isPlainText reports whether a part is a text and nothing else.
func isPlainText(p *a2av1.Part) bool {
	_, text := p.GetContent().(*a2av1.Part_Text)
	return text && p.GetMetadata() == nil && p.GetFilename() == "" && p.GetMediaType() == ""
}

// deltaArtifact returns streamed text as an artifact.
func deltaArtifact(d *teamv1.Delta) *a2av1.Artifact {
	return &a2av1.Artifact{ArtifactId: d.GetArtifactId(), Name: "result", Parts: agent.TextParts(d.GetText())}
}

// Direct returns the answer of a run that is not visible as a task, as a plain message.
func (f *Fold) Direct() *a2av1.Message {
	m := f.Placed(f.answer)
	m.TaskId = ""
	return m
}

// InputsURI is the URI of the extension with which a card shows the values that an agent wants by name.
const InputsURI = "https://github.com/agentteams/team-server/ext/inputs/v1"

// RoutingURI is the URI of the extension through which an agent on another server takes part in a
// swarm. A message carries a team.v1.RoutingRequest as metadata, and the status of the answer a
// team.v1.RoutingReply.
const RoutingURI = "https://github.com/agentteams/team-server/ext/routing/v1"

// handsOver returns a status message that transfers control to another member of the caller's team.
func (f *Fold) handsOver(t *teamv1.Transfer) *a2av1.Message {
	text := "hands over to " + t.GetTo()
	if t.GetMessage() != "" {
		text += ": " + t.GetMessage()
	}
	m := agent.NewMessage(text)
	m.MessageId = (&agent.Run{Root: f.view.Root}).ID(f.scope, "transfer", 1)
	m.Extensions = []string{RoutingURI}
	m.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{RoutingURI: structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{"transferTo": structpb.NewStringValue(t.GetTo()), "message": structpb.NewStringValue(t.GetMessage())},
	})}}
	return m
}
