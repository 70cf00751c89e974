// Command protos writes the protos of the Agent service and of what it imports, as an author in another language needs
// them: without options that other protos define, so that they compile alone. It checks, with bin/buf in a folder of its
// own, that their descriptors are those of this project but for these options.
//
//	go run ./tools/protos api/protos
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "github.com/agentteams/team-server/gen/team/v1" // the descriptors
)

// root is the file with which authors begin.
const root = "team/v1/agent.proto"

func main() {
	if err := write(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protos:", err)
		os.Exit(1)
	}
}

// write writes the protos into a folder, in place of what it holds.
func write(ctx context.Context, folder string) error {
	alone, err := os.MkdirTemp("", "protos")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(alone) }()
	files := map[string]string{}
	if err := add(files, root); err != nil {
		return err
	}
	if err := save(alone, files); err != nil {
		return err
	}
	if err := check(ctx, alone, files); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return save(folder, files)
}

// save writes files below a folder.
func save(folder string, files map[string]string) error {
	for name, text := range files {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// imports matches the imports of a proto.
var imports = regexp.MustCompile(`(?m)^import "([^"]+)";\n`)

// add adds a proto and those of this project that it imports.
func add(files map[string]string, name string) error {
	if files[name] != "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join("proto", filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	if files[name], err = plain(string(text)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, m := range imports.FindAllStringSubmatch(files[name], -1) {
		if isKnown(m[1]) {
			continue
		}
		if err := add(files, m[1]); err != nil {
			return err
		}
	}
	return nil
}

// isKnown reports whether every compiler has a proto.
func isKnown(name string) bool { return strings.HasPrefix(name, "google/protobuf/") }

// defined matches where an option begins that another proto defines, alone or as the first of a list.
var defined = regexp.MustCompile(`(?m)^ *option \(|\s*\[\s*\(`)

// emptied matches the body of a method that has no options any more.
var emptied = regexp.MustCompile(`(rpc .*) \{\s*\}`)

// plain returns a proto without imports from elsewhere and without the options that these define.
func plain(text string) (string, error) {
	text = imports.ReplaceAllStringFunc(text, func(line string) string {
		if name := imports.FindStringSubmatch(line)[1]; !isKnown(name) && !strings.HasPrefix(name, "team/") && !strings.HasPrefix(name, "lf/") {
			return ""
		}
		return line
	})
	for {
		at := defined.FindStringIndex(text)
		if at == nil {
			return emptied.ReplaceAllString(text, "$1;"), nil
		}
		list := strings.Contains(text[at[0]:at[1]], "[")
		n, err := length(text[at[0]:], list)
		if err != nil {
			return "", err
		}
		rest := text[at[0]+n:]
		if !list {
			rest = strings.TrimPrefix(rest, "\n")
		}
		text = text[:at[0]] + rest
	}
}

// length returns the length of an option, up to its semicolon, or of a list of options, up to its bracket.
func length(text string, list bool) (int, error) {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
			if list && depth == 0 {
				return i + 1, nil
			}
		case c == ';' && depth == 0 && !list:
			return i + 1, nil
		}
	}
	return 0, errors.New("an option does not end")
}

// check compiles the files below a folder and compares their descriptors with those of this project.
func check(ctx context.Context, folder string, files map[string]string) error {
	buf, err := filepath.Abs(filepath.Join("bin", "buf"))
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, buf, "build", "--exclude-source-info", "-o", "-#format=binpb")
	c.Dir = folder
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("compiling: %w\n%s", err, said.Bytes())
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(out, set); err != nil {
		return err
	}
	compiled := map[string]*descriptorpb.FileDescriptorProto{}
	for _, f := range set.GetFile() {
		compiled[f.GetName()] = f
	}
	for name := range files {
		ours, err := protoregistry.GlobalFiles.FindFileByPath(name)
		if err != nil {
			return err
		}
		want, got := bare(protodesc.ToFileDescriptorProto(ours), files), bare(compiled[name], files)
		if !proto.Equal(want, got) {
			return fmt.Errorf("%s: the descriptor is not that of this project:\n%v\nwant\n%v", name, got, want)
		}
	}
	return nil
}

// bare returns a descriptor without the options that other protos define, and without the imports of these.
func bare(f *descriptorpb.FileDescriptorProto, files map[string]string) *descriptorpb.FileDescriptorProto {
	f = proto.CloneOf(f)
	var kept []string
	for _, name := range f.GetDependency() {
		if isKnown(name) || files[name] != "" {
			kept = append(kept, name)
		}
	}
	f.Dependency, f.SourceCodeInfo = kept, nil
	clearExtensions(f.ProtoReflect())
	f.ProtoReflect().SetUnknown(nil)
	return f
}

// clearExtensions removes the extensions of a message and of all messages in it, and the options that are empty then.
func clearExtensions(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsExtension():
			m.Clear(field)
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range v.List().Len() {
				clearExtensions(v.List().Get(i).Message())
			}
		default:
			clearExtensions(v.Message())
			if field.Name() == "options" && proto.Size(v.Message().Interface()) == 0 {
				m.Clear(field)
			}
		}
		return true
	})
}
