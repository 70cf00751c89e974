package project

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// parsed is the Struct that the JSON form of a message is parsed to.
func parsed(t *testing.T, r *teamv1.TeamRun) *structpb.Struct {
	t.Helper()
	b, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	s := &structpb.Struct{}
	if err := protojson.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// fill sets every field of a message and of those below it, so many levels deep.
func fill(m protoreflect.Message, levels int) {
	if v, ok := m.Interface().(*structpb.Value); ok {
		v.Kind = &structpb.Value_StringValue{StringValue: "value"}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Message() != nil && !fd.IsMap() && levels == 0 {
			continue
		}
		switch {
		case fd.IsMap():
			entries := m.Mutable(fd).Map()
			value := entries.NewValue()
			if fd.MapValue().Message() != nil {
				fill(value.Message(), levels-1)
			}
			entries.Set(protoreflect.ValueOfString("key").MapKey(), value)
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range 2 {
				if fd.Message() != nil {
					fill(list.AppendMutable().Message(), levels-1)
				} else {
					list.Append(scalar(fd))
				}
			}
		case fd.Message() != nil:
			fill(m.Mutable(fd).Message(), levels-1)
		default:
			m.Set(fd, scalar(fd))
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text \u00fc")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff, 0xfe, 1})
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(3)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1 << 33)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.25)
	default:
		panic("no value of kind " + fd.Kind().String())
	}
}

func TestMetadata_IsTheJSONForm(t *testing.T) {
	all := &teamv1.TeamRun{}
	fill(all.ProtoReflect(), 3)
	zeros := &teamv1.TeamRun{Limits: &teamv1.Limits{MaxSteps: new(int32), MaxCost: new(float64)}, Receipt: &teamv1.Receipt{Entries: []*teamv1.Receipt_Entry{{}}}}
	odd := &teamv1.TeamRun{
		Limits:      &teamv1.Limits{MaxCost: new(math.Inf(1))},
		Envelope:    &teamv1.Limits{MaxCost: new(math.NaN())},
		Delegations: []*teamv1.Delegation{{Outcome: 99}},
	}
	for name, r := range map[string]*teamv1.TeamRun{"all fields": all, "explicit zeros": zeros, "odd values": odd, "nothing": {}} {
		t.Run(name, func(t *testing.T) {
			got := Metadata(r).GetFields()[TeamRunURI].GetStructValue()
			if diff := cmp.Diff(parsed(t, r), got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("empty objects are left out", func(t *testing.T) {
		r := &teamv1.TeamRun{
			Seq: 7, Spent: &teamv1.Spent{}, Limits: &teamv1.Limits{}, Decision: &teamv1.Decided{Reply: &teamv1.Input{}},
			Delegations: []*teamv1.Delegation{{Id: "d", Spent: &teamv1.Spent{}}},
		}
		want := parsed(t, &teamv1.TeamRun{Seq: 7, Delegations: []*teamv1.Delegation{{Id: "d"}}})
		if diff := cmp.Diff(want, Metadata(r).GetFields()[TeamRunURI].GetStructValue(), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a text that is not UTF-8 has none", func(t *testing.T) {
		if s := Metadata(&teamv1.TeamRun{Warnings: []string{"\xff"}}); s != nil {
			t.Error(s)
		}
	})
}
