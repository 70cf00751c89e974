package temporal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
)

// The search attributes of workflows. They hold ids and words, no content of tasks.
var (
	agentKey   = temporal.NewSearchAttributeKeyKeyword("TeamAgent")
	accountKey = temporal.NewSearchAttributeKeyKeyword("TeamAccount")
	contextKey = temporal.NewSearchAttributeKeyKeyword("TeamContext")
	// stateKey has the state of the task after its last drive, or working while it is due or driven.
	stateKey = temporal.NewSearchAttributeKeyKeyword("TeamState")

	searchAttributes = []temporal.SearchAttributeKeyKeyword{agentKey, accountKey, contextKey, stateKey}
)

// working is the state of a task that is due or driven.
var working = taskstate.Name(a2av1.TaskState_TASK_STATE_WORKING)

// lookEveryMinute is how often a server looks whether the namespace has the search attributes.
const lookEveryMinute = time.Minute

// Register adds the search attributes to the namespace, and returns the names of those that it did not have.
func Register(ctx context.Context, t *teamv1.TemporalSettings) (added []string, err error) {
	c, err := dial(ctx, t)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	missing, err := unregistered(ctx, c, t.GetNamespace())
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	types := map[string]enums.IndexedValueType{}
	for _, name := range missing {
		types[name] = enums.INDEXED_VALUE_TYPE_KEYWORD
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: t.GetNamespace(), SearchAttributes: types})
	return missing, err
}

// dial connects to Temporal for a command.
func dial(ctx context.Context, t *teamv1.TemporalSettings) (client.Client, error) {
	opts, err := optionsOf(t, zap.NewNop())
	if err != nil {
		return nil, err
	}
	opts.Identity = "team-server-temporal"
	return client.DialContext(ctx, opts)
}

// unregistered returns the names of the search attributes that a namespace does not have.
func unregistered(ctx context.Context, c client.Client, namespace string) (missing []string, err error) {
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return nil, err
	}
	for _, k := range searchAttributes {
		switch kind, known := have.GetCustomAttributes()[k.GetName()]; {
		case !known:
			missing = append(missing, k.GetName())
		case kind != enums.INDEXED_VALUE_TYPE_KEYWORD:
			return nil, fmt.Errorf("the search attribute %s of the namespace %s has the type %v, not Keyword; remove it, or use another namespace", k.GetName(), namespace, kind)
		}
	}
	return missing, nil
}

// lookForAttributes looks whether the namespace has the search attributes, unless it has done so within a minute. Without
// them workflows have none.
func (e *Engine) lookForAttributes(ctx context.Context) {
	if time.Since(e.looked) < lookEveryMinute {
		return
	}
	e.looked = time.Now()
	call, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	missing, err := unregistered(call, e.client, e.namespace)
	if unavailable := (*serviceerror.Unavailable)(nil); errors.As(err, &unavailable) || call.Err() != nil {
		return // as before
	}
	e.attributed.Store(err == nil && len(missing) == 0)
}

// attributesOf returns the search attributes with which the workflow of a run begins. It is empty if they are not registered.
func (e *Engine) attributesOf(ctx context.Context, k runs.Key) temporal.SearchAttributes {
	if !e.attributed.Load() {
		return temporal.SearchAttributes{}
	}
	s, err := e.Runs.Standing(ctx, k)
	if err != nil {
		return temporal.SearchAttributes{}
	}
	return temporal.NewSearchAttributes(agentKey.ValueSet(s.Agent), accountKey.ValueSet(identity.AccountOf(k.Owner)), contextKey.ValueSet(s.ContextID), stateKey.ValueSet(working))
}

// stateOf returns the state of a run for its search attribute, "" if it is not registered.
func (e *Engine) stateOf(ctx context.Context, k runs.Key) string {
	if !e.attributed.Load() || k.Owner == "" {
		return ""
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := e.Runs.Standing(call, k)
	if err != nil {
		return ""
	}
	return taskstate.Name(s.State)
}

// setState sets the search attribute of a workflow, unless it is "" or that already.
func setState(ctx workflow.Context, state string) error {
	now, _ := workflow.GetTypedSearchAttributes(ctx).GetKeyword(stateKey)
	if state == "" || state == now {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, stateKey.ValueSet(state))
}

// hasState reports whether a workflow has the search attribute.
func hasState(ctx workflow.Context) bool {
	_, has := workflow.GetTypedSearchAttributes(ctx).GetKeyword(stateKey)
	return has
}
