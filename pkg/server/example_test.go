package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// must keeps the examples short; a program handles its errors.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// worker returns an agent that answers each message with f of its text.
func worker(id string, f func(string) string) *agent.Func {
	return agent.TextFunc(id, func(_ context.Context, text string) (string, error) { return f(text), nil })
}

// pipeline returns a team whose members work one after the other.
func pipeline(agents *manager.Manager, id string, members ...string) *team.Team {
	var steps []workflow.Step
	var roster []team.Member
	for i, m := range members {
		step := workflow.Step{ID: m, Member: m}
		if i > 0 {
			step.After = []string{members[i-1]}
		}
		steps, roster = append(steps, step), append(roster, team.Member{Agent: m})
	}
	workflow := must(workflow.New(workflow.Config{Steps: steps}))
	return must(team.New(team.Config{ID: id, Mode: "workflow", Scheduler: workflow, Members: roster, Registry: agents}))
}

// background serves until the returned func is called, which waits for the end.
func background(s *server.TeamServer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			panic(err)
		}
	}
}

// send asks an agent over REST and returns the text of the answer.
func send(url, agentID, id, words string) string {
	body := fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":%q}]}}`, id, words)
	resp := must(http.Post(url+"/"+agentID+"/message:send", "application/json", strings.NewReader(body))) //nolint:noctx // short
	defer resp.Body.Close()
	var answer struct {
		Task struct {
			Artifacts []struct{ Parts []struct{ Text string } }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		panic(err)
	}
	return answer.Task.Artifacts[0].Parts[0].Text
}

// A team served in ten lines.
func Example() {
	agents := manager.New(manager.Config{})
	defer agents.Close()
	_ = agents.Register("researcher", worker("researcher", func(s string) string { return "facts about " + s }))
	_ = agents.Register("writer", worker("writer", func(s string) string { return "An essay on " + s + "." }))
	newsroom := pipeline(agents, "newsroom", "researcher", "writer")

	s := must(server.New(server.Config{Agent: newsroom, Settings: &teamv1.ServerSettings{Grpc: "127.0.0.1:0", Http: "127.0.0.1:0"}}))
	stop := background(s) // or s.Serve(ctx)
	defer stop()

	fmt.Println(send(s.Addrs().URL, "newsroom", "1", "tides"))
	// Output: An essay on facts about tides.
}

// A team is an agent, so a team can be a member of a team.
func Example_nested() {
	agents := manager.New(manager.Config{})
	defer agents.Close()
	_ = agents.Register("researcher", worker("researcher", func(s string) string { return "facts about " + s }))
	_ = agents.Register("writer", worker("writer", func(s string) string { return "An essay on " + s + "." }))
	_ = agents.Register("printer", worker("printer", strings.ToUpper))
	_ = agents.Register("newsroom", pipeline(agents, "newsroom", "researcher", "writer"))
	company := pipeline(agents, "company", "newsroom", "printer")

	s := must(server.New(server.Config{Agent: company, Settings: &teamv1.ServerSettings{Grpc: "127.0.0.1:0", Http: "127.0.0.1:0"}}))
	defer background(s)()

	fmt.Println(send(s.Addrs().URL, "company", "1", "tides"))
	// Output: AN ESSAY ON FACTS ABOUT TIDES.
}

// Several teams on one manager share agents, and are served side by side.
func Example_severalTeams() {
	agents := manager.New(manager.Config{})
	defer agents.Close()
	_ = agents.Register("writer", worker("writer", func(s string) string { return "An essay on " + s + "." }))
	_ = agents.Register("loud", worker("loud", strings.ToUpper))
	_ = agents.Register("letters", pipeline(agents, "letters", "writer"))
	_ = agents.Register("posters", pipeline(agents, "posters", "writer", "loud"))

	s := must(server.New(server.Config{Agents: agents, Settings: &teamv1.ServerSettings{Grpc: "127.0.0.1:0", Http: "127.0.0.1:0"}}))
	defer background(s)()

	fmt.Println(send(s.Addrs().URL, "letters", "1", "tides"))
	fmt.Println(send(s.Addrs().URL, "posters", "2", "tides"))
	// Output:
	// An essay on tides.
	// AN ESSAY ON TIDES.
}

// Tasks that are kept in a file outlive the server: the second one knows what the
// first one did, and does not do it again when the message is repeated.
func ExampleOpenStore() {
	dir := must(os.MkdirTemp("", "team"))
	defer os.RemoveAll(dir)
	calls := 0
	counter := worker("counter", func(string) string { calls++; return fmt.Sprintf("call %d", calls) })

	for range 2 {
		kept := must(server.OpenStore(context.Background(), "sqlite:"+filepath.Join(dir, "team.db"), server.StoreConfig{}))
		s := must(server.New(server.Config{Agent: counter, Store: kept, Settings: &teamv1.ServerSettings{Grpc: "off", Http: "127.0.0.1:0"}}))
		stop := background(s)
		fmt.Println(send(s.Addrs().URL, "counter", "message-1", "tides"))
		stop()
		_ = kept.Close() // last
	}
	// Output:
	// call 1
	// call 1
}

// A client over JSON-RPC, with nothing but net/http.
func Example_jsonRPC() {
	s := must(server.New(server.Config{Agent: worker("loud", strings.ToUpper), Settings: &teamv1.ServerSettings{Grpc: "off", Http: "127.0.0.1:0"}}))
	defer background(s)()

	request := []byte(`{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
		"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "tides"}]}}}`)
	resp := must(http.Post(s.Addrs().URL+"/loud/rpc", "application/json", bytes.NewReader(request))) //nolint:noctx // short
	defer resp.Body.Close()
	var answer struct {
		Result struct {
			Task struct{ Status struct{ State string } }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		panic(err)
	}
	fmt.Println(answer.Result.Task.Status.State)
	// Output: TASK_STATE_COMPLETED
}

// A client over gRPC, with the generated code.
func Example_gRPC() {
	s := must(server.New(server.Config{Agent: worker("loud", strings.ToUpper), Listeners: server.Listeners{GRPC: must(net.Listen("tcp", "127.0.0.1:0"))}})) //nolint:noctx // an example
	defer background(s)()

	conn := must(grpc.NewClient(s.Addrs().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	request := &a2av1.SendMessageRequest{Tenant: "loud", Message: agent.UserMessage("1", "tides")}
	stream := must(a2av1.NewA2AServiceClient(conn).SendStreamingMessage(context.Background(), request))
	for {
		update, err := stream.Recv()
		if err != nil {
			return // io.EOF
		}
		for _, part := range update.GetArtifactUpdate().GetArtifact().GetParts() {
			fmt.Println(part.GetText())
		}
	}
	// Output: TIDES
}
