package mcpdoor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
)

// tasksExtension is the extension by which a call is answered with a task, whose id is that of the A2A task.
const tasksExtension = "io.modelcontextprotocol/tasks"

// pollInterval is how long clients should wait between two looks at a task.
const pollInterval = time.Second

// flatTask is a task of the extension.
type flatTask struct {
	ResultType    string                  `json:"resultType"`
	TaskID        string                  `json:"taskId"`
	Status        string                  `json:"status"`
	StatusMessage string                  `json:"statusMessage,omitempty"`
	CreatedAt     time.Time               `json:"createdAt"`
	LastUpdatedAt time.Time               `json:"lastUpdatedAt"`
	TTL           *int                    `json:"ttlMs"`
	PollInterval  int64                   `json:"pollIntervalMs"`
	Result        any                     `json:"result,omitempty"`
	InputRequests map[string]inputRequest `json:"inputRequests,omitempty"`
}

// flat returns a task of the extension.
func flat(task *a2av1.Task, resultType string) flatTask {
	updated := task.GetStatus().GetTimestamp().AsTime()
	f := flatTask{ResultType: resultType, TaskID: task.GetId(), CreatedAt: updated, LastUpdatedAt: updated, PollInterval: pollInterval.Milliseconds()}
	if id, err := uuid.Parse(task.GetId()); err == nil && id.Version() == 7 {
		f.CreatedAt = time.Unix(id.Time().UnixTime()).UTC()
	}
	switch state := task.GetStatus().GetState(); {
	case state == a2av1.TaskState_TASK_STATE_CANCELED:
		f.Status = "cancelled"
	case taskstate.Final(state): // a failure is a result with isError
		f.Status = "completed"
	case taskstate.Interrupted(state):
		f.Status, f.StatusMessage = "input_required", questionText(task)
	default:
		f.Status = "working"
	}
	return f
}

// task serves the methods of the extension.
func (d *Door) task(ctx context.Context, q *request) (any, error) {
	var params struct {
		TaskID  string                 `json:"taskId"`
		Answers map[string]elicitation `json:"inputResponses"`
	}
	if err := json.Unmarshal(q.Params, &params); err != nil || params.TaskID == "" {
		return nil, &rpcError{wire.RPCInvalidParams, "params.taskId must be the id of a task"}
	}
	t := &toolCall{Door: d, request: q, task: params.TaskID}
	switch q.Method {
	case "tasks/cancel":
		_, err := invoke[*a2av1.Task](ctx, d, a2av1.A2AService_CancelTask_FullMethodName, &a2av1.CancelTaskRequest{Id: params.TaskID})
		return empty{ResultType: "complete"}, err
	case "tasks/update":
		_, err := t.answer(ctx, params.TaskID, params.Answers)
		return empty{ResultType: "complete"}, err
	}
	task, err := t.get(ctx, params.TaskID)
	if err != nil {
		return nil, err
	}
	f := flat(task, "complete")
	switch f.Status {
	case "completed":
		f.Result = resultOf(ctx, q, "", task)
		d.repeats.got(task.GetId())
	case "input_required":
		f.InputRequests = inputRequests(questionsOf(task))
	}
	return f, nil
}
