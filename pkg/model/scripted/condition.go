package scripted

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

// Limits of expressions: the length in characters, and the cost as CEL counts it. The cost is high
// enough to search an input of a megabyte.
const (
	maxExpression = 4096
	maxCost       = 1_000_000
)

// variables returns the variables of conditions.
func variables() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable("input", cel.StringType),
		cel.Variable("inputs", cel.ListType(cel.StringType)),
		cel.Variable("turn", cel.IntType),
		cel.Variable("tools", cel.ListType(cel.StringType)),
		cel.Variable("results", cel.ListType(cel.StringType)),
		cel.Variable("result", cel.MapType(cel.StringType, cel.StringType)),
	}
}

func newEnv() (*cel.Env, error) {
	env, err := cel.NewEnv(append(variables(), cel.ParserExpressionSizeLimit(maxExpression), cel.ParserRecursionLimit(50))...)
	if err != nil {
		return nil, fmt.Errorf("setting up expressions: %w", err)
	}
	return env, nil
}

// problem is an error in an expression. line and col are its position in the text, from 0.
type problem struct {
	line, col     int
	message, hint string
}

// compile compiles an expression, or returns all errors in it.
func compile(env *cel.Env, text string) (cel.Program, []problem) {
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		var ps []problem
		for _, e := range issues.Errors() {
			ps = append(ps, explain(e))
		}
		return nil, ps
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) {
		return nil, []problem{{message: fmt.Sprintf("when must be true or false, not %s", t), hint: "for example: turn == 1"}}
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost))
	if err != nil {
		return nil, []problem{{message: err.Error()}}
	}
	return program, nil
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']+)'`)

// explain converts an error of the compiler.
func explain(e *common.Error) problem {
	p := problem{line: max(e.Location.Line()-1, 0), col: max(e.Location.Column(), 0), message: strings.Join(strings.Fields(e.Message), " ")}
	if m := undeclared.FindStringSubmatch(p.message); m != nil {
		p.message = fmt.Sprintf("no such variable or function %q", m[1])
		p.hint = suggest(m[1], "input", "inputs", "turn", "tools", "results", "result")
		return p
	}
	p.message, p.hint = withoutParserDetail(p.message), "check names, types, brackets and quotes; equal is =="
	return p
}

// withoutParserDetail removes the parser's details from a syntax error.
func withoutParserDetail(message string) string {
	message, _, _ = strings.Cut(message, " expecting ")
	message = strings.TrimPrefix(message, "Syntax error: ")
	return strings.ReplaceAll(message, "mismatched input '<EOF>'", "it ends where a value was expected")
}

var errCost = errors.New("the condition costs too much to evaluate")

// holds reports whether a condition is true. It is false if it reads something that does not exist,
// such as results[0] before the first result.
func holds(p cel.Program, v map[string]any) (bool, error) {
	out, _, err := p.Eval(v)
	var stopped interpreter.EvalCancelledError
	if errors.As(err, &stopped) {
		return false, errCost
	}
	return err == nil && out == types.True, nil
}
