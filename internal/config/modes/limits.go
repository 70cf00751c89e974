package modes

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
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

// CheckLimits reports limits of an agent that agents do not have, and values that are not positive. at is the place of
// the limits.
func CheckLimits(at source.Place, l *teamv1.Limits) { checkLimits(at, l, limitedAgent) }

// checkLimits reports limits that do not apply to the given scope, and values that are not positive. The
// limits in switchable may be 0.
func checkLimits(limits source.Place, l *teamv1.Limits, here limitScope) {
	if l == nil {
		return
	}
	l.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := f.TextName()
		at := limits.At(name)
		switch {
		case !slices.Contains(here.limits, name):
			misplacedLimit(at, name, here)
		case name == "retry":
			checkRetry(at, l.GetRetry())
		case name == "on_limit":
			onLimit(at, l)
		case name == "ask_roles":
			askRoles(at, l)
		case slices.Contains(switchable, name):
			if !positive(f, v) && !zero(f, v) {
				at.Fault(name+" must not be negative", "write 0 to disable it, or remove it to use the default")
			}
		case !positive(f, v):
			mustBePositive(at, name)
		case name == "max_cost" && v.Float() < leastCost:
			at.Fault("max_cost is less than 0.000001 USD, the smallest amount that is counted", fmt.Sprintf("write %.6f or more", leastCost))
		}
		return true
	})
}

// misplacedLimit reports a limit that does not apply to the given scope and names the one it
// applies to.
func misplacedLimit(at source.Place, name string, here limitScope) {
	known := strings.Join(here.limits, ", ")
	for _, there := range []limitScope{limitedTeam, limitedAgent, limitedCoordinator, limitedSwarm} {
		if slices.Contains(there.limits, name) {
			at.KeyFault(fmt.Sprintf("limit %s belongs to %s", name, there.what),
				fmt.Sprintf("set it in the limits of the %s; %s has %s", there.word, here.what, known))
			return
		}
	}
}

// onLimit checks what happens at the limits of a budget.
func onLimit(at source.Place, l *teamv1.Limits) {
	if l.GetOnLimit() == teamv1.OnLimit_ASK && l.MaxTokens == nil && l.MaxCost == nil { //nolint:protogetter // set or not matters
		at.Fault("on_limit: ask has no limit to ask about", "add max_tokens or max_cost to these limits")
	}
}

// askRoles checks that people with the roles are asked at all.
func askRoles(at source.Place, l *teamv1.Limits) {
	if l.GetOnLimit() != teamv1.OnLimit_ASK {
		at.Fault("ask_roles has no effect without on_limit: ask", "add on_limit: ask, or remove ask_roles")
	}
}

// checkRetry checks a retry policy.
func checkRetry(at source.Place, r *teamv1.Retry) {
	if r.GetAttempts() < 1 && r != nil && r.Attempts != nil { //nolint:protogetter // set or not matters
		mustBePositive(at.At("attempts"), "attempts")
	}
	if r.GetBackoff().AsDuration() < 0 {
		mustBePositive(at.At("backoff"), "backoff")
	}
}

// mustBePositive reports a value that is not positive.
func mustBePositive(at source.Place, name string) {
	at.Fault(name+" must be more than 0", "remove it to use the default")
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
