package drive

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/nesting"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// checkDepth returns an error if an event of an agent has data nested deeper than
// nesting.MaxLevels, which clients could not decode. It returns nil for all other events.
func checkDepth(ev *teamv1.Event) error {
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
			if nesting.TooDeepStruct(m.GetMetadata()) {
				metadata = m.GetMetadata()
			}
		}
	default:
		return nil
	}
	deep := nesting.TooDeepStruct(metadata)
	for _, p := range parts {
		deep = deep || nesting.TooDeep(p.GetData()) || nesting.TooDeepStruct(p.GetMetadata())
	}
	if !deep {
		return nil
	}
	return agent.Errorf(agent.CodeInternal, a2a.ReasonInvalidAgentResponse, "the response of agent %q %s", agent.Excerpt(ev.GetAgent(), 128), nesting.Text)
}
