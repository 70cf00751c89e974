package drive

import (
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/nesting"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// checkDepth returns an error if an event of an agent has data nested deeper than
// package nesting allows in what tasks show of it, which clients could not decode.
func checkDepth(ev *teamv1.Event) error {
	a := ev.GetArtifact().GetArtifact()
	if !tooDeep(a.GetParts(), a.GetMetadata()) && !slices.ContainsFunc(shown(ev), func(m *a2av1.Message) bool { return tooDeep(m.GetParts(), m.GetMetadata()) }) {
		return nil
	}
	return agent.Errorf(agent.CodeInternal, a2aerror.ReasonInvalidAgentResponse, "the response of agent %q %s", agent.Excerpt(ev.GetAgent(), 128), nesting.Text)
}

// shown returns the messages of an event that are shown by tasks: as an answer, a question or a status, or in the history
// of the tasks of steps.
func shown(ev *teamv1.Event) []*a2av1.Message {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Asked:
		return []*a2av1.Message{k.Asked.GetMessage()}
	case *teamv1.Event_Decided:
		list := []*a2av1.Message{k.Decided.GetReply().GetMessage(), k.Decided.GetAsk(), k.Decided.GetInput()}
		for _, s := range k.Decided.GetSteps() {
			list = append(list, s.GetInput().GetMessage())
		}
		return list
	case *teamv1.Event_Ended:
		return []*a2av1.Message{k.Ended.GetReply()}
	case *teamv1.Event_Progress:
		return []*a2av1.Message{k.Progress.GetMessage()}
	case *teamv1.Event_Reply:
		return []*a2av1.Message{k.Reply.GetMessage(), k.Reply.GetStatus()}
	case *teamv1.Event_Spawned:
		return []*a2av1.Message{k.Spawned.GetInput()}
	case *teamv1.Event_Started:
		return []*a2av1.Message{k.Started.GetInput().GetMessage()}
	}
	return nil
}

// tooDeep reports whether parts or metadata have data that is nested too deep.
func tooDeep(parts []*a2av1.Part, metadata *structpb.Struct) bool {
	return nesting.TooDeepStruct(metadata) || slices.ContainsFunc(parts, func(p *a2av1.Part) bool {
		return nesting.TooDeep(p.GetData()) || nesting.TooDeepStruct(p.GetMetadata())
	})
}
