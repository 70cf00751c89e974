package expr

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// The types of results. Only the checker uses them; the values are maps without keys for missing
// fields.
var (
	resultType = cel.ObjectType("team.Result")
	lastType   = cel.ObjectType("team.Last")
)

var resultFields = map[string]map[string]*cel.Type{
	"team.Result": {"text": cel.StringType, "data": cel.DynType, "outcome": cel.StringType},
	"team.Last":   {"text": cel.StringType, "data": cel.DynType, "outcome": cel.StringType, "member": cel.StringType},
}

// provider adds the types of results to a registry.
type provider struct{ *types.Registry }

// FindStructType implements types.Provider.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := resultFields[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Registry.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := resultFields[name]; ok {
		return sortedKeys(fields), true
	}
	return p.Registry.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, ok := resultFields[name]; ok {
		t, ok := fields[field]
		return &types.FieldType{Type: t}, ok
	}
	return p.Registry.FindStructFieldType(name, field)
}

// isReserved reports whether a word is reserved in CEL.
func isReserved(word string) bool {
	return slices.Contains(strings.Fields("as bool break bytes const continue double else false for function if import in int "+
		"let list loop map namespace null null_type package return string true type uint var void while"), word)
}

var (
	undeclared     = regexp.MustCompile(`^undeclared reference to '([^']+)'`)
	undefinedField = regexp.MustCompile(`^undefined field '([^']+)'`)
	operatorName   = regexp.MustCompile(`'(@?[_!?:\[\]&|=<>+\-*/%in]+)' applied`)
)

// explain turns the first issue of the compiler into an Error.
func (l *Language) explain(source string, issues *cel.Issues) *Error {
	all := issues.Errors()
	if len(all) == 0 {
		return &Error{Message: tidy(issues.Err().Error())}
	}
	first := slices.MinFunc(all, func(a, b *cel.Error) int {
		return cmp.Or(cmp.Compare(a.Location.Line(), b.Location.Line()), cmp.Compare(a.Location.Column(), b.Location.Column()))
	})
	at := byteOffset(source, first.Location.Line(), first.Location.Column())
	if m := undeclared.FindStringSubmatch(first.Message); m != nil {
		return l.undeclared(source, at, m[1])
	}
	if m := undefinedField.FindStringSubmatch(first.Message); m != nil {
		return noField(source, at, m[1])
	}
	return &Error{Message: tidy(first.Message), Offset: at}
}

// noField returns the error for a field that results do not have. The compiler reports the position
// of the dot, or of the parenthesis of has().
func noField(source string, at int, field string) *Error {
	at += max(strings.Index(source[at:], field), 0)
	fields := resultFields["team.Result"]
	if strings.HasSuffix(strings.TrimRight(source[:at], ". \t\r\n"), "last") {
		fields = resultFields["team.Last"]
	}
	return Unknown(at, field, sortedKeys(fields), "a result has no field %q", field)
}

// undeclared returns the error for an unknown variable or function. For a function the compiler
// reports the position of its opening parenthesis.
func (l *Language) undeclared(source string, at int, name string) *Error {
	name, _, _ = strings.Cut(name, ".")
	if at < len(source) && source[at] == '(' {
		return &Error{Message: "no such function \"" + name + "\"", Offset: max(at-len(name), 0)}
	}
	return Unknown(at, name, l.vars, "no such variable %q", name)
}

// tidy shortens a message of the compiler and replaces internal names of operators.
func tidy(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	return operatorName.ReplaceAllStringFunc(message, func(s string) string {
		name := operatorName.FindStringSubmatch(s)[1]
		if word, ok := operators.FindReverse(name); ok && word != "" {
			return "'" + word + "' applied"
		}
		return s
	})
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
