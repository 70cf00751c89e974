package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// ending is a context that is found canceled by the first look at it after soon.
type ending struct {
	context.Context
	cancel context.CancelCauseFunc
	near   atomic.Bool
}

func (e *ending) soon() { e.near.Store(true) }

func (e *ending) Err() error {
	if e.near.Load() {
		e.cancel(agent.ErrCanceled)
	}
	return e.Context.Err()
}

// hurried is a peer whose first word of its task comes with the end of the call;
// nothing follows. It ends its task by id only. Over A2A it answers as a server of REST.
type hurried struct {
	teamv1.AgentServiceClient
	end func()
}

const theirs = "theirs"

func (h hurried) RoundTrip(req *http.Request) (*http.Response, error) {
	const task = `{"id":"` + theirs + `","status":{"state":"TASK_STATE_WORKING"}}`
	media, body := wire.TypeJSON, io.Reader(strings.NewReader(strings.Replace(task, "WORKING", "CANCELED", 1)))
	switch {
	case strings.HasSuffix(req.URL.Path, "/message:send"):
		h.end()
		body = strings.NewReader(`{"task":` + task + `}`)
	case strings.HasSuffix(req.URL.Path, "/message:stream"):
		media, body = wire.TypeSSE, &oneEvent{ctx: req.Context(), end: h.end, text: `data: {"task":` + task + "}\n\n"}
	case !strings.HasSuffix(req.URL.Path, "/tasks/"+theirs+":cancel"):
		return nil, errors.New(req.URL.Path)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(body)}, nil
}

// oneEvent is the body of a stream that holds one event.
type oneEvent struct {
	ctx  context.Context //nolint:containedctx // a stream is its context's own
	end  func()
	text string
}

func (e *oneEvent) Read(b []byte) (int, error) {
	if e.text == "" {
		<-e.ctx.Done()
		return 0, e.ctx.Err()
	}
	e.end()
	n := copy(b, e.text)
	e.text = e.text[n:]
	return n, nil
}

func (h hurried) Process(context.Context, *teamv1.ProcessRequest, ...grpc.CallOption) (*teamv1.ProcessResponse, error) {
	h.end()
	return &teamv1.ProcessResponse{Message: &a2av1.Message{TaskId: theirs}}, nil
}

func (h hurried) ProcessStream(
	ctx context.Context, _ *teamv1.ProcessStreamRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[teamv1.ProcessStreamResponse], error) {
	return &oneWord{ctx: ctx, end: h.end}, nil
}

func (h hurried) Cancel(_ context.Context, req *teamv1.CancelRequest, _ ...grpc.CallOption) (*teamv1.CancelResponse, error) {
	if req.GetTaskId() == theirs {
		return &teamv1.CancelResponse{State: a2av1.TaskState_TASK_STATE_CANCELED}, nil
	}
	return &teamv1.CancelResponse{State: a2av1.TaskState_TASK_STATE_WORKING}, nil
}

// oneWord is the stream of a hurried peer. One goroutine at a time.
type oneWord struct {
	grpc.ClientStream
	ctx  context.Context //nolint:containedctx // a stream is its context's own
	end  func()
	said bool
}

func (s *oneWord) Recv() (*teamv1.ProcessStreamResponse, error) {
	if s.said {
		<-s.ctx.Done()
		return nil, s.ctx.Err()
	}
	s.said = true
	s.end()
	return &teamv1.ProcessStreamResponse{TaskId: theirs, Event: &teamv1.Event{Seq: 1}}, nil
}

// TestS_24_TaskThatIsNamedWithTheCancel: what comes in the moment in which the
// call is canceled is not lost, or nobody could end the peer's task.
func TestS_24_TaskThatIsNamedWithTheCancel(t *testing.T) {
	exchanged := func(streaming bool) func(*call, hurried) error {
		return func(c *call, h hurried) error {
			x := newExchange(&A2A{cfg: A2AConfig{ID: "far", CancelWait: time.Second}, peer: peer{card: mustCard()}}, c)
			x.link = &link{client: clientOf(t, BindingREST, "1.0", h), streaming: streaming}
			return x.converse(x.first())
		}
	}
	processed := func(play func(*process) error) func(*call, hurried) error {
		return func(c *call, h hurried) error {
			a := &Agent{cfg: Config{ID: "far", CancelWait: time.Second, CancelEvery: time.Millisecond}.withDefaults(), client: h}
			return play(newProcess(a, c))
		}
	}
	for name, play := range map[string]func(*call, hurried) error{
		"a2a":                  exchanged(true),
		"a2a, polled":          exchanged(false),
		"agent service":        processed((*process).attend),
		"agent service, unary": processed((*process).unary),
	} {
		t.Run(name, func(t *testing.T) {
			for range 64 { // the end is now seen first, now what comes
				ctx := &ending{}
				ctx.Context, ctx.cancel = context.WithCancelCause(agent.With(t.Context(), &agent.Run{Root: "root"}))
				c := newCall(ctx, &teamv1.ProcessRequest{AgentId: "far", Scope: "1", Key: "k"}, func(*teamv1.Event, error) bool { return true })
				err := play(c, hurried{end: ctx.soon})
				got := agent.AsError(err).Receipt.GetEntries()
				if len(got) != 1 || !got[0].GetConfirmed() || got[0].GetRemoteTaskId() != theirs {
					t.Fatalf("error %v, receipt %v", err, got)
				}
			}
		})
	}
}

// deaf is a peer that does not answer a cancel.
type deaf struct{ teamv1.AgentServiceClient }

func (deaf) Cancel(ctx context.Context, _ *teamv1.CancelRequest, _ ...grpc.CallOption) (*teamv1.CancelResponse, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// TestS_24_TaskThatIsNamedWhileACancelHangs: the receipt says which task may go on.
func TestS_24_TaskThatIsNamedWhileACancelHangs(t *testing.T) {
	src := read(t.Context(), func(ctx context.Context) iter.Seq2[*teamv1.ProcessStreamResponse, error] {
		return func(yield func(*teamv1.ProcessStreamResponse, error) bool) {
			if yield(&teamv1.ProcessStreamResponse{TaskId: theirs}, nil) {
				<-ctx.Done()
			}
		}
	})
	defer src.close()
	if _, err := src.next(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	src.unread()
	a := &Agent{cfg: Config{ID: "far", CancelWait: time.Millisecond}.withDefaults(), client: deaf{}}
	ctx := ended(agent.With(t.Context(), &agent.Run{Root: "root"}))
	p := newProcess(a, newCall(ctx, &teamv1.ProcessRequest{AgentId: "far", Scope: "1", Key: "k"}, nil))
	p.sent = true
	err := p.ended(streamedID(src))
	got := agent.AsError(err).Receipt.GetEntries()
	if len(got) != 1 || !got[0].GetUnconfirmed() || got[0].GetRemoteTaskId() != theirs {
		t.Errorf("error %v, receipt %v", err, got)
	}
}
