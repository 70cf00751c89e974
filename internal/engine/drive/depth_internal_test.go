package drive

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestA_01_WhatTasksShowIsNotTooDeep: data that others cannot read is refused wherever a task shows it.
func TestA_01_WhatTasksShowIsNotTooDeep(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(m *a2av1.Message) *teamv1.Event{
		"an artifact": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: &a2av1.Artifact{Parts: m.GetParts(), Metadata: m.GetMetadata()}}}}
		},
		"a question": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Message: m}}}
		},
		"the input of a step": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{}, {Input: &teamv1.Input{Message: m}}}}}}
		},
		"the reply of a decision": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Reply: &teamv1.Input{Message: m}}}}
		},
		"what was handed over": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Input: &teamv1.Input{Message: m}}}}
		},
		"the result of a step": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Result: &teamv1.Ended_Reply{Reply: m}}}}
		},
		"progress": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: m}}}
		},
		"a reply": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Reply{Reply: &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}}}}
		},
		"a status": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Reply{Reply: &teamv1.Reply{Status: m}}}
		},
		"the input of a task of its own": func(m *a2av1.Message) *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Spawned{Spawned: &teamv1.Spawned{Input: m}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for lists, refused := range map[int]bool{48: false, 49: true} {
				data := structpb.NewStringValue("core")
				for range lists {
					data = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{data}})
				}
				for _, m := range []*a2av1.Message{
					{Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: data}}}},
					{Parts: agent.NewMessage("x").GetParts(), Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": data.GetListValue().GetValues()[0]}}},
				} {
					if err := checkDepth(of(m)); (err != nil) != refused {
						t.Errorf("%d lists: %v", lists, err)
					}
				}
			}
		})
	}
}
