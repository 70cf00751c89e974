package agent

import (
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Scope returns the scope of the step with this id in parent.
func Scope(parent, id string) string {
	if parent == "" {
		return id
	}
	return parent + "." + id
}

// Parent returns the scope above scope: without its last step id. The parent of a top-level step,
// and of the root itself, is the root.
func Parent(scope string) string {
	if i := strings.LastIndexByte(scope, '.'); i >= 0 {
		return scope[:i]
	}
	return ""
}

// Within reports whether scope is top or below it.
func Within(scope, top string) bool {
	return top == "" || scope == top || strings.HasPrefix(scope, top) && scope[len(top)] == '.'
}

// Path returns the path of the agent that works on req: the ids of the agents above it and its
// own, joined by slashes. It is the value of Event.Agent.
func Path(req *teamv1.ProcessRequest) string {
	if len(req.GetPath()) == 0 {
		return req.GetAgentId()
	}
	return strings.Join(req.GetPath(), "/") + "/" + req.GetAgentId()
}

// ChildTask returns the task id of the step in scope: the id of the root task, "~" and the scope.
// The root scope is the root task itself.
func ChildTask(root, scope string) string {
	if scope == "" {
		return root
	}
	return root + "~" + scope
}

// SplitTask is the reverse of ChildTask. If id ends in "~", it is returned unchanged, as a root
// that no task has.
func SplitTask(id string) (root, scope string) {
	root, scope, child := strings.Cut(id, "~")
	if child && scope == "" {
		return id, ""
	}
	return root, scope
}

// IsDelegation reports whether steps of kind k are done by a member: by delegation, hand-over or
// workflow step.
func IsDelegation(k teamv1.Step_Kind) bool {
	return k == teamv1.Step_KIND_DELEGATE || k == teamv1.Step_KIND_TRANSFER || k == teamv1.Step_KIND_STEP
}

// ByMember reports whether steps of kind k are work of a member: delegations, and the rounds of those
// whose results are judged.
func ByMember(k teamv1.Step_Kind) bool { return IsDelegation(k) || k == teamv1.Step_KIND_ROUND }
