package modes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// CheckApproveTools reports patterns and conditions of the approvals of a tool's calls that cannot be used. at is the place
// of the approval.
func CheckApproveTools(at source.Place, a *teamv1.ApproveTools) {
	for i, pattern := range a.GetTools() {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			at.At("tools", i).Fault(fmt.Sprintf("%q is not a pattern of names", pattern), "write a name, in which * stands for any characters, such as pay_*")
		}
	}
	approveWhen(at.At("when"), a.GetWhen(), false)
}

// approveWhen reports a condition of an approval that does not compile.
func approveWhen(at source.Place, when string, member bool) {
	if when == "" {
		return
	}
	if _, err := expr.CompileApproval(when, member); err != nil {
		expression(at, "approve.when", err, true)
	}
}

// ApproveTool returns the function that says who decides about a call of a tool, nil if calls need no
// approval. The function is safe for concurrent use. a must have been validated.
func ApproveTool(a *teamv1.ApproveTools) func(tool string, arguments json.RawMessage) *agent.Approvers {
	if a == nil {
		return nil
	}
	need, when := &agent.Approvers{Roles: a.GetRoles(), Expires: a.GetExpires().AsDuration()}, condition(a.GetWhen(), false)
	return func(tool string, arguments json.RawMessage) *agent.Approvers {
		if !matches(a.GetTools(), tool) {
			return nil
		}
		var object map[string]any
		if json.Unmarshal(arguments, &object) != nil || object == nil || ambiguous(arguments) {
			return need // the tool may read something else than the condition
		}
		return when(need, func(name string) any {
			if name == "tool" {
				return tool
			}
			return object
		})
	}
}

// ambiguous reports whether an object in a JSON document, at any depth, has two names that differ at
// most in case. Programs disagree about which of their values counts.
func ambiguous(document json.RawMessage) bool {
	d := json.NewDecoder(bytes.NewReader(document))
	var open []map[string]bool // names of the open objects; nil for a list
	isName := false
	for {
		token, err := d.Token()
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
		case string:
			if isName {
				name := folded(t)
				if open[len(open)-1][name] {
					return true
				}
				open[len(open)-1][name] = true
				isName = false
				continue
			}
		}
		isName = len(open) > 0 && open[len(open)-1] != nil && d.More()
	}
}

// folded returns a form of a name that is the same for all names that strings.EqualFold considers
// equal. Lower case is not: the Kelvin sign and the long s are other forms of k and s.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}

// approveMember returns the function that says who decides about a delegation to a member, nil if
// delegations need no approval. a must have been validated.
func approveMember(a *teamv1.ApproveMember) func(*a2av1.Message) *agent.Approvers {
	if a == nil {
		return nil
	}
	need, when := &agent.Approvers{Roles: a.GetRoles(), Expires: a.GetExpires().AsDuration()}, condition(a.GetWhen(), true)
	return func(input *a2av1.Message) *agent.Approvers {
		return when(need, func(string) any { return agent.Prompt(input) })
	}
}

// condition returns a function that returns need if the condition source is true or cannot be
// evaluated. An empty source is always true.
func condition(source string, member bool) func(need *agent.Approvers, v expr.Values) *agent.Approvers {
	always := func(need *agent.Approvers, _ expr.Values) *agent.Approvers { return need }
	if source == "" {
		return always
	}
	e, err := expr.CompileApproval(source, member)
	if err != nil { // an invalid condition must not let anything through
		return always
	}
	return func(need *agent.Approvers, v expr.Values) *agent.Approvers {
		if holds, err := e.Holds(v); err == nil && !holds {
			return nil
		}
		return need
	}
}

// Unmatched returns the first pattern of an approval that matches none of the tools; empty if there is
// none.
func Unmatched(a *teamv1.ApproveTools, tools []string) string {
	for _, pattern := range a.GetTools() {
		if !slices.ContainsFunc(tools, func(name string) bool { return matches([]string{pattern}, name) }) {
			return pattern
		}
	}
	return ""
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
