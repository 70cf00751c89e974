// Command outside answers one message with a team whose tool, agent and scheduler it brings.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/teamfile"
)

// height is a tool that returns the height of the tide.
type height struct{}

func (height) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "height", Description: "Tells how high the tide is in a port.", Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (height) Call(_ context.Context, arguments json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	var in struct{ Port string }
	err := json.Unmarshal(arguments, &in)
	return &teamv1.ToolResult{Text: in.Port + ": 4.2 m"}, err
}

// relay is a scheduler: each member works once, in the order of the file.
type relay struct{ team.Base }

func (relay) Next(s *team.State) (team.Decision, error) {
	if s.Rounds < len(s.Team.Members) {
		return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: s.Team.Members[s.Rounds].ID}}, Reason: "its turn"}, nil
	}
	return team.Decision{Reply: s.Last.Message, Reason: "all members have worked"}, nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	f, err := teamfile.Load("team.yaml", teamfile.Config{
		Tools: map[string]agent.Tool{"height": height{}},
		Agents: map[string]agent.Agent{"pricing": agent.TextFunc("pricing", func(_ context.Context, text string) (string, error) {
			return text + " That is 3 EUR.", nil
		})},
		Schedulers: map[string]team.Scheduler{"harbour": relay{}},
	})
	if err != nil {
		return err
	}
	defer f.Close()
	harbour, err := f.Agent("harbour")
	if err != nil {
		return err
	}
	reply, err := agent.Reply(ctx, harbour, agent.UserMessage("m1", "How high is it?"))
	if err != nil {
		return err
	}
	fmt.Println(agent.Text(reply))
	return nil
}
