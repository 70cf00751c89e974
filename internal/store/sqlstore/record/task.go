package record

import (
	"context"
	"fmt"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/agent"
)

// OpenStates is the condition for rows of task that have not ended.
var OpenStates = fmt.Sprintf("state IN (%d, %d, %d, %d)", a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING,
	a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, a2av1.TaskState_TASK_STATE_AUTH_REQUIRED)

// AgentKey is the key of the agent of a row of task; see agent.KeyOf.
const AgentKey = `CASE WHEN agent_account = '' THEN agent ELSE agent_account || ':' || agent END`

// selectOwned selects a row if a root belongs to an owner.
const selectOwned = `SELECT 1 FROM run WHERE id = $1 AND owner = $2`

// Owned splits a key into root and scope. The error is runs.ErrNotFound if the root does not belong
// to the owner.
func Owned(ctx context.Context, q db.Querier, k runs.Key) (root, scope string, err error) {
	root, scope = agent.SplitTask(k.ID)
	_, err = db.Value[int](ctx, q, selectOwned, root, k.Owner)
	return root, scope, db.NotFound(err)
}
