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

// inspector finds in a checked expression what it reads and which ids it names.
type inspector struct {
	*Expr
	info    *ast.SourceInfo
	bound   []string // variables of the macros around the place
	literal ast.Expr // a map or message written in it: such maps have no order
}

// walk visits an expression. Within a loop only what is the same in each round
// counts as read.
func (in *inspector) walk(e ast.Expr, loop bool) {
	if root := in.root(e); root != "" {
		in.name(e)
		if !loop || constantPath(e) {
			if text, err := cel.ExprToString(e, in.info); err == nil {
				in.reads = append(in.reads, read{id: e.ID(), text: text})
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

// walkLoop visits what a macro like exists was expanded to.
func (in *inspector) walkLoop(c ast.ComprehensionExpr, loop bool) {
	in.walk(c.IterRange(), loop)
	outer := in.bound
	in.bound = append(slices.Clone(outer), c.IterVar(), c.IterVar2(), c.AccuVar())
	for _, part := range []ast.Expr{c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
		in.walk(part, true)
	}
	in.bound = outer
}

// root returns the variable that a path like critic.data["score"] begins with,
// or "" for all other expressions.
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

// operandOf returns what a selection or an index is taken of, or nil.
func operandOf(e ast.Expr) ast.Expr {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().Operand()
	}
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index {
		return e.AsCall().Args()[0]
	}
	return nil
}

// constantPath reports whether a path has no computed keys.
func constantPath(e ast.Expr) bool {
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

// name notes the id in steps.ID or steps["ID"], where a path has one.
func (in *inspector) name(e ast.Expr) {
	for ; e != nil; e = operandOf(e) {
		operand := operandOf(e)
		if operand == nil || operand.Kind() != ast.IdentKind || in.lang.keys[operand.AsIdent()] == nil {
			continue
		}
		if e.Kind() == ast.SelectKind {
			in.names = append(in.names, Name{e.AsSelect().FieldName(), in.offset(e)})
		} else if key := e.AsCall().Args()[1]; key.Kind() == ast.LiteralKind {
			if id, ok := key.AsLiteral().(types.String); ok {
				in.names = append(in.names, Name{string(id), in.offset(key)})
			}
		}
	}
}

// offset returns where an expression begins in the source, in bytes; of a
// selection where its field does.
func (in *inspector) offset(e ast.Expr) int {
	at := in.info.GetStartLocation(e.ID())
	return fieldOffset(in.source, byteOffset(in.source, at.Line(), at.Column()))
}

// children of an expression that is no path, loop or literal.
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

// values returns what was read, by the text of the place; nil when nothing was.
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

// maxValue bounds what is recorded of a value that was read, in bytes: the
// record has the whole text already.
const maxValue = 256

// digest shortens a value for the record.
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

// byteOffset turns a line from 1 and a column in characters from 0 into bytes.
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

// fieldOffset moves from the dot of a selection to its field.
func fieldOffset(source string, offset int) int {
	if offset < len(source) && source[offset] == '.' {
		rest := source[offset+1:]
		return offset + 1 + len(rest) - len(strings.TrimLeft(rest, " \t\r\n"))
	}
	return offset
}
