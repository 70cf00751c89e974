package interop

import (
	"slices"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// definition is a file to be spoiled.
type definition struct {
	*descriptorpb.FileDescriptorProto
}

func (d definition) message(name string) *descriptorpb.DescriptorProto {
	i := slices.IndexFunc(d.MessageType, func(m *descriptorpb.DescriptorProto) bool { return m.GetName() == name })
	return d.MessageType[i]
}

func (d definition) field(message, name string) *descriptorpb.FieldDescriptorProto {
	fields := d.message(message).Field
	i := slices.IndexFunc(fields, func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetName() == name })
	return fields[i]
}

func (d definition) method(name string) *descriptorpb.MethodDescriptorProto {
	methods := d.Service[0].Method
	i := slices.IndexFunc(methods, func(m *descriptorpb.MethodDescriptorProto) bool { return m.GetName() == name })
	return methods[i]
}

func (d definition) http(method string) *annotations.HttpRule {
	rule, _ := proto.GetExtension(d.method(method).GetOptions(), annotations.E_Http).(*annotations.HttpRule)
	return rule
}

// unset drops the word optional.
func (d definition) unset(message, name string) {
	f := d.field(message, name)
	d.message(message).OneofDecl = slices.Delete(d.message(message).OneofDecl, int(f.GetOneofIndex()), int(f.GetOneofIndex())+1)
	f.Proto3Optional, f.OneofIndex = nil, nil
}

// mistakes are one of each kind that the comparison must see.
func mistakes() map[string]func(definition) {
	repeated := descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	return map[string]func(definition){
		"a field's number":     func(d definition) { d.field("Task", "id").Number = proto.Int32(99) },
		"a field's name":       func(d definition) { d.field("Task", "id").Name = proto.String("ident") },
		"a field's JSON name":  func(d definition) { d.field("Task", "id").JsonName = proto.String("ID") },
		"a field's type":       func(d definition) { d.field("Task", "id").Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum() },
		"a field's message":    func(d definition) { d.field("Task", "metadata").TypeName = proto.String(".google.protobuf.Value") },
		"a field's label":      func(d definition) { d.field("Task", "id").Label = &repeated },
		"a field not optional": func(d definition) { d.unset("SendMessageConfiguration", "history_length") },
		"a field out of oneof": func(d definition) { d.field("Part", "text").OneofIndex = nil },
		"a field not required": func(d definition) { d.field("Task", "id").Options = nil },
		"a missing field":      func(d definition) { d.message("Task").Field = d.message("Task").Field[:5] },
		"a oneof's name":       func(d definition) { d.message("Part").OneofDecl[0].Name = proto.String("value") },
		"a new message": func(d definition) {
			d.MessageType = append(d.MessageType, &descriptorpb.DescriptorProto{Name: proto.String("More")})
		},
		"an enum value's name":   func(d definition) { d.EnumType[0].Value[1].Name = proto.String("OTHER") },
		"an enum value's number": func(d definition) { d.EnumType[0].Value[1].Number = proto.Int32(77) },
		"a method's name":        func(d definition) { d.method("GetTask").Name = proto.String("ReadTask") },
		"a method's request":     func(d definition) { d.method("GetTask").InputType = proto.String(".lf.a2a.v1.Message") },
		"a method's response":    func(d definition) { d.method("GetTask").OutputType = proto.String(".lf.a2a.v1.Message") },
		"a method's stream":      func(d definition) { d.method("SubscribeToTask").ServerStreaming = nil },
		"a method's path":        func(d definition) { d.http("GetTask").Pattern = &annotations.HttpRule_Get{Get: "/task/{id=*}"} },
		"a method's verb":        func(d definition) { d.http("ListTasks").Pattern = &annotations.HttpRule_Post{Post: "/tasks"} },
		"a method's body":        func(d definition) { d.http("SendMessage").Body = "message" },
		"a missing tenant path":  func(d definition) { d.http("GetTask").AdditionalBindings = nil },
	}
}
