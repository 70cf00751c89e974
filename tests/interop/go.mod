module github.com/agentteams/team-server/tests/interop

go 1.26.0

require (
	github.com/a2aproject/a2a-go/v2 v2.4.0
	github.com/agentteams/team-server/tests/interoprig v0.0.0
	github.com/google/go-cmp v0.7.0
	google.golang.org/genproto/googleapis/api v0.0.0-20260928230214-8a89bd6388cc
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/a2aproject/a2a-go v0.3.15 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260921155816-b14227669459 // indirect
)

replace github.com/agentteams/team-server/tests/interoprig => ../interoprig

tool github.com/a2aproject/a2a-go/v2/cmd/a2a
