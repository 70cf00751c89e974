package cardsign

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

var update = flag.Bool("update", false, "write the vectors anew")

const vectorsFile = "../../tests/interop/testdata/cards.json"

// vector is a card and its two forms.
type vector struct {
	Card      json.RawMessage `json:"card"`
	Canonical string          `json:"canonical"`
	Compact   string          `json:"compact"`
}

// TestA_10_Vectors checks the vectors with which tests/interop compares the JavaScript SDK:
// cards with every field, set at random, including empty values.
func TestA_10_Vectors(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 8785)) // the same every time
	var b bytes.Buffer
	b.WriteString("[\n")
	const count = 60
	for i := range count {
		c := &a2av1.AgentCard{}
		fill(r, c.ProtoReflect(), 0)
		c.Signatures = nil
		raw := must[[]byte](t)(protojson.Marshal(c))
		var plain bytes.Buffer
		if err := json.Compact(&plain, raw); err != nil {
			t.Fatal(err)
		}
		v := vector{plain.Bytes(), string(must[[]byte](t)(canonicalJSON(c))), string(must[[]byte](t)(compactJSON(c)))}
		line := must[[]byte](t)(json.Marshal(v))
		end := ",\n"
		if i == count-1 {
			end = "\n]\n"
		}
		b.Write(line)
		b.WriteString(end)
	}
	if *update {
		if err := os.WriteFile(vectorsFile, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Error("the canonical forms are not those of tests/interop/testdata/cards.json; if that is right, run this test with -update, and make interop")
	}
}

// fill sets some of the fields of a message.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	if s, ok := m.Interface().(*structpb.Struct); ok {
		s.Fields = map[string]*structpb.Value{}
		for range r.IntN(4) {
			s.Fields[text(r)] = something(r, 0)
		}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if r.IntN(3) == 0 || depth > 5 || fd.Name() == "signatures" {
			continue
		}
		set(r, m, fd, depth)
	}
}

func set(r *rand.Rand, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		for range r.IntN(3) {
			k := protoreflect.ValueOfString(text(r)).MapKey()
			if fd.MapValue().Kind() == protoreflect.MessageKind {
				fill(r, entries.Mutable(k).Message(), depth+1)
			} else {
				entries.Set(k, protoreflect.ValueOfString(text(r)))
			}
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		for range r.IntN(3) {
			if fd.Kind() == protoreflect.MessageKind {
				fill(r, list.AppendMutable().Message(), depth+1)
			} else {
				list.Append(protoreflect.ValueOfString(text(r)))
			}
		}
	case fd.Kind() == protoreflect.MessageKind:
		fill(r, m.Mutable(fd).Message(), depth+1)
	case fd.Kind() == protoreflect.BoolKind:
		m.Set(fd, protoreflect.ValueOfBool(r.IntN(2) == 0))
	case fd.Kind() == protoreflect.StringKind:
		m.Set(fd, protoreflect.ValueOfString(text(r)))
	default:
		panic(fmt.Sprintf("a card has a field of kind %s", fd.Kind()))
	}
}

func text(r *rand.Rand) string {
	texts := []string{"", "a", "B", "ä€\U0001F600", "\u2028</b>&", "\"\\\n\x01\x7f", "\uFB33", "9", "null"}
	return texts[r.IntN(len(texts))] + texts[r.IntN(len(texts))]
}

func something(r *rand.Rand, depth int) *structpb.Value {
	switch n := r.IntN(7); {
	case n == 0:
		return structpb.NewNullValue()
	case n == 1:
		return structpb.NewBoolValue(r.IntN(2) == 0)
	case n == 2:
		numbers := []float64{0, 1, -1, 0.1, 1e21, 1e-7, 123456789012, math.MaxFloat64, math.SmallestNonzeroFloat64, r.NormFloat64(), r.ExpFloat64() * 1e18}
		return structpb.NewNumberValue(numbers[r.IntN(len(numbers))])
	case n == 3 && depth < 3:
		list := &structpb.ListValue{}
		for range r.IntN(3) {
			list.Values = append(list.Values, something(r, depth+1))
		}
		return structpb.NewListValue(list)
	case n == 4 && depth < 3:
		s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for range r.IntN(3) {
			s.Fields[text(r)] = something(r, depth+1)
		}
		return structpb.NewStructValue(s)
	}
	return structpb.NewStringValue(text(r))
}
