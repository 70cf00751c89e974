package remote

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Limits of the artifacts of a peer's task.
const (
	maxArtifacts    = 1000
	maxArtifactSize = 16 << 20 // bytes, of all artifacts together
)

// artifacts holds the artifacts of a peer's task, in the order in which they arrived.
type artifacts struct {
	order  []*artifact
	size   int
	newest []*a2av1.Part // of the latest update
}

// artifact is the content of one artifact so far.
type artifact struct {
	id       string
	first    string // its first id, from which ours is derived
	text     strings.Builder
	rest     []*a2av1.Part // all parts that are not text
	size     int
	closed   bool // the latest update was the last chunk
	metadata *structpb.Struct
}

// piece is the new text in an update of an artifact.
type piece struct {
	text  string
	anew  bool // text replaces the previous text
	first bool // there was no text before
}

// errTooMuch is returned for artifacts beyond the limits.
var errTooMuch = errors.New("sends more data than is accepted")

// fold applies an update of an artifact, which adds to it or replaces it. It returns the new text
// and the other new parts. The error is errTooMuch.
func (s *artifacts) fold(u *a2av1.Artifact, add, last bool) (piece, []*a2av1.Part, error) {
	a := s.find(u.GetArtifactId())
	a.closed = last
	s.newest = u.GetParts()
	size := proto.Size(u)
	if !add {
		s.size -= a.size
		a.size = 0
	}
	s.size += size
	a.size += size
	if s.size > maxArtifactSize || len(s.order) > maxArtifacts {
		return piece{}, nil, errTooMuch
	}
	if u.GetMetadata() != nil {
		a.metadata = u.GetMetadata()
	}
	text, rest := split(u.GetParts())
	if add {
		p := piece{text: text, first: a.text.Len() == 0}
		a.text.WriteString(text)
		a.rest = append(a.rest, rest...)
		return p, rest, nil
	}
	return a.replace(text), a.replaceRest(rest), nil
}

// find returns the artifact with an id, which it creates if needed.
func (s *artifacts) find(id string) *artifact {
	for _, a := range s.order {
		if a.id == id {
			return a
		}
	}
	a := &artifact{id: id, first: id}
	s.order = append(s.order, a)
	return a
}

// only forgets the artifacts that are not in a list, unless the list is empty. What was sent of one is replaced by an
// artifact of the list that was not sent, if there is one.
func (s *artifacts) only(list []*a2av1.Artifact) {
	if len(list) == 0 {
		return
	}
	unsent := slices.DeleteFunc(slices.Clone(list), func(u *a2av1.Artifact) bool {
		return slices.ContainsFunc(s.order, func(a *artifact) bool { return a.id == u.GetArtifactId() })
	})
	s.order = slices.DeleteFunc(s.order, func(a *artifact) bool {
		gone := !slices.ContainsFunc(list, func(u *a2av1.Artifact) bool { return u.GetArtifactId() == a.id })
		if gone && len(unsent) > 0 {
			a.id, unsent, gone = unsent[0].GetArtifactId(), unsent[1:], false
		}
		if gone {
			s.size -= a.size
		}
		return gone
	})
}

// closed reports whether no artifact waits for another chunk.
func (s *artifacts) closed() bool {
	return !slices.ContainsFunc(s.order, func(a *artifact) bool { return !a.closed })
}

// replace sets the whole text. If the new text extends the old one, only the extension is returned
// as new.
func (a *artifact) replace(text string) piece {
	old := a.text.String()
	p := piece{first: old == ""}
	if added, grew := strings.CutPrefix(text, old); grew {
		a.text.WriteString(added)
		p.text = added
		return p
	}
	a.text.Reset()
	a.text.WriteString(text)
	p.text, p.anew = text, true
	return p
}

// replaceRest sets the other parts. It returns them, or nil if they have not changed.
func (a *artifact) replaceRest(rest []*a2av1.Part) []*a2av1.Part {
	same := len(rest) == len(a.rest)
	for i := range rest {
		same = same && proto.Equal(rest[i], a.rest[i])
	}
	if same {
		return nil
	}
	a.rest = rest
	return rest
}

// parts returns the content of all artifacts: one part with their texts, and then all other parts.
func (s *artifacts) parts() []*a2av1.Part {
	var texts []string
	var rest []*a2av1.Part
	for _, a := range s.order {
		if a.text.Len() > 0 {
			texts = append(texts, a.text.String())
		}
		rest = append(rest, a.rest...)
	}
	if len(texts) == 0 {
		return rest
	}
	text := &a2av1.Part{Content: &a2av1.Part_Text{Text: strings.Join(texts, "\n\n")}}
	return append([]*a2av1.Part{text}, rest...)
}

// metadata returns the metadata of all artifacts.
func (s *artifacts) metadata() []*structpb.Struct {
	var all []*structpb.Struct
	for _, a := range s.order {
		all = append(all, a.metadata)
	}
	return all
}

// split separates the text of parts from all other parts.
func split(parts []*a2av1.Part) (text string, rest []*a2av1.Part) {
	var b strings.Builder
	for _, p := range parts {
		if t, ok := p.GetContent().(*a2av1.Part_Text); ok {
			b.WriteString(t.Text)
			continue
		}
		rest = append(rest, p)
	}
	return b.String(), rest
}
