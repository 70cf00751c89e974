package leader

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// OutputFormat parses an answer. It returns the data in the answer, or an error that tells the
// model what is wrong. It must be a pure function and safe for concurrent use. The Fit method of
// guard.Schema is one.
type OutputFormat func(m *a2av1.Message) (*structpb.Value, error)

// againTurn is the name of the turn that asks for an answer in the right format.
const againTurn = "again"

// formatReply ends the run with the text of the turn. If the text does not have the output format,
// the model is asked once more; if that answer does not have it either, the run fails.
func (l *leader) formatReply(s *team.State, r *round) (team.Decision, error) {
	if l.output == nil {
		return team.Decision{Reply: r.turn.Message, Finalized: l.finalized(s, r), Reason: "the model answered"}, nil
	}
	data, err := l.output(r.turn.Message)
	if err == nil {
		return team.Decision{Reply: withData(r.turn.Message, data), Finalized: l.finalized(s, r), Reason: "the model answered, in the form asked for"}, nil
	}
	if r.turn.Turn.GetEnd() == teamv1.TurnEnd_TURN_END_TRUNCATED {
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonAnswerTruncated,
			"the answer of agent %q does not fit its output_schema because it was cut: %s; raise max_output_tokens of the model, or ask for less", s.Team.ID, err)
	}
	switch r.turn.Step.GetName() {
	case finalTurn:
		return team.Decision{}, l.limitBefore(s)
	case againTurn:
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonTeamError,
			"the answer of agent %q does not fit its output_schema: %s; say in its instructions what to answer, or change the schema", s.Team.ID, err)
	}
	d, terr := l.turn(s, r, againTurn, "the answer does not have the form asked for: the model is asked once more")
	if len(d.Steps) > 0 && d.Steps[0].GetName() == againTurn {
		d.Steps[0].Ask = &teamv1.Ask{Question: fmt.Sprintf(
			"Your answer does not have the form that is asked for: %s. Answer again, with JSON alone that fits.", err)}
	}
	return d, terr
}

// withData returns the answer with its data as a part of its own, unless it has a data part.
func withData(m *a2av1.Message, data *structpb.Value) *a2av1.Message {
	if slices.ContainsFunc(m.GetParts(), func(p *a2av1.Part) bool { return p.GetData() != nil }) {
		return m
	}
	return &a2av1.Message{
		MessageId: m.GetMessageId(), ContextId: m.GetContextId(), TaskId: m.GetTaskId(), Role: m.GetRole(),
		Parts: append(slices.Clip(m.GetParts()), agent.DataPart(data)), Metadata: m.GetMetadata(), Extensions: m.GetExtensions(),
		ReferenceTaskIds: m.GetReferenceTaskIds(),
	}
}
