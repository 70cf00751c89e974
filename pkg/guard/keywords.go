package guard

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxCost is the maximum number of schemas that are evaluated for one value, where a schema counts
// as often as it is referred to.
const maxCost = 5000

// form is the kind of value that a keyword of JSON Schema requires.
type form int

const (
	aSchema form = iota
	schemaOrList
	schemaList
	schemaMap
	schemaOrNames
	patternMap
	aText
	anExpression
	aNumber
	aCount
	names
	namesMap
	aTruth
	typeNames
	anyList
	onlyOld
	refused
)

// keywords are the keywords of the drafts 2020-12 and 07.
var keywords = map[string]form{
	"items": schemaOrList, "additionalItems": onlyOld, "contains": aSchema, "additionalProperties": aSchema, "propertyNames": aSchema,
	"unevaluatedItems": aSchema, "unevaluatedProperties": aSchema, "not": aSchema, "if": aSchema, "then": aSchema, "else": aSchema,
	"contentSchema": aSchema, "allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList, "prefixItems": schemaList,
	"properties": schemaMap, "$defs": schemaMap, "definitions": schemaMap, "dependentSchemas": schemaMap, "dependencies": onlyOld,
	"patternProperties": patternMap, "$id": aText, "$schema": aText, "$ref": aText, "$comment": aText, "$anchor": aText, "title": aText,
	"description": aText, "format": aText, "contentEncoding": aText, "contentMediaType": aText, "pattern": anExpression,
	"multipleOf": aNumber, "minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aNumber, "exclusiveMaximum": aNumber,
	"minLength": aCount, "maxLength": aCount, "minItems": aCount, "maxItems": aCount, "minContains": aCount, "maxContains": aCount,
	"minProperties": aCount, "maxProperties": aCount, "required": names, "dependentRequired": namesMap,
	"uniqueItems": aTruth, "deprecated": aTruth, "readOnly": aTruth, "writeOnly": aTruth, "type": typeNames, "enum": anyList, "examples": anyList,
	"$dynamicRef": refused, "$dynamicAnchor": refused, "$recursiveRef": refused, "$recursiveAnchor": refused, "$vocabulary": refused,
}

// oldForms are the forms of keywords that only draft 07 has, and successors the
// keywords that replace them in draft 2020-12.
var (
	oldForms   = map[string]form{"additionalItems": aSchema, "dependencies": schemaOrNames}
	successors = map[string]string{"additionalItems": "items beside prefixItems", "dependencies": "dependentSchemas or dependentRequired"}
)

var types = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// drafts are the supported values of $schema.
var drafts = []string{
	"https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema#",
}

// checker finds errors in a schema file. Schemas that contain themselves are rejected, because the
// cost of checking a message would then depend on the message.
type checker struct {
	root   *value
	old    bool     // the file uses draft 07
	refs   []*value // the values of $ref
	report func(offset int, message, hint string)
}

func (k *checker) fault(v *value, hint, format string, args ...any) {
	k.report(v.offset, fmt.Sprintf(format, args...), hint)
}

// check checks the whole file.
func (k *checker) check() {
	if k.root.kind != object {
		k.fault(k.root, `for example {"type": "object"}`, "a schema file must contain an object, got %s", k.root.kind)
		return
	}
	if v := k.root.at["$schema"]; v != nil && v.kind == text && !slices.Contains(drafts, v.token.(string)) {
		k.fault(v, "use "+drafts[0]+", or remove it", "this version of JSON Schema is not supported")
	}
	if v := k.root.at["$schema"]; v != nil {
		k.old = v.token != drafts[0]
	}
	k.walk(k.root)
	for _, ref := range k.refs {
		if t := k.target(ref); t == nil || !t.schema {
			k.fault(ref, "write #/$defs/NAME; $defs are in the same file", "this file has no schema %s", ref.token)
		}
	}
}

// walk checks a schema and everything below it.
func (k *checker) walk(v *value) {
	v.schema = true
	switch v.kind {
	case truth:
		return
	case object:
	case list, text, number, null:
		k.fault(v, "write an object, true or false", "expected a schema, got %s", v.kind)
		return
	}
	for _, name := range v.keys {
		if f, known := keywords[name.name]; known {
			k.keyword(name.name, f, v.at[name.name])
			continue
		}
		for word := range keywords { // all other keys are annotations
			if strings.EqualFold(word, name.name) {
				k.report(name.offset, fmt.Sprintf("unknown keyword %q", name.name), fmt.Sprintf("did you mean %q?", word))
			}
		}
	}
	if ref := v.at["$ref"]; ref != nil && ref.kind == text {
		k.refs = append(k.refs, ref)
	}
	if id := v.at["$id"]; id != nil && v != k.root {
		k.fault(id, "remove it; refer to it by #/$defs/NAME", "$id within a schema is not supported")
	}
}

// keyword checks the value of a keyword.
func (k *checker) keyword(name string, f form, v *value) {
	switch f {
	case aSchema:
		k.walk(v)
	case schemaOrList, schemaList:
		if f == schemaOrList && v.kind != list {
			k.walk(v)
			return
		}
		if f == schemaOrList && !k.old {
			k.fault(v, "write prefixItems", "items must not be an array in this version of JSON Schema")
		}
		if k.is(v, list, name) {
			k.each(v.items)
		}
	case schemaMap, patternMap, schemaOrNames, namesMap:
		if k.is(v, object, name) {
			k.entries(f, v)
		}
	case aText:
		k.is(v, text, name)
	case anExpression:
		if k.is(v, text, name) {
			k.expression(v, v.token.(string))
		}
	case aNumber, aCount:
		k.number(name, f, v)
	case names:
		k.names(name, v)
	case onlyOld:
		if !k.old {
			k.fault(v, fmt.Sprintf("use %s, or name draft-07 in $schema", successors[name]), "%s is only supported in draft-07", name)
			return
		}
		k.keyword(name, oldForms[name], v)
	case aTruth:
		k.is(v, truth, name)
	case typeNames:
		k.types(v)
	case anyList:
		k.is(v, list, name)
	case refused:
		k.fault(v, "use $ref to #/$defs/NAME", "%s is not supported", name)
	}
}

func (k *checker) each(vs []*value) {
	for _, v := range vs {
		k.walk(v)
	}
}

// entries checks the values of a map, and its keys if they are regular expressions.
func (k *checker) entries(f form, v *value) {
	for _, name := range v.keys {
		e := v.at[name.name]
		switch {
		case f == namesMap, f == schemaOrNames && e.kind == list:
			k.names(name.name, e)
		default:
			k.walk(e)
		}
		if f == patternMap {
			k.expression(&value{offset: name.offset}, name.name)
		}
	}
}

func (k *checker) is(v *value, want kind, name string) bool {
	if v.kind != want {
		k.fault(v, "", "%s must be %s, got %s", name, want, v.kind)
	}
	return v.kind == want
}

func (k *checker) expression(v *value, expression string) {
	if _, err := regexp.Compile(expression); err != nil {
		k.fault(v, "correct it; the syntax is RE2", "%s", err)
	}
}

func (k *checker) number(name string, f form, v *value) {
	if !k.is(v, number, name) {
		return
	}
	n := v.token.(float64)
	switch {
	case f == aCount && (n < 0 || n != float64(int32(n))):
		k.fault(v, "use 0 or more", "%s must be a whole number", name)
	case name == "multipleOf" && n <= 0:
		k.fault(v, "", "multipleOf must be more than 0")
	}
}

func (k *checker) names(name string, v *value) {
	if !k.is(v, list, name) {
		return
	}
	for _, e := range v.items {
		k.is(e, text, "a name in this array")
	}
}

func (k *checker) types(v *value) {
	all := []*value{v}
	if v.kind == list {
		all = v.items
	}
	for _, e := range all {
		if name, _ := e.token.(string); !slices.Contains(types, name) {
			k.fault(e, "types are "+strings.Join(types, ", "), "unknown type")
		}
	}
}

// target returns the schema that a $ref refers to, or nil if it is not in this file.
func (k *checker) target(ref *value) *value {
	name := ref.token.(string)
	if !strings.HasPrefix(name, "#/$defs/") && !strings.HasPrefix(name, "#/definitions/") {
		return nil
	}
	path := strings.Split(name[2:], "/")
	for i, part := range path {
		path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return k.root.find(path)
}

// find returns the value that keys and indexes lead to from v, or nil.
func (v *value) find(path []string) *value {
	for _, part := range path {
		switch i, err := strconv.Atoi(part); {
		case v.kind == object && v.at[part] != nil:
			v = v.at[part]
		case v.kind == list && err == nil && i >= 0 && i < len(v.items):
			v = v.items[i]
		default:
			return nil
		}
	}
	return v
}

// count returns how many schemas are evaluated for a value of v, and reports cycles.
func (k *checker) count(v *value) int {
	if v.cost > 0 || v.kind != object {
		return max(v.cost, 1)
	}
	v.open = true
	cost := 1
	for _, name := range v.keys {
		switch {
		case name.name == "$ref":
			cost += k.countRef(v.at["$ref"])
		case name.name != "$defs" && name.name != "definitions":
			for _, e := range below(v.at[name.name]) {
				if e.schema {
					cost += k.count(e)
				}
			}
		}
		cost = min(cost, maxCost+1)
	}
	v.open, v.cost = false, cost
	return cost
}

func (k *checker) countRef(ref *value) int {
	t := k.target(ref)
	if t.open {
		k.fault(ref, "a schema that contains itself is not supported; write out as many levels as are allowed", "%s leads back here", ref.token)
		return 1
	}
	return k.count(t)
}

// below returns the values of a keyword that may be schemas: the value itself, or its entries.
func below(v *value) []*value {
	if v.schema {
		return []*value{v}
	}
	all := slices.Clone(v.items)
	for _, name := range slices.Sorted(maps.Keys(v.at)) {
		all = append(all, v.at[name])
	}
	return all
}
