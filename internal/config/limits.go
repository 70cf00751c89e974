package config

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// leastCost is the least money that is counted, in USD.
const leastCost = 1e-6

// limited is something that has limits.
type limited struct {
	word, what string
	limits     []string // those that are read there
}

// Limits that hold for teams, by mode, and for agents with a model.
var (
	common             = []string{"max_steps", "max_rounds", "max_parallel", "max_depth", "timeout", "member_timeout", "retry", "max_tokens", "max_cost"}
	limitedTeam        = limited{"team", "a team", common}
	limitedCoordinator = limited{"coordinator team", "a coordinator team", append(slices.Clip(common), "max_turns", "max_delegations")}
	limitedSwarm       = limited{"swarm team", "a swarm team", append(slices.Clip(common), switchable...)}
	limitedAgent       = limited{"agent", "an agent with a model", []string{"max_turns", "max_rounds", "timeout", "retry", "max_tokens", "max_cost"}}
)

// switchable are the limits that 0 switches off.
var switchable = []string{"max_handoffs", "node_timeout", "loop_window", "loop_min_unique"}

func limitedBy(t *teamv1.TeamConfig) limited {
	switch {
	case Leader(t) != nil:
		return limitedCoordinator
	case t.GetSwarm() != nil:
		return limitedSwarm
	}
	return limitedTeam
}

// limits finds limits that do not work here, and values that limit nothing:
// negatives, and 0 where it switches nothing off.
func (k *checker) limits(l *teamv1.Limits, here limited, path ...any) {
	if l == nil {
		return
	}
	l.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := f.TextName()
		at := append(slices.Clone(path), name)
		switch {
		case !slices.Contains(here.limits, name):
			k.unread(name, here, at...)
		case name == "retry":
			k.retry(l.GetRetry(), at...)
		case slices.Contains(switchable, name):
			if !positive(f, v) && !zero(f, v) {
				n, _ := k.at(at...)
				k.fault(n, name+" must not be negative", "write 0 to switch it off, or remove it to take the default")
			}
		case !positive(f, v):
			k.unlimited(name, at...)
		case name == "max_cost" && v.Float() < leastCost:
			n, _ := k.at(at...)
			k.fault(n, "max_cost is less than a millionth of a USD, the least that is counted", fmt.Sprintf("write %.6f or more", leastCost))
		}
		return true
	})
}

// unread reports a limit that nothing reads where it stands.
func (k *checker) unread(name string, here limited, path ...any) {
	n, known := k.keyAt(path...), strings.Join(here.limits, ", ")
	for _, there := range []limited{limitedTeam, limitedAgent, limitedCoordinator, limitedSwarm} {
		if slices.Contains(there.limits, name) {
			k.fault(n, fmt.Sprintf("limit %s belongs to %s", name, there.what),
				fmt.Sprintf("set it in the limits of the %s; %s has %s", there.word, here.what, known))
			return
		}
	}
}

// retry checks how failures are repeated.
func (k *checker) retry(r *teamv1.Retry, path ...any) {
	if r.GetAttempts() < 1 && r != nil && r.Attempts != nil { //nolint:protogetter // set or not matters
		k.unlimited("attempts", append(slices.Clone(path), "attempts")...)
	}
	if r.GetBackoff().AsDuration() < 0 {
		k.unlimited("backoff", append(slices.Clone(path), "backoff")...)
	}
}

func (k *checker) unlimited(name string, path ...any) {
	n, _ := k.at(path...)
	if !k.damaged[n] {
		k.fault(n, name+" must be more than 0", "remove it to take the default")
	}
}

// positive reports whether the value of a limit is more than 0.
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
