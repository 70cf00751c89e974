package a2a

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// MaxLevels is how deep data may nest, in protobuf messages. A list counts as two: a
// value and its list. An object counts as three, because the entry of its map is a
// message too. So the limit is 48 lists or 32 objects. Readers in Python, Java and C++
// reject more than 100 levels, and up to 4 are above the data of a listed task.
const MaxLevels = 96

// DeepText describes what is wrong with data that TooDeep reports.
const DeepText = "is nested deeper than 48 lists or 32 objects; clients of other languages cannot read it"

// TooDeep reports whether a value nests deeper than MaxLevels.
func TooDeep(v *structpb.Value) bool { return deeper(v, MaxLevels) }

// deeper reports whether a value has more levels than left.
func deeper(v *structpb.Value, left int) bool {
	switch k := v.GetKind().(type) {
	case *structpb.Value_ListValue:
		if left < 2 {
			return true
		}
		for _, e := range k.ListValue.GetValues() {
			if deeper(e, left-2) {
				return true
			}
		}
	case *structpb.Value_StructValue:
		return left < 1 || deeperStruct(k.StructValue, left-1)
	}
	return false
}

// TooDeepStruct is TooDeep for metadata.
func TooDeepStruct(s *structpb.Struct) bool { return deeperStruct(s, MaxLevels) }

func deeperStruct(s *structpb.Struct, left int) bool {
	for _, v := range s.GetFields() {
		if left < 2 || deeper(v, left-2) {
			return true
		}
	}
	return false
}

// CheckDepth returns the error of an event of an agent with data that nests deeper than
// MaxLevels, which clients could not read; nil for all others.
func CheckDepth(ev *teamv1.Event) error {
	var parts []*a2av1.Part
	var metadata *structpb.Struct
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Artifact:
		parts, metadata = k.Artifact.GetArtifact().GetParts(), k.Artifact.GetArtifact().GetMetadata()
	case *teamv1.Event_Asked:
		parts, metadata = k.Asked.GetMessage().GetParts(), k.Asked.GetMessage().GetMetadata()
	case *teamv1.Event_Ended:
		parts, metadata = k.Ended.GetReply().GetParts(), k.Ended.GetReply().GetMetadata()
	case *teamv1.Event_Progress:
		parts, metadata = k.Progress.GetMessage().GetParts(), k.Progress.GetMessage().GetMetadata()
	case *teamv1.Event_Reply:
		for _, m := range []*a2av1.Message{k.Reply.GetMessage(), k.Reply.GetStatus()} {
			parts = append(parts, m.GetParts()...)
			if TooDeepStruct(m.GetMetadata()) {
				metadata = m.GetMetadata()
			}
		}
	default:
		return nil
	}
	deep := TooDeepStruct(metadata)
	for _, p := range parts {
		deep = deep || TooDeep(p.GetData()) || TooDeepStruct(p.GetMetadata())
	}
	if !deep {
		return nil
	}
	return agent.Errorf(agent.CodeInternal, ReasonInvalidAgentResponse, "what agent %q answered %s", clip(ev.GetAgent()), DeepText)
}
