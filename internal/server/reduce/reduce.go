// Package reduce replaces the largest parts of answers that are too large for clients.
package reduce

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Reduce returns an answer of A2A, a notification, or the snapshot of a watched task in a form that every client can
// read. If it has more than wire.MaxEvent bytes, its largest parts are replaced by parts
// with the URL at which they can be read, until it has at most runs.MaxPageBytes; if that
// leaves more than wire.MaxEvent bytes, its largest values of metadata are replaced in the
// same way. base is the server's URL; if
// it is empty, parts are replaced by a text that gives their size. An answer that needs no
// change is returned unchanged. m is never modified.
func Reduce(m proto.Message, base string) proto.Message {
	size := proto.Size(m)
	if size <= wire.MaxEvent {
		return m
	}
	m = proto.CloneOf(m)
	r := &reducer{base: base}
	r.visit(m)
	slices.SortFunc(r.parts, func(a, b partPlace) int { return cmp.Compare(b.size, a.size) })
	for _, p := range r.parts {
		if size <= runs.MaxPageBytes || p.size < minReplaced {
			break
		}
		p.replace()
		size -= p.size - proto.Size(p.parts[p.i])
	}
	if size > wire.MaxEvent {
		leaveOut(m, base, size)
	}
	return m
}

// leaveOut replaces the largest values of metadata in an answer, whose encoded size is size
// bytes.
func leaveOut(m proto.Message, base string, size int) {
	r := &reducer{base: base} // parts that were replaced have other metadata
	r.visit(m)
	slices.SortFunc(r.values, func(a, b valuePlace) int { return cmp.Compare(b.size, a.size) })
	for _, v := range r.values {
		if size <= runs.MaxPageBytes || v.size < minReplaced {
			return
		}
		r.replaceValue(v)
		size -= v.size - proto.Size(v.metadata.GetFields()[v.name])
	}
}

// minReplaced is the size of the smallest part that is replaced for its size: its
// replacement has several hundred bytes.
const minReplaced = 1 << 10

// reducer inspects the parts of an answer.
type reducer struct {
	base   string
	parts  []partPlace
	values []valuePlace
}

// partPlace is the location of a part.
type partPlace struct {
	base  string // the server's URL; empty if the part cannot be read at one
	task  string
	parts []*a2av1.Part
	i     int
	size  int
}

// valuePlace is the location of a value of metadata.
type valuePlace struct {
	task     string
	metadata *structpb.Struct
	name     string
	size     int
}

func (r *reducer) visit(m proto.Message) {
	switch m := m.(type) {
	case *a2av1.Task:
		r.task(m)
	case *a2av1.SendMessageResponse:
		r.task(m.GetTask())
		r.message("", m.GetMessage())
	case *a2av1.ListTasksResponse:
		for _, t := range m.GetTasks() {
			r.task(t)
		}
	case *teamv1.AnswerQuestionResponse:
		r.task(m.GetTask())
	case *teamv1.WatchTaskResponse:
		r.task(m.GetSnapshot().GetTask())
		r.trace(m.GetSnapshot().GetTrace().GetStep())
	case *a2av1.StreamResponse:
		r.task(m.GetTask())
		r.message("", m.GetMessage())
		r.message(m.GetStatusUpdate().GetTaskId(), m.GetStatusUpdate().GetStatus().GetMessage())
		r.collect("", m.GetStatusUpdate().GetMetadata())
		r.collect("", m.GetArtifactUpdate().GetMetadata())
		r.artifact(m.GetArtifactUpdate().GetTaskId(), m.GetArtifactUpdate().GetArtifact())
	}
}

func (r *reducer) task(t *a2av1.Task) {
	for _, a := range t.GetArtifacts() {
		r.artifact(t.GetId(), a)
	}
	for _, m := range t.GetHistory() {
		r.message(t.GetId(), m)
	}
	r.message(t.GetId(), t.GetStatus().GetMessage())
	r.collect(t.GetId(), t.GetMetadata())
}

// trace inspects the parts of a step and of those below it. They are not all parts of a task that can be
// read, so their replacements have no URL.
func (r *reducer) trace(s *teamv1.TraceStep) {
	base := r.base
	r.base = ""
	for _, parts := range [][]*a2av1.Part{s.GetInput().GetParts(), s.GetReply().GetParts(), s.GetTurn().GetFiles(), s.GetTool().GetFiles()} {
		r.all(s.GetId(), parts)
	}
	r.base = base
	for _, below := range s.GetSteps() {
		r.trace(below)
	}
}

func (r *reducer) message(task string, m *a2av1.Message) {
	if m == nil {
		return
	}
	r.all(task, m.GetParts())
	r.collect(task, m.GetMetadata())
}

func (r *reducer) artifact(task string, a *a2av1.Artifact) {
	if a == nil {
		return
	}
	r.all(task, a.GetParts())
	r.collect(task, a.GetMetadata())
}

// collect records the values of metadata, which may be replaced later. Values without a task,
// such as those of an update, cannot be read at a URL.
func (r *reducer) collect(task string, s *structpb.Struct) {
	for name, v := range s.GetFields() {
		r.values = append(r.values, valuePlace{task, s, name, proto.Size(v)})
	}
}

func (r *reducer) all(task string, parts []*a2av1.Part) {
	for i, p := range parts {
		r.collect(task, p.GetMetadata())
		if task != "" {
			r.parts = append(r.parts, partPlace{r.base, task, parts, i, proto.Size(p)})
		}
	}
}

// replace replaces a part with one that has a URL.
func (at partPlace) replace() {
	p := at.parts[at.i]
	metadata := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	maps.Copy(metadata.Fields, p.GetMetadata().GetFields())
	media, body := PartContent(p)
	metadata.Fields[project.TeamRunURI] = marker(len(body))
	if at.base == "" {
		at.parts[at.i] = &a2av1.Part{
			Content:  &a2av1.Part_Text{Text: "A part of " + strconv.Itoa(len(body)) + " bytes is omitted: there is no HTTP address from which it could be read."},
			Filename: p.GetFilename(), Metadata: metadata,
		}
		return
	}
	at.parts[at.i] = &a2av1.Part{
		Content:  &a2av1.Part_Url{Url: at.base + "/tasks/" + at.task + "/parts/" + PartDigest(p)},
		Filename: p.GetFilename(), MediaType: media, Metadata: metadata,
	}
}

// replaceValue replaces a value of metadata with an object that has a URL. The replacement of
// the value with the name project.TeamRunURI has no URL, because that value is not stored but
// computed for each answer.
func (r *reducer) replaceValue(v valuePlace) {
	part := a2a.MetadataPart(v.metadata.GetFields()[v.name])
	_, body := PartContent(part)
	with := marker(len(body))
	switch {
	case v.name == project.TeamRunURI:
		v.metadata.Fields[v.name] = with
		return
	case r.base != "" && v.task != "":
		with.GetStructValue().Fields["url"] = structpb.NewStringValue(r.base + "/tasks/" + v.task + "/parts/" + PartDigest(part))
	}
	v.metadata.Fields[v.name] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{project.TeamRunURI: with}})
}

// marker returns the metadata of a replacement: why, and the original size in bytes.
func marker(size int) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"replaced": structpb.NewStringValue("size"), "bytes": structpb.NewStringValue(strconv.Itoa(size)),
	}})
}

// PartDigest identifies a part among the parts of a task, by its content.
func PartDigest(p *a2av1.Part) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// PartContent returns the media type of a part and its content as bytes: text as it is,
// data as JSON.
func PartContent(p *a2av1.Part) (media string, body []byte) {
	switch k := p.GetContent().(type) {
	case *a2av1.Part_Text:
		return cmp.Or(p.GetMediaType(), "text/plain; charset=utf-8"), []byte(k.Text)
	case *a2av1.Part_Raw:
		return cmp.Or(p.GetMediaType(), "application/octet-stream"), k.Raw
	case *a2av1.Part_Data:
		b, err := wire.Marshal(k.Data)
		if err != nil {
			return "", nil
		}
		return cmp.Or(p.GetMediaType(), "application/json"), b
	}
	return "text/uri-list", []byte(p.GetUrl())
}
