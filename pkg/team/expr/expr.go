// Package expr evaluates the expressions of a configuration: conditions and checks in CEL, and
// templates. It reads named values and does not depend on runs.
package expr

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/agentteams/team-server/pkg/agent"
)

// maxExprCost bounds the cost of one evaluation, in CEL's units: far above that of any useful rule,
// and a fraction of a second.
const maxExprCost = 1_000_000

// maxExprLength is the maximum length of an expression, in characters.
const maxExprLength = 16 << 10

// Expr is a compiled CEL expression: the `when` of a rule or step, the `until` of a repeat, or the
// check of a review. Conditions are compiled by a [Language], checks by CompileCheck. Safe for
// concurrent use.
//
// In rules it reads input (text), last {member, text, data, outcome}, turn (1 before the first
// choice), context, results[member], and every member by its id if that is an identifier. In steps
// it reads input, context and steps[id]. Both read inputs.NAME, a JSON value, and outputs.NAME, the last
// result with that name. A result is {text, data, outcome}: data is the reply's
// JSON, if it has any; outcome is one of succeeded, empty, failed, timed_out, rejected, canceled
// and skipped. An expression that reads a missing value is not true; has(critic.data) tests for
// one. An expression that reads data which an answer does not have fails; see [Expr.Eval].
//
// A check is a condition, or a number from 0 to 1. It reads input (text), result, expected (text),
// brief {task_description, expected_output, context}, and round.
type Expr struct {
	source  string
	lang    *Language
	program cel.Program
	reads   []read
	names   []Name
	scores  bool // the expression is a check
}

// read is a place where an expression reads a value.
type read struct {
	id   int64
	text string
	root string   // the variable
	of   string   // id of the member or step whose result is read; empty for other variables
	keys []string // constant keys below the variable
	test bool     // the place only tests whether there is a value, with has
}

// Name is the id of a member or step, or the name of an input or output, in an expression or a template.
type Name struct {
	// Of is the variable that the name is a key of: results, steps, inputs or outputs.
	Of string
	// ID of the member or step, or name of the input or output.
	ID string
	// Offset of the id in the text, in bytes.
	Offset int
}

// Values returns the value of a variable: a JSON value as in encoding/json, an int64, or a result
// as returned by [Result]. It is called only for the variables of the expression's language, by the
// goroutine that evaluates the expression, and must return the same values for the same state of a
// run.
type Values func(name string) any

// activation provides the values to CEL.
type activation struct {
	lang *Language
	of   Values
}

// Parent implements cel.Activation.
func (activation) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (a activation) ResolveName(name string) (any, bool) {
	if !a.lang.declares(name) {
		return nil, false
	}
	return a.of(name), true
}

// CompileCheck compiles the check of a review. The error is an *Error.
func CompileCheck(expr string) (*Expr, error) {
	lang, err := newLanguage(checkVars, nil)
	if err != nil {
		return nil, err
	}
	e, err := lang.compileAs(expr, "true or false, or a number", types.BoolKind, types.DoubleKind, types.IntKind, types.UintKind)
	if err != nil {
		return nil, err
	}
	e.scores = true
	return e, nil
}

// CompileApproval compiles the condition under which a tool call, or with member a delegation, needs
// approval. The error is an *Error.
func CompileApproval(expr string, member bool) (*Expr, error) {
	vars := toolVars
	if member {
		vars = taskVars
	}
	lang, err := newLanguage(vars, nil)
	if err != nil {
		return nil, err
	}
	return lang.Compile(expr)
}

// Source returns the source text of the expression.
func (e *Expr) Source() string { return e.source }

// Names returns the ids in the expression, in the order of its text.
func (e *Expr) Names() []Name { return e.names }

// IsCheck reports whether the expression was compiled by CompileCheck.
func (e *Expr) IsCheck() bool { return e.scores }

// Eval reports whether the expression is true. read has the values that it read, keyed by the
// source text that reads them; nil if it read none. The error is a *MissingData if the expression has
// no value because an answer lacks the data that it reads, or has it in a form that the expression
// cannot use. Otherwise it is nil, unless the evaluation costs too much.
func (e *Expr) Eval(v Values) (matched bool, read *structpb.Struct, err error) {
	out, details, err := e.program.Eval(activation{e.lang, v})
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		return false, nil, fmt.Errorf("the expression %q takes too much work on this input; make it simpler", agent.Quote(e.source))
	}
	if _, ok := out.(types.Bool); err != nil || !ok {
		if missing := e.missing(v); missing != nil {
			return false, nil, missing
		}
	}
	return err == nil && out == types.True, e.values(details), nil
}

// Holds reports whether the expression is true. Unlike Eval it returns an error if the expression
// cannot be evaluated, for example because a value is missing.
func (e *Expr) Holds(v Values) (bool, error) {
	out, _, err := e.program.Eval(activation{e.lang, v})
	if err != nil {
		return false, fmt.Errorf("evaluate %q: %w", agent.Quote(e.source), err)
	}
	return out == types.True, nil
}

// Score returns the score of a check: 1 for true, 0 for false or if a value is missing, or the
// number itself. It fails if the evaluation costs too much, or if the value is neither a boolean
// nor a number.
func (e *Expr) Score(v Values) (float64, error) {
	out, _, err := e.program.Eval(activation{e.lang, v})
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		return 0, fmt.Errorf("the check %q takes too much work on this result; make it simpler", agent.Quote(e.source))
	}
	if err != nil || out == types.False {
		return 0, nil //nolint:nilerr // a missing value scores 0
	}
	switch v := out.(type) {
	case types.Bool:
		return 1, nil
	case types.Double:
		return float64(v), nil
	case types.Int:
		return float64(v), nil
	case types.Uint:
		return float64(v), nil
	}
	return 0, fmt.Errorf("the check %q is neither true or false nor a number, but of type %s", agent.Quote(e.source), out.Type().TypeName())
}

// Language is the set of names that expressions of one kind may use. Safe for concurrent use.
type Language struct {
	env     *cel.Env
	vars    []string            // names of the variables, sorted
	keys    map[string][]string // sorted ids in a variable, by its name
	results map[string]bool     // the variables that are the result of a member
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ruleVars are the variables of rules besides the members. They hide members of the same name,
// which results[...] still reaches.
var ruleVars = map[string]*cel.Type{
	"input": cel.StringType, "turn": cel.IntType, "last": lastType,
	"context": cel.MapType(cel.StringType, cel.DynType),
	"results": cel.MapType(cel.StringType, resultType),
	"inputs":  cel.MapType(cel.StringType, cel.DynType),
	"outputs": cel.MapType(cel.StringType, resultType),
}

var stepVars = map[string]*cel.Type{
	"input":   cel.StringType,
	"context": cel.MapType(cel.StringType, cel.DynType),
	"steps":   cel.MapType(cel.StringType, resultType),
	"inputs":  cel.MapType(cel.StringType, cel.DynType),
	"outputs": cel.MapType(cel.StringType, resultType),
}

// toolVars and taskVars are the variables of the conditions of approvals.
var (
	toolVars = map[string]*cel.Type{"tool": cel.StringType, "arguments": cel.MapType(cel.StringType, cel.DynType)}
	taskVars = map[string]*cel.Type{"input": cel.StringType}
)

var checkVars = map[string]*cel.Type{
	"input": cel.StringType, "expected": cel.StringType, "result": resultType,
	"brief": cel.MapType(cel.StringType, cel.DynType), "round": cel.IntType,
}

// ForRules returns the language of rules in a team with these members.
func ForRules(members []string, named Names) (*Language, error) {
	vars := map[string]*cel.Type{}
	for _, id := range members {
		if identifier.MatchString(id) && !isReserved(id) {
			vars[id] = resultType
		}
	}
	for name, t := range ruleVars {
		vars[name] = t
	}
	return newLanguage(vars, named.keys("results", members))
}

// ForSteps returns the language of conditions in a workflow with these steps.
func ForSteps(steps []string, named Names) (*Language, error) {
	return newLanguage(stepVars, named.keys("steps", steps))
}

// Names are the names that a team gives to values.
type Names struct {
	// Inputs are values that callers give, Outputs are results.
	Inputs, Outputs []string
}

// keys returns the sorted keys of the variables that hold values by name.
func (n Names) keys(holder string, ids []string) map[string][]string {
	keys := map[string][]string{holder: ids, "inputs": n.Inputs, "outputs": n.Outputs}
	for name, of := range keys {
		keys[name] = append([]string{}, slices.Compact(slices.Sorted(slices.Values(of)))...) // not nil
	}
	return keys
}

func newLanguage(vars map[string]*cel.Type, keys map[string][]string) (*Language, error) {
	l := &Language{keys: keys, results: map[string]bool{}}
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, fmt.Errorf("set up expressions: %w", err)
	}
	options := []cel.EnvOption{
		cel.CustomTypeAdapter(adapter{registry}), cel.CustomTypeProvider(provider{registry}),
		cel.CrossTypeNumericComparisons(true), cel.ParserExpressionSizeLimit(maxExprLength),
	}
	for name, t := range vars {
		l.vars = append(l.vars, name)
		l.results[name] = t == resultType
		options = append(options, cel.Variable(name, t))
	}
	slices.Sort(l.vars)
	if l.env, err = cel.NewEnv(options...); err != nil {
		return nil, fmt.Errorf("set up expressions: %w", err)
	}
	return l, nil
}

func (l *Language) declares(name string) bool {
	_, ok := slices.BinarySearch(l.vars, name)
	return ok
}

// Compile compiles a condition. The error is an *Error.
func (l *Language) Compile(source string) (*Expr, error) {
	return l.compileAs(source, "true or false", types.BoolKind)
}

// compileAs compiles an expression whose type must be one of kinds, or dynamic. what describes the
// kinds for people.
func (l *Language) compileAs(source, what string, kinds ...types.Kind) (*Expr, error) {
	checked, issues := l.env.Compile(source)
	if issues.Err() != nil {
		return nil, l.explain(source, issues)
	}
	if t := checked.OutputType(); !slices.Contains(kinds, t.Kind()) && t.Kind() != types.DynKind {
		return nil, &Error{Message: fmt.Sprintf("must be %s, but is of type %s", what, t)}
	}
	e := &Expr{source: source, lang: l}
	if err := e.inspect(checked.NativeRep()); err != nil {
		return nil, err
	}
	var err error
	e.program, err = l.env.Program(checked, cel.EvalOptions(cel.OptOptimize, cel.OptTrackState), cel.CostLimit(maxExprCost))
	if err != nil {
		return nil, &Error{Message: tidy(err.Error())}
	}
	return e, nil
}

// inspect records what the expression reads and checks the ids that it names.
func (e *Expr) inspect(checked *ast.AST) error {
	in := &inspector{Expr: e, info: checked.SourceInfo()}
	in.walk(checked.Expr(), false)
	if in.literal != nil {
		return &Error{Message: "a condition cannot build a map or a message", Offset: in.offset(in.literal)}
	}
	for _, n := range e.names {
		ids := e.lang.keys[n.Of]
		if _, ok := slices.BinarySearch(ids, n.ID); !ok {
			return Unknown(n.Offset, n.ID, ids, "no such %s %q", kindOf[n.Of], n.ID)
		}
	}
	return nil
}

// kindOf says what the ids in a variable stand for.
var kindOf = map[string]string{"results": "member", "steps": "step", "inputs": "input", "outputs": "output"}
