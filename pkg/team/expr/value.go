package expr

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Result returns a result as expressions read it: outcome, and text and data only if the message
// has them. m may be nil.
func Result(m *a2av1.Message, o teamv1.Outcome) map[string]any {
	r := map[string]any{"outcome": OutcomeWord(o)}
	if m == nil {
		return r
	}
	r["text"] = agent.Text(m)
	if data, ok := agent.Data(m); ok {
		r["data"] = data
	}
	return r
}

// OutcomeWord returns the name of an outcome in expressions and prompts: succeeded, empty, failed,
// timed_out, rejected, canceled or skipped.
func OutcomeWord(o teamv1.Outcome) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_"))
}

// adapter converts JSON values for expressions. Maps are iterated in the order of their keys, so
// that the same state gives the same result.
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

// sortedMap is a map with string keys that is iterated in key order.
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
