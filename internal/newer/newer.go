// Package newer finds records that a later version of the program has written, which this version would misread.
package newer

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Has reports whether a message, or a message inside it, has a field that this version does not know. Fields that
// earlier versions had, whose numbers are reserved, do not count.
func Has(m proto.Message) bool { return has(m.ProtoReflect()) }

func has(m protoreflect.Message) (found bool) {
	if added(m) {
		return true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = has(v.Message())
					return !found
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				found = found || has(v.List().Get(i).Message())
			}
		default:
			found = has(v.Message())
		}
		return !found
	})
	return found
}

// added reports whether a message itself has an unknown field whose number is not reserved.
func added(m protoreflect.Message) bool {
	for b := m.GetUnknown(); len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return false // decoding keeps only well-formed fields
		}
		if !m.Descriptor().ReservedRanges().Has(number) {
			return true
		}
		b = b[n:]
	}
	return false
}
