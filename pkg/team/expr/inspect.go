package expr

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/agentteams/team-server/pkg/agent"
)

// inspector finds the values that a checked expression reads and the ids that it names.
type inspector struct {
	*Expr
	info    *ast.SourceInfo
	bound   []string // variables of the enclosing macros
	literal ast.Expr // a map or message literal, which is not allowed because it has no order
}

// walk visits an expression. Inside a loop, only paths without computed keys are recorded as read.
func (in *inspector) walk(e ast.Expr, loop bool) {
	if root := in.root(e); root != "" {
		in.name(e)
		if !loop || isConstantPath(e) {
			if text, err := cel.ExprToString(e, in.info); err == nil {
				in.reads = append(in.reads, in.read(e, text))
			}
		}
		in.walkKeys(e, loop)
		return
	}
	switch e.Kind() {
	case ast.ComprehensionKind:
		in.walkLoop(e.AsComprehension(), loop)
	case ast.MapKind, ast.StructKind:
		in.literal = e
	default:
		for _, child := range children(e) {
			in.walk(child, loop)
		}
	}
}

// walkLoop visits the expansion of a macro such as exists.
func (in *inspector) walkLoop(c ast.ComprehensionExpr, loop bool) {
	in.walk(c.IterRange(), loop)
	outer := in.bound
	in.bound = append(slices.Clone(outer), c.IterVar(), c.IterVar2(), c.AccuVar())
	for _, part := range []ast.Expr{c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
		in.walk(part, true)
	}
	in.bound = outer
}

// root returns the variable that a path like critic.data["score"] starts with; "" for all other
// expressions.
func (in *inspector) root(e ast.Expr) string {
	for operand := e; operand != nil; operand = operandOf(operand) {
		if operand.Kind() == ast.IdentKind {
			if name := operand.AsIdent(); in.lang.declares(name) && !slices.Contains(in.bound, name) {
				return name
			}
		}
	}
	return ""
}

// read describes the path e, whose source is text.
func (in *inspector) read(e ast.Expr, text string) read {
	r := read{id: e.ID(), text: text, test: e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly()}
	for ; operandOf(e) != nil; e = operandOf(e) {
		if e.Kind() == ast.SelectKind {
			r.keys = append(r.keys, e.AsSelect().FieldName())
		} else if k := e.AsCall().Args()[1]; k.Kind() == ast.LiteralKind {
			r.keys = append(r.keys, fmt.Sprint(k.AsLiteral().Value()))
		} else {
			r.keys = nil // what is below a computed key is not known
		}
	}
	slices.Reverse(r.keys)
	r.root = e.AsIdent()
	switch {
	case in.lang.results[r.root]:
		r.of = r.root
	case r.root != "inputs" && in.lang.keys[r.root] != nil && len(r.keys) > 0:
		r.of = r.keys[0]
	}
	return r
}

// operandOf returns the operand of a selection or an index; nil for other expressions.
func operandOf(e ast.Expr) ast.Expr {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().Operand()
	}
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index {
		return e.AsCall().Args()[0]
	}
	return nil
}

// isConstantPath reports whether a path has no computed keys.
func isConstantPath(e ast.Expr) bool {
	for ; e != nil; e = operandOf(e) {
		if e.Kind() == ast.CallKind && e.AsCall().Args()[1].Kind() != ast.LiteralKind {
			return false
		}
	}
	return true
}

// walkKeys visits the computed keys of a path.
func (in *inspector) walkKeys(e ast.Expr, loop bool) {
	for ; e != nil; e = operandOf(e) {
		if e.Kind() == ast.CallKind {
			in.walk(e.AsCall().Args()[1], loop)
		}
	}
}

// name records the name in a path such as steps.ID, steps["ID"] or inputs.NAME.
func (in *inspector) name(e ast.Expr) {
	for ; e != nil; e = operandOf(e) {
		operand := operandOf(e)
		if operand == nil || operand.Kind() != ast.IdentKind || in.lang.keys[operand.AsIdent()] == nil {
			continue
		}
		if e.Kind() == ast.SelectKind {
			in.names = append(in.names, Name{operand.AsIdent(), e.AsSelect().FieldName(), in.offset(e)})
		} else if key := e.AsCall().Args()[1]; key.Kind() == ast.LiteralKind {
			if id, ok := key.AsLiteral().(types.String); ok {
				in.names = append(in.names, Name{operand.AsIdent(), string(id), in.offset(key)})
			}
		}
	}
}

// offset returns the byte offset of an expression in the source; for a selection, that of its
// field.
func (in *inspector) offset(e ast.Expr) int {
	at := in.info.GetStartLocation(e.ID())
	return fieldOffset(in.source, byteOffset(in.source, at.Line(), at.Column()))
}

// children returns the direct subexpressions of an expression that is not a path, loop, or literal.
func children(e ast.Expr) []ast.Expr {
	switch kind := e.Kind(); {
	case kind == ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case kind == ast.ListKind:
		return e.AsList().Elements()
	case kind != ast.CallKind:
		return nil
	}
	c := e.AsCall()
	if c.IsMemberFunction() {
		return append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.Args()
}

// values returns the values that were read, keyed by the source text that reads them; nil if
// nothing was read.
func (e *Expr) values(details *cel.EvalDetails) *structpb.Struct {
	fields := map[string]*structpb.Value{}
	for _, r := range e.reads {
		v, ok := details.State().Value(r.id)
		if !ok || types.IsUnknownOrError(v) {
			continue
		}
		native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
		if value, ok := native.(*structpb.Value); ok && err == nil {
			fields[r.text] = digest(value)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return &structpb.Struct{Fields: fields}
}

// maxValue is the maximum size of a recorded value, in bytes. The full text is elsewhere on record.
const maxValue = 256

// digest returns the value, or a short description if it is too large to be recorded.
func digest(v *structpb.Value) *structpb.Value {
	if proto.Size(v) <= maxValue {
		return v
	}
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return structpb.NewStringValue(agent.Quote(k.StringValue))
	case *structpb.Value_ListValue:
		return structpb.NewStringValue(fmt.Sprintf("(%d elements)", len(k.ListValue.GetValues())))
	case *structpb.Value_StructValue:
		return structpb.NewStringValue(fmt.Sprintf("(%d entries)", len(k.StructValue.GetFields())))
	}
	return v
}

// byteOffset converts a line, from 1, and a column in characters, from 0, to a byte offset.
func byteOffset(source string, line, column int) int {
	start := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(source[start:], '\n')
		if i < 0 {
			break
		}
		start += i + 1
	}
	offset := start
	for ; column > 0 && offset < len(source); column-- {
		_, size := utf8.DecodeRuneInString(source[offset:])
		offset += size
	}
	return offset
}

// fieldOffset returns the offset of the field if offset is that of a selection's dot.
func fieldOffset(source string, offset int) int {
	if offset < len(source) && source[offset] == '.' {
		rest := source[offset+1:]
		return offset + 1 + len(rest) - len(strings.TrimLeft(rest, " \t\r\n"))
	}
	return offset
}
