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

// OutputFormat reads an answer: it returns the data in it, or what is wrong with
// the answer, in words for the model that wrote it. A pure function, safe for
// concurrent use. The Fit of a guard.Schema is one.
type OutputFormat func(m *a2av1.Message) (*structpb.Value, error)

// againTurn labels the turn that is asked to put an answer into its form.
const againTurn = "again"

// formed ends the run with the turn's text. One that does not fit is put back to
// the model once; what it says then fits, or the run fails.
func (l *leader) formed(s *team.State, r *round) (team.Decision, error) {
	if l.output == nil {
		return team.Decision{Reply: r.turn.Message, Reason: "the model answered"}, nil
	}
	data, err := l.output(r.turn.Message)
	if err == nil {
		return team.Decision{Reply: withData(r.turn.Message, data), Reason: "the model answered, in the form asked for"}, nil
	}
	if name := r.turn.Step.GetName(); name == againTurn || name == finalTurn {
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

// withData returns an answer with its data, so that readers need not look for it
// in the text.
func withData(m *a2av1.Message, data *structpb.Value) *a2av1.Message {
	if slices.ContainsFunc(m.GetParts(), func(p *a2av1.Part) bool { return p.GetData() != nil }) {
		return m
	}
	part := &a2av1.Part{Content: &a2av1.Part_Data{Data: data}, MediaType: "application/json"}
	return &a2av1.Message{
		MessageId: m.GetMessageId(), ContextId: m.GetContextId(), TaskId: m.GetTaskId(), Role: m.GetRole(),
		Parts: append(slices.Clip(m.GetParts()), part), Metadata: m.GetMetadata(), Extensions: m.GetExtensions(),
		ReferenceTaskIds: m.GetReferenceTaskIds(),
	}
}
