package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// operation is what a route of an RPC takes in its query.
type operation struct {
	request protoreflect.MessageDescriptor
	path    string
	inBody  bool // the fields of the request are in the body
}

// operations returns the operations of all services, by method and path.
var operations = sync.OnceValue(func() map[string]operation {
	all := map[string]operation{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				for _, r := range append(rule.GetAdditionalBindings(), rule) {
					method, path := methodAndPath(r)
					all[operationKey(method, path)] = operation{m.Input(), path, r.GetBody() != ""}
				}
			}
		}
		return true
	})
	return all
})

// methodAndPath returns the HTTP method and the path of a rule, both empty if it has none.
func methodAndPath(r *annotations.HttpRule) (method, path string) {
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	}
	return "", ""
}

var pathVariable = regexp.MustCompile(`\{[^}]*\}`)

// operationKey returns the key of an operation. The names of the variables in its path do not matter.
func operationKey(method, path string) string {
	return method + " " + pathVariable.ReplaceAllString(path, "*")
}

// checkQuery returns an INVALID_REQUEST error if a request of an RPC has a parameter in its query that
// the RPC does not take. The gateway would ignore it, and a filter with a wrong name would select all.
func checkQuery(r *http.Request, query url.Values) error {
	pattern, _ := runtime.HTTPPattern(r.Context())
	op, ok := operations()[operationKey(r.Method, pattern.String())]
	if !ok {
		return nil
	}
	return unknownParameters(query, op.names(r), func(name string) bool { return op.takes(r, name) })
}

// names returns the parameters that an operation takes, apart from those that are in its path, and from
// fields of its fields.
func (op operation) names(r *http.Request) (names []string) {
	inPath := pathVariable.FindAllString(op.path, -1)
	fields := op.request.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		named := func(variable string) bool {
			name, _, _ := strings.Cut(strings.Trim(variable, "{}"), "=")
			return name == f.TextName()
		}
		if op.takes(r, f.JSONName()) && !slices.ContainsFunc(inPath, named) {
			names = append(names, f.JSONName())
		}
	}
	return names
}

// takes reports whether an operation takes a parameter, which may be the path of a field, in either
// spelling, or an entry of a map. If the fields are in the body, the query has only the tenant, and what
// a YAML file cannot contain.
func (op operation) takes(r *http.Request, name string) bool {
	name, _, _ = strings.Cut(name, "[")
	if op.inBody && name != "tenant" {
		return yamlBody(r) && slices.Contains([]string{"etag", "validateOnly"}, camel(name))
	}
	in := op.request
	for part := range strings.SplitSeq(name, ".") {
		if in == nil {
			return true // the gateway returns the error
		}
		f := in.Fields().ByName(protoreflect.Name(part))
		if f == nil {
			f = in.Fields().ByJSONName(part)
		}
		if f == nil {
			return false
		}
		in = f.Message()
	}
	return true
}

// unknownParameters returns an INVALID_REQUEST error that names the parameters in a query that are not
// taken, and those that are known. A2A-Version is taken everywhere.
func unknownParameters(query url.Values, known []string, takes func(string) bool) error {
	instead := "the query takes no parameters here"
	if len(known) > 0 {
		instead = "known ones: " + strings.Join(known, ", ")
	}
	var faults []agent.Violation
	for name := range query {
		if !takes(name) && !strings.EqualFold(name, "a2a-version") {
			faults = append(faults, agent.Violation{Field: fmt.Sprintf("%.64s", name), Description: "is not a known query parameter; " + instead})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.SortFunc(faults, func(a, b agent.Violation) int { return strings.Compare(a.Field, b.Field) })
	return a2aerror.Invalid(faults[:min(len(faults), maxUnknown)]...)
}

// camel returns the JSON name of a field.
func camel(snake string) string {
	words := strings.Split(snake, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
