package guard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	kinds "github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	translation "golang.org/x/text/message"
)

// english formats the library's texts of the violations that describe has no text for.
var english = translation.NewPrinter(language.English)

// resource is the URL under which a schema file is compiled.
const resource = "urn:schema"

// compile compiles the schema of a file in which the checker found no faults. It loads no other
// schemas.
func compile(root *value) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "urn:names", Compile: newNameChecker})
	c.AssertVocabs()
	if err := c.AddResource(resource, root.any()); err != nil {
		return nil, err
	}
	return c.Compile(resource)
}

// nameChecker checks propertyNames once more, because the errors of the library may have the wrong
// place: https://github.com/santhosh-tekuri/jsonschema/pull/269.
type nameChecker struct{ schema *jsonschema.Schema }

// wrongName is the violation of propertyNames that a nameChecker reports.
type wrongName struct{ kinds.PropertyNames }

func newNameChecker(ctx *jsonschema.CompilerContext, schema map[string]any) (jsonschema.SchemaExt, error) {
	if _, ok := schema["propertyNames"]; !ok {
		return nil, nil //nolint:nilnil // the schema does not have the keyword
	}
	return nameChecker{ctx.Enqueue([]string{"propertyNames"})}, nil
}

// Validate implements jsonschema.SchemaExt.
func (n nameChecker) Validate(ctx *jsonschema.ValidatorContext, v any) {
	object, _ := v.(map[string]any)
	for name := range object {
		if ctx.Validate(n.schema, name, []string{name}) != nil {
			ctx.AddError(&wrongName{kinds.PropertyNames{Property: name}})
		}
	}
}

// violation is a place where data violates a schema.
type violation struct {
	at      []string // keys and indexes that lead to the place, from the top of the data
	keyword string   // the keyword of the schema
	text    string   // description
}

func (v violation) where() string {
	if len(v.at) == 0 {
		return "at the top"
	}
	var pointer strings.Builder
	for _, token := range v.at {
		pointer.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return "at " + pointer.String()
}

// violations returns all violations in data, sorted by place.
func violations(s *jsonschema.Schema, data any) []violation {
	var invalid *jsonschema.ValidationError
	if _, err := json.Marshal(data); err != nil {
		return []violation{{keyword: "type", text: "does not fit (type): a number is infinite or not a number"}}
	}
	if !errors.As(s.Validate(data), &invalid) {
		return nil
	}
	return sorted(flatten(nil, invalid))
}

// sorted sorts violations by place and removes repetitions.
func sorted(all []violation) []violation {
	slices.SortFunc(all, func(a, b violation) int {
		return cmp.Or(slices.CompareFunc(a.at, b.at, compareTokens), cmp.Compare(a.keyword, b.keyword), cmp.Compare(a.text, b.text))
	})
	return slices.CompactFunc(all, func(a, b violation) bool {
		return slices.Equal(a.at, b.at) && a.keyword == b.keyword && a.text == b.text
	})
}

// compareTokens compares list indexes as numbers, and keys as strings.
func compareTokens(a, b string) int {
	i, errA := strconv.Atoi(a)
	j, errB := strconv.Atoi(b)
	if errA == nil && errB == nil {
		return cmp.Compare(i, j)
	}
	return cmp.Compare(a, b)
}

// flatten appends the violations of an error and of its causes. The causes of a violated
// alternative are not violations of their own.
func flatten(to []violation, e *jsonschema.ValidationError) []violation {
	switch k := e.ErrorKind.(type) {
	case *kinds.Schema, *kinds.Group, *kinds.Reference, *kinds.AllOf:
		for _, cause := range e.Causes {
			to = flatten(to, cause)
		}
		return to
	case *kinds.PropertyNames: // nameChecker reports it
		return to
	case *kinds.Required:
		return appendNames(to, e.InstanceLocation, "required", k.Missing, "is missing")
	case *kinds.DependentRequired:
		return appendNames(to, e.InstanceLocation, "dependentRequired", k.Missing, fmt.Sprintf("is missing beside %q", cut(k.Prop)))
	case *kinds.Dependency:
		return appendNames(to, e.InstanceLocation, "dependencies", k.Missing, fmt.Sprintf("is missing beside %q", cut(k.Prop)))
	case *kinds.AdditionalProperties:
		return appendNames(to, e.InstanceLocation, "additionalProperties", k.Properties, "is not expected")
	}
	keyword, text := describe(e.ErrorKind)
	return append(to, violation{e.InstanceLocation, keyword, "does not fit (" + keyword + "): " + cut(text)})
}

// appendNames appends one violation for each name.
func appendNames(to []violation, at []string, keyword string, names []string, text string) []violation {
	for _, name := range names {
		to = append(to, violation{at, keyword, fmt.Sprintf("%q %s", cut(name), text)})
	}
	return to
}

// describe returns the keyword that is violated and a description.
func describe(e jsonschema.ErrorKind) (keyword, text string) {
	number := func(r *big.Rat) float64 { f, _ := r.Float64(); return f }
	switch k := e.(type) {
	case *kinds.FalseSchema:
		return "false", "no value is allowed here"
	case *kinds.Not:
		return "not", "a forbidden schema matches"
	case *kinds.AnyOf:
		text = "no alternative matches"
	case *kinds.OneOf:
		if text = "no alternative matches"; len(k.Subschemas) > 0 {
			text = "more than one alternative matches"
		}
	case *kinds.Pattern:
		text = fmt.Sprintf("%q does not match regular expression %q", k.Got, k.Want)
	case *kinds.Enum:
		text = fmt.Sprintf("want one of %s", jsonText(k.Want))
	case *kinds.Const:
		text = fmt.Sprintf("want %s", jsonText(k.Want))
	case *kinds.MinLength:
		text = fmt.Sprintf("%d characters, fewer than %d", k.Got, k.Want)
	case *kinds.MaxLength:
		text = fmt.Sprintf("%d characters, more than %d", k.Got, k.Want)
	case *kinds.MinItems:
		text = fmt.Sprintf("%d items, fewer than %d", k.Got, k.Want)
	case *kinds.MaxItems:
		text = fmt.Sprintf("%d items, more than %d", k.Got, k.Want)
	case *kinds.MinProperties:
		text = fmt.Sprintf("%d properties, fewer than %d", k.Got, k.Want)
	case *kinds.MaxProperties:
		text = fmt.Sprintf("%d properties, more than %d", k.Got, k.Want)
	case *wrongName:
		text = fmt.Sprintf("%q must not be a key", cut(k.Property))
	case *kinds.Minimum:
		text = fmt.Sprintf("%v is less than %v", number(k.Got), number(k.Want))
	case *kinds.Maximum:
		text = fmt.Sprintf("%v is more than %v", number(k.Got), number(k.Want))
	case *kinds.ExclusiveMinimum:
		text = fmt.Sprintf("%v is not more than %v", number(k.Got), number(k.Want))
	case *kinds.ExclusiveMaximum:
		text = fmt.Sprintf("%v is not less than %v", number(k.Got), number(k.Want))
	case *kinds.MultipleOf:
		text = fmt.Sprintf("%v is not a multiple of %v", number(k.Got), number(k.Want))
	default:
		text = e.LocalizedString(english)
	}
	return e.KeywordPath()[0], text
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// cut truncates a text that may contain a whole message.
func cut(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
