package config

import (
	"encoding/json"
	"fmt"
	"path"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// approveTools reports patterns and conditions of the approvals of a tool's calls that cannot be used.
func (k *checker) approveTools(name string, a *teamv1.ApproveTools) {
	for i, pattern := range a.GetTools() {
		if _, err := path.Match(pattern, ""); err != nil {
			n, _ := k.at("tools", name, "approve", "tools", i)
			k.fault(n, fmt.Sprintf("%q is not a pattern of names", pattern), "write a name, in which * stands for any characters, such as pay_*")
		}
	}
	k.approveWhen(a.GetWhen(), false, "tools", name, "approve", "when")
}

// approveWhen reports a condition of an approval that does not compile.
func (k *checker) approveWhen(when string, member bool, path ...any) {
	if when == "" {
		return
	}
	if _, err := expr.CompileApproval(when, member); err != nil {
		k.expression("approve.when", err, true, path...)
	}
}

// ApproveTool returns the function that says who decides about a call of a tool, nil if calls need no
// approval. The function is safe for concurrent use. a must have been validated.
func ApproveTool(a *teamv1.ApproveTools) func(tool string, arguments json.RawMessage) *agent.Approval {
	if a == nil {
		return nil
	}
	need, when := &agent.Approval{Roles: a.GetRoles(), Expires: a.GetExpires().AsDuration()}, condition(a.GetWhen(), false)
	return func(tool string, arguments json.RawMessage) *agent.Approval {
		if !matches(a.GetTools(), tool) {
			return nil
		}
		return when(need, func(name string) any {
			if name == "tool" {
				return tool
			}
			var object map[string]any
			if err := json.Unmarshal(arguments, &object); err != nil {
				return map[string]any{}
			}
			return object
		})
	}
}

// approveMember returns the function that says who decides about a delegation to a member, nil if
// delegations need no approval. a must have been validated.
func approveMember(a *teamv1.ApproveMember) func(*a2av1.Message) *agent.Approval {
	if a == nil {
		return nil
	}
	need, when := &agent.Approval{Roles: a.GetRoles(), Expires: a.GetExpires().AsDuration()}, condition(a.GetWhen(), true)
	return func(input *a2av1.Message) *agent.Approval {
		return when(need, func(string) any { return prompt.HandedOver(input) })
	}
}

// condition returns a function that returns need if the condition source is true or cannot be
// evaluated. An empty source is always true.
func condition(source string, member bool) func(need *agent.Approval, v expr.Values) *agent.Approval {
	always := func(need *agent.Approval, _ expr.Values) *agent.Approval { return need }
	if source == "" {
		return always
	}
	e, err := expr.CompileApproval(source, member)
	if err != nil { // an invalid condition must not let anything through
		return always
	}
	return func(need *agent.Approval, v expr.Values) *agent.Approval {
		if holds, err := e.Holds(v); err == nil && !holds {
			return nil
		}
		return need
	}
}

// matches reports whether one of the patterns matches a name. No patterns match every name.
func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if ok, err := path.Match(pattern, name); ok || err != nil {
			return true
		}
	}
	return len(patterns) == 0
}
