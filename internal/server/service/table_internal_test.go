package service

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/call"
)

// TestLocalCallsShareFields: a request and an answer reach the other side of the local connection as they are, with fields
// of a later version.
func TestLocalCallsShareFields(t *testing.T) {
	from := &a2av1.SendMessageRequest{
		Tenant: "news", Message: &a2av1.Message{MessageId: "m", Parts: []*a2av1.Part{{Content: &a2av1.Part_Text{Text: "x"}}}},
		Configuration: &a2av1.SendMessageConfiguration{AcceptedOutputModes: []string{"text/plain"}, HistoryLength: proto.Int32(0)},
	}
	from.ProtoReflect().SetUnknown(protoreflect.RawFields{0xfa, 0x3f, 0x01, 'y'})
	to := &a2av1.SendMessageRequest{}
	if err := Share(to, from); err != nil || !proto.Equal(to, from) {
		t.Errorf("got %v, %v", to, err)
	}
	if err := Share(to, "x"); err == nil {
		t.Error("a text is shared")
	}
}

// TestServicesAreATable: each service of the definitions is a row of the table, and its methods have permissions.
func TestServicesAreATable(t *testing.T) {
	every := Config{
		Handler: struct{ Handler }{}, Teams: struct{ Teams }{}, Monitor: struct{ Monitor }{}, Collaborations: struct{ Collaborations }{},
		Halts: struct{ teamv1.HaltServiceServer }{}, Board: struct{ teamv1.BoardServiceServer }{}, Keys: struct{ teamv1.KeyServiceServer }{},
		Accounts: struct{ teamv1.AccountServiceServer }{}, Audits: struct{ teamv1.AuditServiceServer }{},
	}
	served := map[string]bool{}
	for _, of := range servicesOf(&every, nil) {
		served[of.Desc.ServiceName] = true
		for _, m := range of.Desc.Methods {
			if _, listed := call.MethodPermissions()[m.MethodName]; !listed {
				t.Errorf("%s has no permissions", m.MethodName)
			}
		}
	}
	for _, f := range []protoreflect.FileDescriptor{
		a2av1.File_lf_a2a_v1_a2a_proto, teamv1.File_team_v1_agent_proto, teamv1.File_team_v1_team_proto, teamv1.File_team_v1_registry_proto,
		teamv1.File_team_v1_monitor_proto, teamv1.File_team_v1_collaboration_proto, teamv1.File_team_v1_halt_proto, teamv1.File_team_v1_board_proto,
		teamv1.File_team_v1_account_proto, teamv1.File_team_v1_audit_proto, teamv1.File_team_v1_key_proto,
	} {
		for i := range f.Services().Len() {
			if name := string(f.Services().Get(i).FullName()); !served[name] {
				t.Errorf("%s is not served", name)
			}
		}
	}
	if few := servicesOf(&Config{Handler: struct{ Handler }{}}, nil); len(few) != 2 {
		t.Errorf("without implementations %d services are served, want 2", len(few))
	}
}
