package config

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// leastCost is the smallest cost limit, in USD. Costs are counted in millionths of a USD.
const leastCost = 1e-6

// limitScope is a kind of agent or team that can have limits.
type limitScope struct {
	word, what string
	limits     []string // the limits that apply to it
}

// The limits of teams, by mode, and of agents with a model.
var (
	common             = []string{"max_steps", "max_rounds", "max_parallel", "max_depth", "timeout", "member_timeout", "retry", "max_tokens", "max_cost", "on_limit", "ask_roles"}
	limitedTeam        = limitScope{"team", "a team", common}
	limitedCoordinator = limitScope{"coordinator team", "a coordinator team", append(slices.Clip(common), "max_turns", "max_delegations", "max_repeated_calls")}
	limitedSwarm       = limitScope{"swarm team", "a swarm team", append(slices.Clip(common), ofSwarms...)}
	limitedAgent       = limitScope{"agent", "an agent with a model", []string{"max_turns", "max_repeated_calls", "max_rounds", "timeout", "retry", "max_tokens", "max_cost", "on_limit", "ask_roles"}}
)

// switchable are the limits that can be turned off with 0.
var switchable = append(slices.Clip(ofSwarms), "max_repeated_calls")

// ofSwarms are the limits of swarms.
var ofSwarms = []string{"max_handoffs", "node_timeout", "loop_window", "loop_min_unique"}

func limitedBy(t *teamv1.TeamConfig) limitScope {
	switch {
	case Leader(t) != nil:
		return limitedCoordinator
	case t.GetSwarm() != nil:
		return limitedSwarm
	}
	return limitedTeam
}

// limits reports limits that do not apply to the given scope, and values that are not positive. The
// limits in switchable may be 0.
func (k *checker) limits(l *teamv1.Limits, here limitScope, path ...any) {
	if l == nil {
		return
	}
	l.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := f.TextName()
		at := append(slices.Clone(path), name)
		switch {
		case !slices.Contains(here.limits, name):
			k.misplacedLimit(name, here, at...)
		case name == "retry":
			k.retry(l.GetRetry(), at...)
		case name == "on_limit":
			k.onLimit(l, at...)
		case name == "ask_roles":
			k.askRoles(l, at...)
		case slices.Contains(switchable, name):
			if !positive(f, v) && !zero(f, v) {
				n, _ := k.at(at...)
				k.fault(n, name+" must not be negative", "write 0 to disable it, or remove it to use the default")
			}
		case !positive(f, v):
			k.mustBePositive(name, at...)
		case name == "max_cost" && v.Float() < leastCost:
			n, _ := k.at(at...)
			k.fault(n, "max_cost is less than 0.000001 USD, the smallest amount that is counted", fmt.Sprintf("write %.6f or more", leastCost))
		}
		return true
	})
}

// misplacedLimit reports a limit that does not apply to the given scope and names the one it
// applies to.
func (k *checker) misplacedLimit(name string, here limitScope, path ...any) {
	n, known := k.keyAt(path...), strings.Join(here.limits, ", ")
	for _, there := range []limitScope{limitedTeam, limitedAgent, limitedCoordinator, limitedSwarm} {
		if slices.Contains(there.limits, name) {
			k.fault(n, fmt.Sprintf("limit %s belongs to %s", name, there.what),
				fmt.Sprintf("set it in the limits of the %s; %s has %s", there.word, here.what, known))
			return
		}
	}
}

// onLimit checks what happens at the limits of a budget.
func (k *checker) onLimit(l *teamv1.Limits, path ...any) {
	n, _ := k.at(path...)
	if l.GetOnLimit() == teamv1.OnLimit_ASK && l.MaxTokens == nil && l.MaxCost == nil { //nolint:protogetter // set or not matters
		k.fault(n, "on_limit ASK has no limit to ask about", "add max_tokens or max_cost to these limits")
	}
}

// askRoles checks that people with the roles are asked at all.
func (k *checker) askRoles(l *teamv1.Limits, path ...any) {
	n, _ := k.at(path...)
	if l.GetOnLimit() != teamv1.OnLimit_ASK {
		k.fault(n, "ask_roles has no effect without on_limit: ASK", "add on_limit: ASK, or remove ask_roles")
	}
}

// retry checks a retry policy.
func (k *checker) retry(r *teamv1.Retry, path ...any) {
	if r.GetAttempts() < 1 && r != nil && r.Attempts != nil { //nolint:protogetter // set or not matters
		k.mustBePositive("attempts", append(slices.Clone(path), "attempts")...)
	}
	if r.GetBackoff().AsDuration() < 0 {
		k.mustBePositive("backoff", append(slices.Clone(path), "backoff")...)
	}
}

// mustBePositive reports a value that is not positive, unless it is damaged.
func (k *checker) mustBePositive(name string, path ...any) {
	n, _ := k.at(path...)
	if !k.damaged[n] {
		k.fault(n, name+" must be more than 0", "remove it to use the default")
	}
}

// positive reports whether the value of a limit is greater than 0.
func positive(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch f.Kind() {
	case protoreflect.MessageKind:
		d, ok := v.Message().Interface().(*durationpb.Duration)
		return !ok || d.AsDuration() > 0
	case protoreflect.DoubleKind:
		return v.Float() > 0
	default:
		return v.Int() > 0
	}
}

// zero reports whether the value of a limit is 0.
func zero(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	if f.Kind() == protoreflect.MessageKind {
		d, ok := v.Message().Interface().(*durationpb.Duration)
		return ok && d.AsDuration() == 0
	}
	return v.Int() == 0
}
