package temporal

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Check connects to Temporal and returns what it found: its version, how long the namespace keeps ended workflows, and how
// many servers take tasks. missing are the search attributes that the namespace does not have. The error says what else is missing.
func Check(ctx context.Context, t *teamv1.TemporalSettings) (found string, missing []string, err error) {
	c, err := dial(ctx, t)
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	system, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return "", nil, err
	}
	space, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: t.GetNamespace()})
	if unknown := (*serviceerror.NamespaceNotFound)(nil); errors.As(err, &unknown) {
		return "", nil, fmt.Errorf("the namespace %s does not exist; create it with temporal operator namespace create -n %s, or set engine.temporal.namespace", t.GetNamespace(), t.GetNamespace())
	}
	if err != nil {
		return "", nil, err
	}
	queue, err := c.DescribeTaskQueue(ctx, t.GetTaskQueue(), enums.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return "", nil, err
	}
	servers := map[string]bool{}
	for _, p := range queue.GetPollers() {
		servers[p.GetIdentity()] = true
	}
	missing, err = unregistered(ctx, c, t.GetNamespace())
	return fmt.Sprintf("Temporal %s; the namespace %s keeps ended workflows for %v; servers that take tasks from %s: %d",
		system.GetServerVersion(), t.GetNamespace(), space.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), t.GetTaskQueue(), len(servers)), missing, err
}
