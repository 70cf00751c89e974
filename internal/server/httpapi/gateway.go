package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// newGateway returns the HTTP routes: the generated ones for calls with one response, and
// those of this package for streams, JSON-RPC, cards, parts, health and documents. If two
// routes match a request, the one registered later wins.
func (s *API) newGateway() (*runtime.ServeMux, error) {
	nothing := func(string) (string, bool) { return "", false } // package call reads the headers
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{wire.TypeJSON}),
		runtime.WithMarshalerOption(wire.TypeJSON, marshaler{wire.TypeJSON}),
		runtime.WithMarshalerOption(wire.TypeA2A, marshaler{wire.TypeA2A}),
		runtime.WithIncomingHeaderMatcher(nothing),
		runtime.WithOutgoingHeaderMatcher(nothing),
		runtime.WithOutgoingTrailerMatcher(nothing),
		runtime.WithErrorHandler(s.gatewayError),
		runtime.WithRoutingErrorHandler(s.routingError),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptReserved),
		runtime.WithMiddlewares(s.readBody),
		runtime.WithForwardResponseOption(setPrivate),
	)
	for _, of := range s.table.All {
		if err := of.Gateway(mux, s.table.Conn()); err != nil {
			return nil, fmt.Errorf("registering %s: %w", of.Desc.ServiceName, err)
		}
	}
	for _, r := range s.routes() {
		for method := range strings.FieldsSeq(r.methods) {
			if err := mux.HandlePath(method, r.path, r.handle); err != nil {
				return nil, fmt.Errorf("registering %s: %w", r.path, err)
			}
		}
	}
	return mux, nil
}

// wrongMethod rejects a GET on a path that ends in an action, such as ":cancel". The
// generated routes would read the action as part of an id.
func (s *API) wrongMethod(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	w.Header().Set("Allow", http.MethodPost)
	s.failWith(w, r, methodNotAllowed(r, http.MethodPost), http.StatusMethodNotAllowed)
}

// routingError answers requests that match no route.
func (s *API) routingError(_ context.Context, mux *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpStatus int) {
	if isProbe(r, false) {
		return
	}
	if r.URL.Path == "*" { // OPTIONS *, which the gateway reports as malformed
		httpStatus = http.StatusNotFound
	}
	var st *status.Status
	switch httpStatus {
	case http.StatusBadRequest:
		st = wire.Status(wire.Invalid("", "has a malformed path"))
	case http.StatusMethodNotAllowed:
		allow := allowed(mux, w, r)
		w.Header().Set("Allow", allow)
		st = methodNotAllowed(r, allow)
	default:
		st = wire.NotServed("unknown path; known paths: %s, /message:send, /message:stream, /tasks, "+
			"/rpc, each also below /{tenant}, and those below /team/v1; /docs lists all", cardPath)
	}
	s.failWith(w, r, st, httpStatus)
}

// gatewayError answers with the error of a call, or of decoding its parameters.
func (s *API) gatewayError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if isProbe(r, false) {
		return
	}
	if b, ok := r.Body.(*body); ok && b.fault != nil {
		err = b.fault
	}
	var malformed *runtime.HTTPStatusError
	if errors.As(err, &malformed) {
		err = wire.Invalid("", "has a malformed path")
	}
	st := wire.Status(err)
	if st.Code() == codes.InvalidArgument && wire.InfoOf(st) == nil {
		st = wire.Status(parameterError(ctx, r.URL.Query(), st.Message()))
	}
	s.fail(w, r, st)
}

var parameterName = regexp.MustCompile(`(?:field|list|parameter:?|map key|map value) "?(\w+)`)

// parameterError replaces the gateway's error for a parameter of the path or the query by
// the error that other bindings return for the same field, under its JSON name.
func parameterError(ctx context.Context, query url.Values, text string) error {
	m := parameterName.FindStringSubmatch(text)
	if m == nil {
		return wire.Invalid("", "has an invalid parameter")
	}
	if err := checkParameter(ctx, m[1], cmp.Or(query.Get(m[1]), query.Get(camel(m[1])))); err != nil {
		return err
	}
	return wire.Invalid(camel(m[1]), "is not a valid value")
}

// checkParameter decodes a value as a field of the method's request and returns the error.
// It returns nil if the value is valid or the method is unknown.
func checkParameter(ctx context.Context, field, value string) error {
	name, _ := runtime.RPCMethod(ctx)
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", ".")))
	method, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil
	}
	var v any = value
	if n, err := strconv.ParseInt(value, 10, 32); err == nil {
		v = n
	}
	b, err := json.Marshal(map[string]any{field: v})
	if err != nil {
		return nil //nolint:nilerr // strings and numbers always encode
	}
	req := dynamicpb.NewMessage(method.Input())
	if err := wire.Unmarshal(b, req); err != nil {
		return err
	}
	return wire.Check(req)
}

// setPrivate keeps the answer to an authenticated caller out of shared caches.
func setPrivate(_ context.Context, w http.ResponseWriter, _ proto.Message) error {
	w.Header().Set("Cache-Control", private)
	w.Header().Add("Vary", "Authorization, Accept")
	call.LimitWrite(w)
	return nil
}

// marshaler encodes and decodes JSON for the gateway with the rules of internal/wire.
type marshaler struct{ media string }

func (m marshaler) ContentType(any) string { return m.media }

func (m marshaler) Marshal(v any) ([]byte, error) {
	message, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("rendering %T", v)
	}
	return wire.Marshal(message)
}

func (m marshaler) Unmarshal(b []byte, v any) error {
	message, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decoding into %T", v)
	}
	if err := wire.Unmarshal(b, message); err != nil {
		return err
	}
	return checkKeys(b, message)
}

func (m marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		b, err := readAll(r)
		if err != nil {
			return err
		}
		if len(b) > 0 {
			err = m.Unmarshal(b, v)
		}
		from, ok := r.(*body)
		if req, isMessage := v.(proto.Message); ok && isMessage && err == nil {
			err = setTenant(req, from.params)
		}
		if len(b) == 0 && err == nil {
			return io.EOF
		}
		if ok {
			from.fault = err
		}
		return err
	})
}

func (m marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		b, err := m.Marshal(v)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
}
