package leader

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

func TestDataOfTheModelsOwnStaysAsItIs(t *testing.T) {
	m := &a2av1.Message{Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: structpb.NewBoolValue(true)}}}}
	if withData(m, structpb.NewBoolValue(true)) != m {
		t.Error("it has the data twice")
	}
}
