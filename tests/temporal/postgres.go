package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/common/testing/freeport"
	v12 "go.temporal.io/server/schema/postgresql/v12"
	"go.temporal.io/server/temporal"
	schematool "go.temporal.io/server/tools/common/schema"
	sqltool "go.temporal.io/server/tools/sql"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	namespace = "test"
	loopback  = "127.0.0.1"
	// shards is the number of history shards: as many as processors are busy with them.
	shards = 4
	// conns is the number of connections of each service to each database. Four services have two databases, and
	// PostgreSQL has 100 connections.
	conns = 8
	// keep is how long ended workflows are kept, at least a day.
	keep = 24 * time.Hour
)

// database returns how to connect to a database.
func database(address, name string) *config.SQL {
	return &config.SQL{
		User: "postgres", PluginName: postgresql.PluginNamePGX, DatabaseName: name, ConnectAddr: address, ConnectProtocol: "tcp",
		MaxConns: conns, MaxIdleConns: conns, MaxConnLifetime: time.Hour,
	}
}

// createSchema creates a database, unless it exists.
func createSchema(address, name, schema, version string) error {
	admin, err := sqltool.NewConnection(database(address, "postgres"), log.NewNoopLogger())
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateDatabase(name); err != nil { // which succeeds for one that exists
		return err
	}
	c, err := sqltool.NewConnection(database(address, name), log.NewNoopLogger())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.ReadSchemaVersion(); err == nil {
		return nil
	}
	return schematool.NewSetupSchemaTask(c, &schematool.SetupConfig{SchemaName: schema, InitialVersion: version}, log.NewNoopLogger()).Run()
}

// onPostgres starts a server on the databases of a PostgreSQL server.
func onPostgres(ctx context.Context, postgres string, port int, dynamic dynamicconfig.Client) (address, space string, end func(), err error) {
	if err := createSchema(postgres, "temporal", "postgresql/v12/temporal", v12.Version); err != nil {
		return "", "", nil, fmt.Errorf("creating the database temporal: %w", err)
	}
	if err := createSchema(postgres, "visibility", "postgresql/v12/visibility", v12.VisibilityVersion); err != nil {
		return "", "", nil, fmt.Errorf("creating the database visibility: %w", err)
	}
	if port == 0 {
		port = freeport.MustGetFreePort()
	}
	address = fmt.Sprintf("%s:%d", loopback, port)
	c, hosts := configOf(postgres, port)
	s, err := temporal.NewServer(
		temporal.WithConfig(c), temporal.ForServices(temporal.DefaultServices), temporal.WithStaticHosts(hosts),
		temporal.WithLogger(log.NewNoopLogger()), temporal.WithDynamicConfigClient(dynamic), temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
	)
	if err != nil {
		return "", "", nil, err
	}
	if err := s.Start(); err != nil {
		return "", "", nil, err
	}
	return address, namespace, func() { _ = s.Stop() }, register(ctx, address)
}

// configOf returns the configuration of a server at a port, and where its services are.
func configOf(postgres string, port int) (*config.Config, map[primitives.ServiceName]static.Hosts) {
	services, hosts := map[string]config.Service{}, map[primitives.ServiceName]static.Hosts{}
	for _, name := range []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService} {
		at := port
		if name != primitives.FrontendService {
			at = freeport.MustGetFreePort()
		}
		services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: at, MembershipPort: freeport.MustGetFreePort(), BindOnIP: loopback}}
		hosts[name] = static.SingleLocalHost(fmt.Sprintf("%s:%d", loopback, at))
	}
	address := fmt.Sprintf("%s:%d", loopback, port)
	return &config.Config{
		Global: config.Global{Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: loopback}},
		Persistence: config.Persistence{
			DefaultStore: "default", VisibilityStore: "visibility", NumHistoryShards: shards,
			DataStores: map[string]config.DataStore{"default": {SQL: database(postgres, "temporal")}, "visibility": {SQL: database(postgres, "visibility")}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: "active", CurrentClusterName: "active",
			ClusterInformation: map[string]cluster.ClusterInformation{"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival:            config.Archival{History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"}},
		PublicClient:        config.PublicClient{HostPort: address},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History: config.HistoryArchivalNamespaceDefaults{State: "disabled"}, Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
	}, hosts
}

// register creates the namespace and waits until all services know it.
func register(ctx context.Context, address string) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Namespace: namespace})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{Namespace: namespace, WorkflowExecutionRetentionPeriod: durationpb.New(keep)})
	if exists := (*serviceerror.NamespaceAlreadyExists)(nil); err != nil && !errors.As(err, &exists) {
		return err
	}
	for {
		_, err := c.WorkflowService().CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
