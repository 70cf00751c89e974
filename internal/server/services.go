package server

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
	"github.com/agentteams/team-server/internal/wire"
)

// service is a service that is served over gRPC and REST.
type service struct {
	desc *grpc.ServiceDesc
	// on implements the service; nil means that it is not served.
	on any
	// gateway adds the REST routes, which call the service over a connection.
	gateway func(*runtime.ServeMux, grpc.ClientConnInterface) error
}

// TableConfig has what implements the services. Only Handler is required; those that are nil are not served.
type TableConfig struct {
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
	TableConfig
	chain   *Chain
	all     []service
	methods map[string]method    // with one response, by full name
	streams map[string]streaming // with a stream of responses, by full name
}

// NewTable returns the table of the services of a configuration.
func NewTable(config TableConfig, chain *Chain) *Table {
	t := &Table{TableConfig: config, chain: chain, all: servicesOf(&config, chain), methods: map[string]method{}, streams: map[string]streaming{}}
	for _, of := range t.all {
		for _, m := range of.desc.Methods {
			t.methods["/"+of.desc.ServiceName+"/"+m.MethodName] = method{of.on, m.Handler}
		}
		for _, m := range of.desc.Streams {
			t.streams["/"+of.desc.ServiceName+"/"+m.StreamName] = streaming{of.on, m.Handler}
		}
	}
	return t
}

// servicesOf returns the services that are served. A new one is a row here. If the REST routes of two match a request, those
// of the later one win.
func servicesOf(c *TableConfig, chain *Chain) []service {
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
	return slices.DeleteFunc(all, func(of service) bool { return of.on == nil })
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

// rpcService is how the full names of the methods begin that JSON-RPC serves.
const rpcService = "/lf.a2a.v1.A2AService/"

// invoke calls a method of the services by its full name. decode decodes the request.
func (s *Table) invoke(ctx context.Context, name string, decode func(any) error) (any, error) {
	m, ok := s.methods[name]
	if !ok {
		return nil, noMethod(name).Err()
	}
	return m.handle(m.on, ctx, decode, s.chain.aroundCall)
}

// stream runs a method with a stream of responses by its full name.
func (s *Table) stream(name string, to grpc.ServerStream) error {
	m, ok := s.streams[name]
	if !ok {
		return noMethod(name).Err()
	}
	return m.handle(m.on, to)
}

// local is the connection over which REST, A2A 0.3 and contract calls reach the services.
type local struct{ s *Table }

// conn returns the connection over which clients of the services reach them.
func (s *Table) conn() grpc.ClientConnInterface { return local{s} }

// Invoke implements grpc.ClientConnInterface. The metadata that the gateway adds to the context, such as the key of the
// caller, is removed: calls to other servers would send it.
func (l local) Invoke(ctx context.Context, name string, req, resp any, _ ...grpc.CallOption) error {
	ctx = metadata.NewOutgoingContext(ctx, nil)
	out, err := l.s.invoke(ctx, name, func(v any) error { return share(v, req) })
	if err != nil {
		return err
	}
	return share(resp, out)
}

// NewStream implements grpc.ClientConnInterface. The routes of streams do not use it, see routes.
func (local) NewStream(_ context.Context, _ *grpc.StreamDesc, name string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, noMethod(name).Err()
}

// share sets the fields of an empty message to those of another one of its type. The messages share what is in the fields.
func share(to, from any) error {
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

func noMethod(name string) *status.Status { return wire.NotServed("unknown method %.64q", name) }
