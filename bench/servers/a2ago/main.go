// Command a2ago serves an agent that echoes, with the official Go SDK and its task store in memory.
// It prints the URL for JSON-RPC when it is ready.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"log/slog"
	"net"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// echo answers with the text it is sent, in a task of four events.
type echo struct{}

// Execute yields the events of a task: submitted, working, the artifact, completed.
func (echo) Execute(_ context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		events := []a2a.Event{
			a2a.NewSubmittedTask(req, req.Message),
			a2a.NewStatusUpdateEvent(req, a2a.TaskStateWorking, nil),
			a2a.NewArtifactEvent(req, req.Message.Parts...),
			a2a.NewStatusUpdateEvent(req, a2a.TaskStateCompleted, nil),
		}
		for _, ev := range events {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// Cancel yields that the task is canceled.
func (echo) Cancel(_ context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(req, a2a.TaskStateCanceled, nil), nil)
	}
}

func main() {
	handler := a2asrv.NewHandler(echo{}, a2asrv.WithLogger(slog.New(slog.DiscardHandler)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ready http://%s/\n", l.Addr())
	log.Fatal(http.Serve(l, a2asrv.NewJSONRPCHandler(handler))) //nolint:gosec // a server for benchmarks on loopback
}
