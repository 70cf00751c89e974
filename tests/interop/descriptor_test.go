package interop

import (
	"os"
	"path/filepath"
	"testing"

	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
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
	if len(want) < 400 {
		t.Fatalf("only %d facts in the SDK's descriptor: not the whole protocol", len(want))
	}
	t.Logf("%d facts compared", len(want))
	if diff := cmp.Diff(want, factsOf(link(t, ours))); diff != "" {
		t.Errorf("%s is not what the SDK has (- SDK, + ours):\n%s", ourProto, diff)
	}
	for name, change := range mistakes() {
		t.Run("notices "+name, func(t *testing.T) {
			changed := proto.CloneOf(ours)
			change(definition{last(changed)})
			if cmp.Equal(want, factsOf(link(t, changed))) {
				t.Error("the comparison did not notice")
			}
		})
	}
}

// describe returns our definition and what it imports, as buf compiles them;
// ours is the last file.
func describe(t *testing.T) *descriptorpb.FileDescriptorSet {
	t.Helper()
	out := filepath.Join(t.TempDir(), "a2a.binpb")
	buf := buildBuf(t)
	fetchImports(t)
	if log, err := inRepository(t, buf, "build", "--path", ourProto, "--as-file-descriptor-set", "--exclude-source-info", "-o", out); err != nil {
		t.Fatalf("buf build: %v\n%s", err, log)
	}
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

// last returns the last file of a set: the one that the others are there for.
func last(set *descriptorpb.FileDescriptorSet) *descriptorpb.FileDescriptorProto {
	return set.GetFile()[len(set.GetFile())-1]
}

// link makes a descriptor of the last file of a set.
func link(t *testing.T, set *descriptorpb.FileDescriptorSet) protoreflect.FileDescriptor {
	t.Helper()
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	file, err := files.FindFileByPath(last(set).GetName())
	if err != nil {
		t.Fatal(err)
	}
	return file
}
