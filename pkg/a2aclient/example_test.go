package a2aclient_test

import (
	"context"
	"errors"
	"fmt"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
)

// harbour serves an agent at a URL until stop is called.
func harbour() (url string, stop func()) {
	s, err := server.New(server.Config{
		Agent: &agent.Func{ID: "harbour", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			return agent.NewMessage("You asked " + agent.Text(m)), nil
		}},
		Settings: &teamv1.ServerSettings{Http: "127.0.0.1:0", Grpc: "127.0.0.1:0"},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return s.Addrs().URL, func() {
		cancel()
		if err := <-done; err != nil {
			panic(err)
		}
	}
}

// Open reads the card of the agent at a URL, and SendMessage uses the first interface in it.
func Example() {
	url, stop := harbour()
	defer stop()
	ctx := context.Background()

	c, err := a2aclient.Open(ctx, url, a2aclient.Config{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	resp, err := c.SendMessage(ctx, &a2av1.SendMessageRequest{Message: agent.UserMessage("m1", "when high tide is.")})
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.GetTask().GetStatus().GetState())
	fmt.Println(resp.GetTask().GetArtifacts()[0].GetParts()[0].GetText())
	// Output:
	// TASK_STATE_COMPLETED
	// You asked when high tide is.
}

// A card describes an agent and lists its interfaces.
func ExampleReadCard() {
	url, stop := harbour()
	defer stop()

	card, _, err := a2aclient.ReadCard(context.Background(), url, a2aclient.Config{})
	if err != nil {
		panic(err)
	}
	fmt.Println(card.GetName())
	for _, i := range card.GetSupportedInterfaces() {
		if i.GetProtocolVersion() == a2aclient.V1 {
			fmt.Println(i.GetProtocolBinding())
		}
	}
	// Output:
	// harbour
	// JSONRPC
	// HTTP+JSON
	// GRPC
}

// A message that is sent again with its id begins no second task, so a call that received no
// answer can be repeated.
func ExampleClient_SendMessage() {
	url, stop := harbour()
	defer stop()
	ctx := context.Background()

	c, err := a2aclient.Open(ctx, url, a2aclient.Config{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var tasks []string
	for range 2 {
		resp, err := c.SendMessage(ctx, &a2av1.SendMessageRequest{Message: agent.UserMessage("m1", "for a pilot.")})
		if err != nil {
			panic(err)
		}
		tasks = append(tasks, resp.GetTask().GetId())
	}
	fmt.Println(tasks[0] == tasks[1])
	// Output:
	// true
}

// A subscription continues behind the cursor of a response that was read before, also in
// another process.
func ExampleClient_SubscribeToTask() {
	url, stop := harbour()
	defer stop()
	ctx := context.Background()

	c, err := a2aclient.Open(ctx, url, a2aclient.Config{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var task string
	var after int64
	for r, err := range c.StreamMessage(ctx, &a2av1.SendMessageRequest{Message: agent.UserMessage("m1", "for a tug.")}) {
		if err != nil {
			panic(err)
		}
		task, after = r.GetTask().GetId(), a2aclient.Cursor(r)
		break // the first response is the task
	}
	for r, err := range c.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: task}, after) {
		if err != nil {
			panic(err)
		}
		if u := r.GetArtifactUpdate(); u != nil && !u.GetAppend() {
			fmt.Println(u.GetArtifact().GetParts()[0].GetText())
		}
	}
	// Output:
	// You asked for a tug.
}

// A stream yields the task and then its updates. If the connection breaks, the client
// resumes the stream behind the newest cursor.
func ExampleClient_StreamMessage() {
	url, stop := harbour()
	defer stop()
	ctx := context.Background()

	c, err := a2aclient.Open(ctx, url, a2aclient.Config{Bindings: []string{a2aclient.JSONRPC}, Resumes: 10})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var task string
	for r, err := range c.StreamMessage(ctx, &a2av1.SendMessageRequest{Message: agent.UserMessage("m1", "for a berth.")}) {
		if err != nil {
			panic(err) // after ten tries that brought nothing new
		}
		if u := r.GetArtifactUpdate(); u != nil && !u.GetAppend() {
			task = u.GetTaskId()
			fmt.Println(u.GetArtifact().GetParts()[0].GetText())
		}
	}
	_, err = c.CancelTask(ctx, &a2av1.CancelTaskRequest{Id: task})
	fmt.Println("ended already:", errors.Is(err, a2aclient.ErrTaskNotCancelable))
	// Output:
	// You asked for a berth.
	// ended already: true
}

// The type of an error tells whether the server answered with an error or the call failed.
func ExampleServerError() {
	url, stop := harbour()
	ctx := context.Background()

	c, err := a2aclient.Open(ctx, url, a2aclient.Config{Bindings: []string{a2aclient.REST}})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, err = c.GetTask(ctx, &a2av1.GetTaskRequest{Id: "t1"})
	var refused *a2aclient.ServerError
	if errors.As(err, &refused) {
		fmt.Println(refused.Reason, refused.HTTPStatus, errors.Is(err, a2aclient.ErrTaskNotFound))
	}

	stop()
	_, err = c.GetTask(ctx, &a2av1.GetTaskRequest{Id: "t1"})
	fmt.Println(errors.Is(err, a2aclient.ErrUnreachable))
	// Output:
	// TASK_NOT_FOUND 404 true
	// true
}
