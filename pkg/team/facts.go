package team

import (
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// facts are what expressions can read of one state. One goroutine at a time;
// what was computed is kept for the next expression over the same state.
type facts struct {
	lang    *language
	state   *State
	visible func(step string) bool // steps that can be read; nil is all
	results map[*StepState]map[string]any
}

func newFacts(lang *language, s *State) *facts {
	return &facts{lang: lang, state: s, results: map[*StepState]map[string]any{}}
}

// Parent implements cel.Activation.
func (*facts) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation: the value of a variable.
func (f *facts) ResolveName(name string) (any, bool) {
	if !f.lang.declares(name) {
		return nil, false
	}
	switch name {
	case "input":
		return agent.Text(f.state.Input), true
	case "context":
		return contextOf(f.state), true
	case "turn":
		return int64(f.state.Rounds) + 1, true
	case "last":
		return f.last(), true
	case "results":
		return f.members(), true
	case "steps":
		return f.steps(), true
	}
	if st := f.state.LastOf(name); st != nil {
		return f.result(st), true
	}
	return map[string]any{}, true
}

// last is the last response; empty before the first.
func (f *facts) last() map[string]any {
	l := f.state.Last
	if l == nil {
		return map[string]any{}
	}
	r := resultOf(l.Message, l.Outcome)
	r["member"] = l.Member
	return r
}

// members are the last results by member.
func (f *facts) members() map[string]any {
	all := map[string]any{}
	for _, st := range f.state.Steps {
		if st.Done && st.ByMember() {
			all[st.Step.GetMember()] = f.result(st)
		}
	}
	return all
}

// steps are the last results by step.
func (f *facts) steps() map[string]any {
	all := map[string]any{}
	for _, st := range f.state.Steps {
		if name := st.Step.GetName(); st.Done && (f.visible == nil || f.visible(name)) {
			all[name] = f.result(st)
		}
	}
	return all
}

func (f *facts) result(st *StepState) map[string]any {
	r, ok := f.results[st]
	if !ok {
		r = resultOf(st.Message, st.Outcome)
		f.results[st] = r
	}
	return r
}

// resultOf is a result as expressions see it: text and data only where there are such.
func resultOf(m *a2av1.Message, o teamv1.Outcome) map[string]any {
	r := map[string]any{"outcome": outcomeWord(o)}
	if m == nil {
		return r
	}
	r["text"] = agent.Text(m)
	if data, ok := agent.Data(m); ok {
		r["data"] = data
	}
	return r
}

// outcomeWord is an outcome in expressions: succeeded, empty, failed,
// timed_out, rejected, canceled, skipped.
func outcomeWord(o teamv1.Outcome) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_"))
}

func contextOf(s *State) map[string]any {
	all := make(map[string]any, len(s.Context))
	for k, v := range s.Context {
		all[k] = v.AsInterface()
	}
	return all
}

// adapter gives expressions JSON values whose maps are walked in the order of
// their keys, so that the same state gives the same result.
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case map[string]any:
		return sortedMap{types.NewStringInterfaceMap(a, v)}
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Adapter.NativeToValue(v)
}

// sortedMap is a map with strings as keys that is walked in their order.
type sortedMap struct{ traits.Mapper }

// Iterator implements traits.Iterable.
func (m sortedMap) Iterator() traits.Iterator {
	var keys []string
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		if key, ok := it.Next().(types.String); ok {
			keys = append(keys, string(key))
		}
	}
	slices.Sort(keys)
	return types.NewStringList(types.DefaultTypeAdapter, keys).Iterator()
}
