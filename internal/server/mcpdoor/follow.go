package mcpdoor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/pkg/agent"
)

// follow runs a streaming method, tells the client about progress if it asked for that, and returns the task as it is at the
// end of the stream.
func (t *toolCall) follow(ctx context.Context, method string, req proto.Message) (*a2av1.Task, error) {
	s := &updates{ctx: ctx, req: req, call: t}
	if err := t.Table.Stream(method, s); err != nil {
		return nil, err
	}
	if s.direct != nil {
		return direct(s.direct), nil
	}
	return t.get(ctx, t.task)
}

// updates receives the updates of a task. It implements grpc.ServerStream.
type updates struct {
	ctx    context.Context //nolint:containedctx // that of the call, as in every grpc.ServerStream
	req    proto.Message
	call   *toolCall
	direct *a2av1.Message // an answer without a task
	n      int            // number of notifications
	last   time.Time      // of the last one
}

// Context implements grpc.ServerStream.
func (u *updates) Context() context.Context { return u.ctx }

// SetHeader implements grpc.ServerStream.
func (*updates) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (*updates) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (*updates) SetTrailer(metadata.MD) {}

// RecvMsg returns the request.
func (u *updates) RecvMsg(to any) error { return service.Share(to, u.req) }

// progressInterval is the shortest time between two notifications.
const progressInterval = time.Second

// SendMsg takes an update.
func (u *updates) SendMsg(m any) error {
	update, ok := m.(feed.Update)
	if !ok {
		return fmt.Errorf("receiving %T", m)
	}
	resp := update.Response
	switch {
	case resp.GetMessage() != nil:
		u.direct = resp.GetMessage()
	case resp.GetTask() != nil:
		u.call.task = resp.GetTask().GetId()
		u.notify(resp.GetTask().GetStatus())
	case resp.GetStatusUpdate() != nil:
		u.notify(resp.GetStatusUpdate().GetStatus())
	default:
		u.notify(nil)
	}
	return nil
}

// notify sends a notification about progress.
func (u *updates) notify(status *a2av1.TaskStatus) {
	if len(u.call.meta.ProgressToken) == 0 || time.Since(u.last) < progressInterval {
		return
	}
	u.n++
	u.last = time.Now()
	u.call.reply.send(progress{"2.0", "notifications/progress", progressParams{u.call.meta.ProgressToken, u.n, agent.Text(status.GetMessage())}})
}

// progress is a notification about the progress of a call.
type progress struct {
	JSONRPC string         `json:"jsonrpc"`
	Method  string         `json:"method"`
	Params  progressParams `json:"params"`
}

type progressParams struct {
	Token    json.RawMessage `json:"progressToken"`
	Progress int             `json:"progress"`
	Message  string          `json:"message,omitempty"`
}
