package teamfile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
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

// price is the work of an agent.
func price(_ context.Context, text string) (string, error) { return text + " That is 3 EUR.", nil }

// relay is a scheduler: each member works once, in the order of the file.
type relay struct{ team.Base }

func (relay) Next(s *team.State) (team.Decision, error) {
	if s.Rounds < len(s.Team.Members) {
		return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: s.Team.Members[s.Rounds].ID}}, Reason: "its turn"}, nil
	}
	return team.Decision{Reply: s.Last.Message, Reason: "all members have worked"}, nil
}

// program is what this program brings to testdata/team.yaml.
func program() teamfile.Config {
	return teamfile.Config{
		Tools:      map[string]agent.Tool{"height": height{}},
		Agents:     map[string]agent.Agent{"pricing": agent.TextFunc("pricing", price)},
		Schedulers: map[string]team.Scheduler{"harbour": relay{}},
	}
}

// A team of a file is called without a server.
func ExampleLoad() {
	f, err := teamfile.Load("testdata", program())
	if err != nil {
		panic(err)
	}
	defer f.Close()
	harbour, err := f.Agent("harbour")
	if err != nil {
		panic(err)
	}
	reply, err := agent.Reply(context.Background(), harbour, agent.UserMessage("m1", "How high is it?"))
	fmt.Println(agent.Text(reply), err)
	// Output: The tide in Brest: 4.2 m. That is 3 EUR. <nil>
}

// The teams of a file are served.
func ExampleFile_ServerConfig() {
	f, err := teamfile.Load("testdata", program())
	if err != nil {
		panic(err)
	}
	defer f.Close()
	c := f.ServerConfig()
	c.Settings.Grpc, c.Settings.Http = "off", "127.0.0.1:0"
	s, err := server.New(c)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()

	body := strings.NewReader(`{"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "How high is it?"}]}}`)
	resp, err := http.Post(s.Addrs().URL+"/team/v1/agents/harbour:process", "application/json", body) //nolint:noctx // short
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, strings.Contains(string(answer), "That is 3 EUR."), err)
	stop()
	fmt.Println(<-served)
	// Output:
	// 200 OK true <nil>
	// <nil>
}
