// Package service has the services of the server in a table: A2A, the Agent services, and those that manage and watch teams.
// gRPC registers them; the bindings over HTTP call their methods by name, those with one response and those with a stream of them.
package service

import (
	"context"
	"errors"
	"slices"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// service is a service that is served over gRPC and REST.
type service struct {
	Desc *grpc.ServiceDesc
	// On implements the service; nil means that it is not served.
	On any
	// Gateway adds the REST routes, which call the service over a connection.
	Gateway func(*runtime.ServeMux, grpc.ClientConnInterface) error
}

// Config has what implements the services. Only Handler is required; those that are nil are not served.
type Config struct {
	Handler        Handler
	Teams          Teams
	Monitor        Monitor
	Collaborations Collaborations
	Board          teamv1.BoardServiceServer
	Accounts       teamv1.AccountServiceServer
	Keys           teamv1.KeyServiceServer
	Audits         teamv1.AuditServiceServer
	Halts          teamv1.HaltServiceServer
}

// Table holds the services that are served, and calls their methods.
type Table struct {
	Config
	chain   *call.Chain
	All     []service
	methods map[string]method    // with one response, by full name
	streams map[string]streaming // with a stream of responses, by full name
}

// New returns the table of the services of a configuration.
func New(config Config, chain *call.Chain) *Table {
	t := &Table{Config: config, chain: chain, All: servicesOf(&config, chain), methods: map[string]method{}, streams: map[string]streaming{}}
	for _, of := range t.All {
		for _, m := range of.Desc.Methods {
			t.methods["/"+of.Desc.ServiceName+"/"+m.MethodName] = method{of.On, m.Handler}
		}
		for _, m := range of.Desc.Streams {
			t.streams["/"+of.Desc.ServiceName+"/"+m.StreamName] = streaming{of.On, m.Handler}
		}
	}
	return t
}

// servicesOf returns the services that are served. A new one is a row here. If the REST routes of two match a request, those
// of the later one win.
func servicesOf(c *Config, chain *call.Chain) []service {
	tasks := taskService{c.Handler, chain}
	all := []service{
		{&a2av1.A2AService_ServiceDesc, tasks, routesOf(a2av1.RegisterA2AServiceHandlerClient, a2av1.NewA2AServiceClient)},
		{&teamv1.AgentService_ServiceDesc, tasks, routesOf(teamv1.RegisterAgentServiceHandlerClient, teamv1.NewAgentServiceClient)},
		{&teamv1.TeamService_ServiceDesc, c.teams(), routesOf(teamv1.RegisterTeamServiceHandlerClient, teamv1.NewTeamServiceClient)},
		{&teamv1.RegistryService_ServiceDesc, c.Teams, routesOf(teamv1.RegisterRegistryServiceHandlerClient, teamv1.NewRegistryServiceClient)},
		{&teamv1.MonitorService_ServiceDesc, c.monitor(chain), routesOf(teamv1.RegisterMonitorServiceHandlerClient, teamv1.NewMonitorServiceClient)},
		{&teamv1.CollaborationService_ServiceDesc, c.Collaborations, routesOf(teamv1.RegisterCollaborationServiceHandlerClient, teamv1.NewCollaborationServiceClient)},
		{&teamv1.HaltService_ServiceDesc, c.Halts, routesOf(teamv1.RegisterHaltServiceHandlerClient, teamv1.NewHaltServiceClient)},
		{&teamv1.BoardService_ServiceDesc, c.Board, routesOf(teamv1.RegisterBoardServiceHandlerClient, teamv1.NewBoardServiceClient)},
		{&teamv1.AccountService_ServiceDesc, c.Accounts, routesOf(teamv1.RegisterAccountServiceHandlerClient, teamv1.NewAccountServiceClient)},
		{&teamv1.AuditService_ServiceDesc, c.Audits, routesOf(teamv1.RegisterAuditServiceHandlerClient, teamv1.NewAuditServiceClient)},
		{&teamv1.KeyService_ServiceDesc, c.Keys, routesOf(teamv1.RegisterKeyServiceHandlerClient, teamv1.NewKeyServiceClient)},
	}
	return slices.DeleteFunc(all, func(of service) bool { return of.On == nil })
}

// routesOf returns the function that adds the generated REST routes of a service.
func routesOf[Client any](register func(context.Context, *runtime.ServeMux, Client) error, client func(grpc.ClientConnInterface) Client) func(*runtime.ServeMux, grpc.ClientConnInterface) error {
	return func(mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
		return register(context.Background(), mux, client(conn))
	}
}

// method is a method with one response.
type method struct {
	on     any // implements the service
	handle grpc.MethodHandler
}

// streaming is a method with a stream of responses.
type streaming struct {
	on     any // implements the service
	handle grpc.StreamHandler
}

// A2APrefix is how the full names of the methods begin that JSON-RPC serves.
const A2APrefix = "/lf.a2a.v1.A2AService/"

// Invoke calls a method of the services by its full name. decode decodes the request.
func (s *Table) Invoke(ctx context.Context, name string, decode func(any) error) (any, error) {
	m, ok := s.methods[name]
	if !ok {
		return nil, NoMethod(name).Err()
	}
	return m.handle(m.on, ctx, decode, s.chain.Intercept)
}

// Stream runs a method with a stream of responses by its full name.
func (s *Table) Stream(name string, to grpc.ServerStream) error {
	m, ok := s.streams[name]
	if !ok {
		return NoMethod(name).Err()
	}
	return m.handle(m.on, to)
}

// Streamed reports whether a method has a stream of responses.
func (s *Table) Streamed(name string) bool { return s.streams[name].handle != nil }

// Known reports whether a method has one response.
func (s *Table) Known(name string) bool { return s.methods[name].handle != nil }

// local is the connection over which REST, A2A 0.3 and contract calls reach the services.
type local struct{ s *Table }

// Conn returns the connection over which clients of the services reach them.
func (s *Table) Conn() grpc.ClientConnInterface { return local{s} }

// Invoke implements grpc.ClientConnInterface. The metadata that the gateway adds to the context, such as the key of the
// caller, is removed: calls to other servers would send it.
func (l local) Invoke(ctx context.Context, name string, req, resp any, _ ...grpc.CallOption) error {
	ctx = metadata.NewOutgoingContext(ctx, nil)
	out, err := l.s.Invoke(ctx, name, func(v any) error { return Share(v, req) })
	if err != nil {
		return err
	}
	return Share(resp, out)
}

// NewStream implements grpc.ClientConnInterface. The routes of streams do not use it, see httpapi/routes.go.
func (local) NewStream(_ context.Context, _ *grpc.StreamDesc, name string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, NoMethod(name).Err()
}

// Share sets the fields of an empty message to those of another one of its type. The messages share what is in the fields.
func Share(to, from any) error {
	dst, isTo := to.(proto.Message)
	src, isFrom := from.(proto.Message)
	if !isTo || !isFrom {
		return errors.New("not a message")
	}
	m := dst.ProtoReflect()
	src.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		m.Set(f, v)
		return true
	})
	m.SetUnknown(src.ProtoReflect().GetUnknown())
	return nil
}

// NoMethod returns the status for an unknown method.
func NoMethod(name string) *status.Status { return wire.NotServed("unknown method %.64q", name) }
