package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/agentteams/team-server/internal/wire"
)

// Service lets generated clients call a server over one binding, without streams. Its
// errors are *Error. It is safe for concurrent use.
type Service interface {
	grpc.ClientConnInterface
	// Binding returns "grpc" or "rest".
	Binding() string
}

// Services returns a Service for each binding. They are closed when the test ends.
func Services(t testing.TB, target Target) []Service {
	t.Helper()
	g, err := NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return []Service{grpcService{g}, restService{target: target}}
}

type grpcService struct{ *GRPC }

func (s grpcService) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return FromGRPC(s.Conn.Invoke(s.Context(ctx), method, args, reply, opts...))
}

func (s grpcService) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return s.Conn.NewStream(s.Context(ctx), d, method, opts...)
}

// restService sends calls as REST requests according to the HTTP annotations of their
// methods.
type restService struct {
	grpc.ClientConnInterface // nil: streams are not supported

	target Target
}

func (restService) Binding() string { return "rest" }

var pathField = regexp.MustCompile(`\{(\w+)\}`)

func (s restService) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	in, out := args.(proto.Message), reply.(proto.Message) //nolint:forcetypeassert // generated clients call
	verb, path, body, err := ruleOf(method)
	if err != nil {
		return err
	}
	data, err := wire.Marshal(in)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	path = pathField.ReplaceAllStringFunc(path, func(name string) string {
		key := in.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(strings.Trim(name, "{}"))).JSONName()
		value := fmt.Sprint(fields[key])
		delete(fields, key)
		return url.PathEscape(value)
	})
	if body == "" {
		query := url.Values{}
		for name, value := range fields {
			query.Set(name, fmt.Sprint(value))
		}
		path, data = path+"?"+query.Encode(), nil
	}
	headers := map[string]string{}
	if data != nil {
		headers["Content-Type"] = wire.TypeJSON
	}
	answer, err := s.target.Do(ctx, verb, path, data, headers)
	if err != nil {
		return err
	}
	return answer.Read(out)
}

// ruleOf returns the HTTP annotation of a method, which has its gRPC name.
func ruleOf(method string) (verb, path, body string, err error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(strings.Trim(method, "/"), "/", ".")))
	if err != nil {
		return "", "", "", err
	}
	rule, _ := proto.GetExtension(d.Options(), annotations.E_Http).(*annotations.HttpRule)
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		verb, path = http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		verb, path = http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		verb, path = http.MethodPut, p.Put
	case *annotations.HttpRule_Delete:
		verb, path = http.MethodDelete, p.Delete
	default:
		return "", "", "", fmt.Errorf("%s has no path", method)
	}
	return verb, path, rule.GetBody(), nil
}
