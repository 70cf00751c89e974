package agent_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

func ExampleTextFunc() {
	loud := agent.TextFunc("loud", func(_ context.Context, text string) (string, error) {
		if text == "" {
			return "", agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "the message has no text")
		}
		return strings.ToUpper(text), nil
	})
	loud.Description = "Repeats a text in capitals."

	for _, text := range []string{"tides", ""} {
		reply, err := agent.Reply(context.Background(), loud, agent.UserMessage("m1", text))
		fmt.Println(agent.Text(reply), err)
	}
	// Output:
	// TIDES <nil>
	//  INVALID_REQUEST: the message has no text
}
