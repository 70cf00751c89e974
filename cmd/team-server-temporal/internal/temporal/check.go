package temporal

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Check connects to Temporal and returns what it found: its version, how long the namespace keeps ended workflows, and how
// many servers take tasks. The error says what is missing.
func Check(ctx context.Context, t *teamv1.TemporalSettings) (found string, err error) {
	opts, err := optionsOf(t, zap.NewNop())
	if err != nil {
		return "", err
	}
	opts.Identity = "doctor"
	c, err := client.DialContext(ctx, opts)
	if err != nil {
		return "", err
	}
	defer c.Close()
	system, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return "", err
	}
	space, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: t.GetNamespace()})
	if missing := (*serviceerror.NamespaceNotFound)(nil); errors.As(err, &missing) {
		return "", fmt.Errorf("the namespace %s does not exist; create it with temporal operator namespace create -n %s, or set engine.temporal.namespace", t.GetNamespace(), t.GetNamespace())
	}
	if err != nil {
		return "", err
	}
	queue, err := c.DescribeTaskQueue(ctx, t.GetTaskQueue(), enums.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return "", err
	}
	servers := map[string]bool{}
	for _, p := range queue.GetPollers() {
		servers[p.GetIdentity()] = true
	}
	return fmt.Sprintf("Temporal %s; the namespace %s keeps ended workflows for %v; servers that take tasks from %s: %d",
		system.GetServerVersion(), t.GetNamespace(), space.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), t.GetTaskQueue(), len(servers)), nil
}
