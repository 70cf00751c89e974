package main

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// missing stands for a field that is not there.
type missing struct{}

// operators are the assertions of a map (ACTS, section 5.1, and items, which the corpus uses besides). A map with any
// other key asserts the fields of an object.
var operators = []string{
	"type", "exists", "absent", "contains", "starts_with", "ends_with", "matches", "count", "count_gte", "count_lte",
	"gte", "lte", "gt", "lt", "one_of", "any_of", "all_of", "not", "items",
}

// operate applies an operator, and returns what is wrong.
func operate(name string, want, got any) string {
	switch name {
	case "type":
		return hasType(want, got)
	case "exists":
		return unless(got != missing{}, "is missing")
	case "absent":
		return unless(got == missing{}, "is there")
	case "contains":
		return text(want, got, strings.Contains)
	case "starts_with":
		return text(want, got, strings.HasPrefix)
	case "ends_with":
		return text(want, got, strings.HasSuffix)
	case "matches":
		return text(want, got, func(s, p string) bool { return regexp.MustCompile(p).MatchString(s) })
	case "count":
		return length(want, got, func(n, w float64) bool { return n == w })
	case "count_gte":
		return length(want, got, func(n, w float64) bool { return n >= w })
	case "count_lte":
		return length(want, got, func(n, w float64) bool { return n <= w })
	case "gte":
		return compared(want, got, func(a, b float64) bool { return a >= b })
	case "lte":
		return compared(want, got, func(a, b float64) bool { return a <= b })
	case "gt":
		return compared(want, got, func(a, b float64) bool { return a > b })
	case "lt":
		return compared(want, got, func(a, b float64) bool { return a < b })
	case "all_of":
		return allOf(want, got)
	case "not":
		return unless(check(want, got) != "", "is "+show(got))
	case "items":
		return items(want, got)
	default: // one_of, any_of
		return anyOf(want, got)
	}
}

// isOperator reports whether a key of a map is an operator. A field of that name has a map as its value.
func isOperator(key string, want any) bool {
	if !slices.Contains(operators, key) {
		return false
	}
	_, isMap := want.(map[string]any)
	return !isMap || key == "not" || key == "items"
}

// check compares a value with an assertion, and returns what is wrong; empty if nothing is.
func check(want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		return checkMap(want, got)
	case []any:
		return checkList(want, got)
	}
	return unless(equal(want, got), fmt.Sprintf("is %s, want %s", show(got), show(want)))
}

func checkMap(want map[string]any, got any) string {
	object, _ := got.(map[string]any)
	for _, key := range sorted(want) {
		if isOperator(key, want[key]) {
			if problem := operate(key, want[key], got); problem != "" {
				return problem
			}
			continue
		}
		value, ok := object[key]
		if !ok {
			value = missing{}
		}
		if problem := check(want[key], value); problem != "" {
			return "." + key + " " + strings.TrimPrefix(problem, " ")
		}
	}
	return ""
}

func checkList(want []any, got any) string {
	list, ok := got.([]any)
	if !ok || len(list) < len(want) {
		return fmt.Sprintf("is %s, want a list of %d", show(got), len(want))
	}
	for i := range want {
		if problem := check(want[i], list[i]); problem != "" {
			return fmt.Sprintf("[%d]%s", i, problem)
		}
	}
	return ""
}

func unless(ok bool, problem string) string {
	if ok {
		return ""
	}
	return problem
}

func equal(want, got any) bool {
	a, isNumber := number(want)
	b, alsoNumber := number(got)
	return isNumber && alsoNumber && a == b || reflect.DeepEqual(want, got)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return math.NaN(), false
}

func hasType(want, got any) string {
	is := map[string]bool{"null": got == nil}
	switch got.(type) {
	case string:
		is["string"] = true
	case float64, int:
		is["number"] = true
	case bool:
		is["boolean"] = true
	case []any:
		is["array"] = true
	case map[string]any:
		is["object"] = true
	}
	return unless(is[fmt.Sprint(want)], fmt.Sprintf("is %s, want the type %v", show(got), want))
}

func text(want, got any, is func(s, of string) bool) string {
	s, ok := got.(string)
	return unless(ok && is(s, fmt.Sprint(want)), fmt.Sprintf("is %s, want a text with %q", show(got), want))
}

func length(want, got any, is func(n, want float64) bool) string {
	list, ok := got.([]any)
	w, _ := number(want)
	return unless(ok && is(float64(len(list)), w), fmt.Sprintf("is %s, want %v elements", show(got), want))
}

func compared(want, got any, is func(got, want float64) bool) string {
	a, ok := number(got)
	b, _ := number(want)
	return unless(ok && is(a, b), fmt.Sprintf("is %s, to be compared with %v", show(got), want))
}

func anyOf(want, got any) string {
	list, _ := want.([]any)
	return unless(slices.ContainsFunc(list, func(w any) bool { return check(w, got) == "" }), fmt.Sprintf("is %s, want one of %s", show(got), show(want)))
}

func allOf(want, got any) string {
	list, _ := want.([]any)
	for _, w := range list {
		if problem := check(w, got); problem != "" {
			return problem
		}
	}
	return ""
}

// items asserts each element of a list with a map, or the first ones with a list.
func items(want, got any) string {
	if list, ok := want.([]any); ok {
		return checkList(list, got)
	}
	list, _ := got.([]any)
	for i, v := range list {
		if problem := check(want, v); problem != "" {
			return fmt.Sprintf("[%d]%s", i, problem)
		}
	}
	return ""
}

func show(v any) string {
	if v == (missing{}) {
		return "missing"
	}
	if s := fmt.Sprintf("%#v", v); len(s) < 200 {
		return strings.ReplaceAll(s, "interface {}", "any")
	}
	return fmt.Sprintf("%T", v)
}

func sorted(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

var index = regexp.MustCompile(`^([^\[]*)((?:\[[^\]]*\])*)$`)

// at returns the values at a path such as task.artifacts[*].parts[0]; none if there is nothing.
func at(path string, v any) []any {
	values := []any{v}
	for segment := range strings.SplitSeq(path, ".") {
		m := index.FindStringSubmatch(segment)
		if m == nil {
			return nil
		}
		var next []any
		for _, v := range values {
			if m[1] != "" {
				object, _ := v.(map[string]any)
				field, ok := object[m[1]]
				if !ok {
					continue
				}
				v = field
			}
			next = append(next, elements(m[2], v)...)
		}
		values = next
	}
	return values
}

// elements applies indexes such as [*][0] to a value.
func elements(indexes string, v any) []any {
	values := []any{v}
	for _, i := range strings.FieldsFunc(indexes, func(r rune) bool { return r == '[' || r == ']' }) {
		var next []any
		for _, v := range values {
			list, _ := v.([]any)
			n := -1
			if _, err := fmt.Sscan(i, &n); err != nil {
				next = append(next, list...)
			} else if n >= 0 && n < len(list) {
				next = append(next, list[n])
			}
		}
		values = next
	}
	return values
}
