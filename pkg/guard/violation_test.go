package guard

import (
	"math"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// TestSchema_NotJSON refuses numbers that JSON does not have wherever they are.
func TestSchema_NotJSON(t *testing.T) {
	items := make([]*structpb.Value, 50)
	for i := range items {
		items[i] = structpb.NewNumberValue(math.NaN())
	}
	data := structpb.NewListValue(&structpb.ListValue{Values: items})
	if _, err := schema(t, `{"uniqueItems": true}`).Fit(message(data)); err == nil {
		t.Error("it fits")
	}
}

// TestSchema_Keywords names the keywords of a schema to readers who may not see the data.
func TestSchema_Keywords(t *testing.T) {
	for text, want := range map[string]string{
		`{"dependentRequired": {"a": ["b"]}, "required": ["c"], "additionalProperties": false}`: "at the top (additionalProperties), at the top (dependentRequired), at the top (required)",
		`{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}`:  "at the top (dependencies)",
		`{"properties": {"a": {"type": "string"}}}`:                                             "at /a (type)",
	} {
		if got := schema(t, text).describeViolations(message(`{"a": 1}`)); got != "its data violates the schema "+want+"; correct it" {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestSchema_Violations reports every violation, with its place, in a fixed order.
func TestSchema_Violations(t *testing.T) {
	for _, c := range []struct{ name, schema, data, want string }{
		{
			"nested objects", `{"properties": {"a": {"type": "object", "properties": {"b": {"type": "object", "required": ["c"], "properties": {"c": {"type": "string"}, "d": {"maximum": 3}}}}}}}`,
			`{"a": {"b": {"c": 1, "d": 4}}}`,
			`at /a/b/c does not fit (type): got number, want string, at /a/b/d does not fit (maximum): 4 is more than 3`,
		},
		{
			"arrays", `{"type": "array", "minItems": 3, "uniqueItems": true, "items": {"type": "integer"}}`,
			`[1.5, "x"]`,
			`at the top does not fit (minItems): 2 items, fewer than 3, at /0 does not fit (type): got number, want integer, at /1 does not fit (type): got string, want integer`,
		},
		{
			"more than ten items", `{"items": {"type": "integer"}}`,
			`[1,1,"c",1,1,1,1,1,1,1,1,"l"]`,
			`at /2 does not fit (type): got string, want integer, at /11 does not fit (type): got string, want integer`,
		},
		{
			"unique", `{"uniqueItems": true, "maxItems": 2}`,
			`[1, 2, 1]`,
			`at the top does not fit (maxItems): 3 items, more than 2, at the top does not fit (uniqueItems): items at 0 and 2 are equal`,
		},
		{
			"tuple", `{"prefixItems": [{"type": "string"}, {"type": "number"}], "items": {"type": "boolean"}}`,
			`[1, 2, 3]`,
			`at /0 does not fit (type): got number, want string, at /2 does not fit (type): got number, want boolean`,
		},
		{
			"tuple of draft-07", `{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false}`,
			`[1, 2, 3]`,
			`at the top does not fit (additionalItems): last 2 additionalItem(s) not allowed, at /0 does not fit (type): got number, want string`,
		},
		{
			"oneOf none", `{"properties": {"x": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}`,
			`{"x": true}`,
			`at /x does not fit (oneOf): no alternative matches`,
		},
		{
			"oneOf two", `{"properties": {"x": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}`,
			`{"x": 1}`,
			`at /x does not fit (oneOf): more than one alternative matches`,
		},
		{
			"anyOf", `{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}`,
			`{}`,
			`at the top does not fit (anyOf): no alternative matches`,
		},
		{
			"ref", `{"$defs": {"p": {"type": "number", "minimum": 0}}, "properties": {"a": {"$ref": "#/$defs/p"}, "b": {"$ref": "#/$defs/p"}}}`,
			`{"a": -1, "b": "x"}`,
			`at /a does not fit (minimum): -1 is less than 0, at /b does not fit (type): got string, want number`,
		},
		{
			"enum and const", `{"properties": {"a": {"enum": ["x", 1]}, "b": {"const": true}, "c": {"const": {"k": [1]}}}}`,
			`{"a": "y", "b": false, "c": {}}`,
			`at /a does not fit (enum): want one of ["x",1], at /b does not fit (const): want true, at /c does not fit (const): want {"k":[1]}`,
		},
		{
			"texts", `{"properties": {"a": {"pattern": "^x+$"}, "b": {"minLength": 3, "pattern": "z"}, "c": {"maxLength": 2}}}`,
			`{"a": "y", "b": "äö", "c": "xyz"}`,
			`at /a does not fit (pattern): "y" does not match regular expression "^x+$", at /b does not fit (minLength): 2 characters, fewer than 3, at /b does not fit (pattern): "äö" does not match regular expression "z", at /c does not fit (maxLength): 3 characters, more than 2`,
		},
		{
			"numbers", `{"properties": {"a": {"minimum": 3}, "b": {"maximum": 3}, "c": {"exclusiveMinimum": 3}, "d": {"exclusiveMaximum": 3}, "e": {"multipleOf": 2}, "f": {"multipleOf": 0.1, "minimum": 5}}}`,
			`{"a": 2.5, "b": 4, "c": 3, "d": 3, "e": 3, "f": 0.25}`,
			`at /a does not fit (minimum): 2.5 is less than 3, at /b does not fit (maximum): 4 is more than 3, at /c does not fit (exclusiveMinimum): 3 is not more than 3, at /d does not fit (exclusiveMaximum): 3 is not less than 3, at /e does not fit (multipleOf): 3 is not a multiple of 2, at /f does not fit (minimum): 0.25 is less than 5, at /f does not fit (multipleOf): 0.25 is not a multiple of 0.1`,
		},
		{
			"additionalProperties", `{"properties": {"a": {}}, "additionalProperties": false}`,
			`{"a": 1, "c": 1, "b": 1}`,
			`at the top "b" is not expected, at the top "c" is not expected`,
		},
		{
			"additionalProperties with a schema", `{"additionalProperties": {"type": "integer"}}`,
			`{"a": 1, "b": "x", "c/d": "y"}`,
			`at /b does not fit (type): got string, want integer, at /c~1d does not fit (type): got string, want integer`,
		},
		{
			"additionalProperties besides patterns", `{"patternProperties": {"^n_": {"type": "number"}}, "additionalProperties": false}`,
			`{"n_a": "x", "c": 1, "b": 1}`,
			`at the top "b" is not expected, at the top "c" is not expected, at /n_a does not fit (type): got string, want number`,
		},
		{
			"required", `{"required": ["a", "b", "c"]}`,
			`{"b": 1}`,
			`at the top "a" is missing, at the top "c" is missing`,
		},
		{
			"format", `{"format": "email"}`,
			`"no mail"`,
			``,
		},
		{
			"format of draft-07", `{"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"}`,
			`"no mail"`,
			``,
		},
		{
			"several at one place", `{"type": "string", "minLength": 5, "pattern": "^a", "enum": ["abcdef"]}`,
			`"xyz"`,
			`at the top does not fit (enum): want one of ["abcdef"]`,
		},
		{
			"sizes of objects", `{"minProperties": 2, "propertyNames": {"pattern": "^[a-z]+$"}}`,
			`{"A": 1}`,
			`at the top does not fit (minProperties): 1 properties, fewer than 2, at the top does not fit (propertyNames): "A" must not be a key`,
		},
		{
			"names in arrays", `{"items": {"propertyNames": {"maxLength": 1}}}`,
			`[{"ab": 1}, {"a": 1}, {"cd": 1}]`,
			`at /0 does not fit (propertyNames): "ab" must not be a key, at /2 does not fit (propertyNames): "cd" must not be a key`,
		},
		{
			"dependent", `{"dependentRequired": {"a": ["b", "c"]}, "dependentSchemas": {"a": {"properties": {"d": {"type": "string"}}}}}`,
			`{"a": 1, "d": 1}`,
			`at the top "b" is missing beside "a", at the top "c" is missing beside "a", at /d does not fit (type): got number, want string`,
		},
		{
			"dependencies of draft-07", `{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}`,
			`{"a": 1}`,
			`at the top "b" is missing beside "a"`,
		},
		{
			"contains", `{"contains": {"const": 1}}`,
			`[2, 3]`,
			`at the top does not fit (contains): no items match contains schema`,
		},
		{
			"contains too often", `{"contains": {"const": 1}, "maxContains": 1}`,
			`[1, 1]`,
			`at the top does not fit (maxContains): max 1 items required to match contains schema, but matched 2 items at 0 1`,
		},
		{
			"not", `{"properties": {"a": {"not": {"type": "string"}}}}`,
			`{"a": "x"}`,
			`at /a does not fit (not): a forbidden schema matches`,
		},
		{
			"false", `{"properties": {"a": false}}`,
			`{"a": 1}`,
			`at /a does not fit (false): no value is allowed here`,
		},
		{
			"if then", `{"if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["v"], "properties": {"w": {"type": "string"}}}}`,
			`{"k": 1, "w": 1}`,
			`at the top "v" is missing, at /w does not fit (type): got number, want string`,
		},
		{
			"unevaluated", `{"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false}`,
			`{"a": 1, "b": 1, "c": 1}`,
			`at /b does not fit (false): no value is allowed here, at /c does not fit (false): no value is allowed here`,
		},
		{
			"allOf", `{"allOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}, {"maxProperties": 1}]}`,
			`{"b": 1, "c": 1}`,
			`at the top does not fit (maxProperties): 2 properties, more than 1, at the top "a" is missing, at /b does not fit (type): got number, want string`,
		},
		{
			"escaped keys", `{"properties": {"a/b": {"type": "object", "properties": {"c~d": {"type": "null"}}}}}`,
			`{"a/b": {"c~d": 1}}`,
			`at /a~1b/c~0d does not fit (type): got number, want null`,
		},
		{
			"wrong type below a type", `{"type": "object", "properties": {"a": {"type": ["string", "null"]}}}`,
			`{"a": [1]}`,
			`at /a does not fit (type): got array, want null or string`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := schema(t, c.schema)
			for range 10 {
				got := ""
				if _, err := s.Fit(message(c.data)); err != nil {
					got = err.Error()
				}
				if got != c.want {
					t.Fatalf("%s\nwant %s", got, c.want)
				}
			}
		})
	}
}
