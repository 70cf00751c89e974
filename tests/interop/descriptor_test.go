package interop

import (
	"os"
	"path/filepath"
	"testing"

	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// ourProto is where the protocol is defined, from the root of the repository.
const ourProto = "proto/lf/a2a/v1/a2a.proto"

// Our definition of the protocol against the one that the SDK was generated
// from: all that decides what is on the wire, in JSON and in URLs.
func TestDescriptor(t *testing.T) {
	ours := describe(t)
	want := factsOf(a2apb.File_a2av1_proto)
	if len(want) < 500 {
		t.Fatalf("only %d facts in the SDK's descriptor: not the whole protocol", len(want))
	}
	t.Logf("%d facts compared", len(want))
	if diff := cmp.Diff(want, factsOf(link(t, ours))); diff != "" {
		t.Errorf("%s is not what the SDK has (- SDK, + ours):\n%s", ourProto, diff)
	}
	for name, change := range changes() {
		t.Run("notices "+name, func(t *testing.T) {
			changed := proto.CloneOf(ours)
			change(changed.GetFile()[len(changed.GetFile())-1])
			if cmp.Equal(want, factsOf(link(t, changed))) {
				t.Error("the comparison did not notice")
			}
		})
	}
}

// describe returns our definition and what it imports as buf compiles them;
// ours is the last file.
func describe(t *testing.T) *descriptorpb.FileDescriptorSet {
	t.Helper()
	out := filepath.Join(t.TempDir(), "a2a.binpb")
	buf := buildBuf(t)
	thirdParty(t)
	run(t, buf, "build", "--path", ourProto, "--as-file-descriptor-set", "--exclude-source-info", "-o", out)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(b, set); err != nil {
		t.Fatal(err)
	}
	return set
}

// link makes a descriptor of the last file of a set.
func link(t *testing.T, set *descriptorpb.FileDescriptorSet) protoreflect.FileDescriptor {
	t.Helper()
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	file, err := files.FindFileByPath(set.GetFile()[len(set.GetFile())-1].GetName())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// changes are mistakes, one of each kind, that the comparison must see.
func changes() map[string]func(*descriptorpb.FileDescriptorProto) {
	return map[string]func(*descriptorpb.FileDescriptorProto){
		"a field's number":     func(f *descriptorpb.FileDescriptorProto) { field(f, "Task", "id").Number = proto.Int32(99) },
		"a field's name":       func(f *descriptorpb.FileDescriptorProto) { field(f, "Task", "id").Name = proto.String("ident") },
		"a field's JSON name":  func(f *descriptorpb.FileDescriptorProto) { field(f, "Task", "id").JsonName = proto.String("ID") },
		"a field's type":       func(f *descriptorpb.FileDescriptorProto) { field(f, "Part", "filename").Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum() },
		"a field's message":    func(f *descriptorpb.FileDescriptorProto) { field(f, "Task", "metadata").TypeName = proto.String(".google.protobuf.Value") },
		"a field's label":      func(f *descriptorpb.FileDescriptorProto) { field(f, "Task", "history").Label = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum() },
		"a field's presence":   unsetOptional,
		"a field out of oneof": func(f *descriptorpb.FileDescriptorProto) { field(f, "Part", "text").OneofIndex = nil },
		"a required field":     func(f *descriptorpb.FileDescriptorProto) { field(f, "Task", "id").Options = nil },
		"a missing message":    func(f *descriptorpb.FileDescriptorProto) { f.MessageType = append(f.MessageType, &descriptorpb.DescriptorProto{Name: proto.String("More")}) },
		"an enum's number":     func(f *descriptorpb.FileDescriptorProto) { f.EnumType[0].Value[1].Number = proto.Int32(77) },
		"an enum's name":       func(f *descriptorpb.FileDescriptorProto) { f.EnumType[0].Value[1].Name = proto.String("OTHER") },
		"a method's name":      func(f *descriptorpb.FileDescriptorProto) { method(f, "GetTask").Name = proto.String("ReadTask") },
		"a method's stream":    func(f *descriptorpb.FileDescriptorProto) { method(f, "SubscribeToTask").ServerStreaming = nil },
		"a method's answer":    func(f *descriptorpb.FileDescriptorProto) { method(f, "GetTask").OutputType = proto.String(".lf.a2a.v1.Message") },
		"a method's path":      changePath,
		"a method's body":      changeBody,
		"the package":          nil,
	}
}

func unsetOptional(f *descriptorpb.FileDescriptorProto) {
	fd := field(f, "SendMessageConfiguration", "history_length")
	fd.Proto3Optional, fd.OneofIndex = nil, nil
	message(f, "SendMessageConfiguration").OneofDecl = nil
}
