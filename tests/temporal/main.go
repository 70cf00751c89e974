// Command temporal is a Temporal server for the tests of cmd/team-server-temporal. It keeps its state in memory, or in
// two databases of a PostgreSQL server, which survive it. It prints its address and its namespace. It is a module of its
// own, because it selects versions of modules that team-server has in others.
//
//	temporal                                 # in memory
//	temporal -postgres 127.0.0.1:5432        # in the databases temporal and visibility
//	temporal -postgres … -port 7233          # at a port, so that clients find it again
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/temporaltest"
)

func main() {
	postgres := flag.String("postgres", "", "address of a PostgreSQL server that accepts the user postgres without a password")
	port := flag.Int("port", 0, "port, with -postgres; 0 takes a free one")
	suggest := flag.Int("suggest", 4096, "events of a history after which workflows are told to continue as new")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dynamic := dynamicconfig.StaticClient{
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): []dynamicconfig.ConstrainedValue{{Value: true}},
		dynamicconfig.HistoryCountSuggestContinueAsNew.Key():        []dynamicconfig.ConstrainedValue{{Value: *suggest}},
	}
	address, namespace, end, err := "", "", func() {}, error(nil)
	if *postgres == "" {
		s := temporaltest.NewServer(temporaltest.WithBaseServerOptions(temporal.WithDynamicConfigClient(dynamic)))
		address, namespace, end = s.GetFrontendHostPort(), s.GetDefaultNamespace(), s.Stop
	} else {
		address, namespace, end, err = onPostgres(ctx, *postgres, *port, dynamic)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "temporal:", err)
		os.Exit(1)
	}
	defer end()
	fmt.Println("ready", address, namespace)
	<-ctx.Done()
}
