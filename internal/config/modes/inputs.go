package modes

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// InputNames returns the names of declared inputs, sorted.
func InputNames(declared map[string]*structpb.Struct) []string {
	return slices.Sorted(maps.Keys(declared))
}

// OutputNames returns the names that a team gives to results, sorted.
func OutputNames(t *teamv1.TeamConfig) []string {
	names := map[string]bool{}
	for _, m := range t.GetMembers() {
		names[m.GetOutput().GetName()] = true
	}
	Walk(t.GetWorkflow().GetSteps(), nil, func(s *teamv1.WorkflowStep, _ []any) { names[s.GetOutput().GetName()] = true })
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// CheckInstructions reports an input that instructions name and that is not declared. subject says whose instructions they
// are.
func CheckInstructions(at source.Place, subject, text string, inputs []string) {
	if _, err := expr.CompileInstructions(text, inputs); err != nil {
		expression(at, subject, fmt.Errorf("the instructions: %w", err), true)
	}
}

// instructions checks the instructions of the models of a team.
func (c *check) instructions() {
	names, t := InputNames(c.team.GetInputs()), c.team
	for path, text := range map[string]string{
		"coordinator.leader.instructions": t.GetCoordinator().GetLeader().GetInstructions(), "route.instructions": t.GetRoute().GetInstructions(),
		"supervisor.router.instructions": t.GetSupervisor().GetRouter().GetInstructions(), "workflow.plan.instructions": t.GetWorkflow().GetPlan().GetInstructions(),
		"broadcast.instructions": t.GetBroadcast().GetInstructions(),
	} {
		CheckInstructions(c.at.Field(path), fmt.Sprintf("team %q", c.id), text, names)
	}
}
