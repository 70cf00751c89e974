// Package nesting bounds how deep data of messages may nest, so that clients of other
// languages can read it.
package nesting

import "google.golang.org/protobuf/types/known/structpb"

// maxLevels is how deep data may nest, in protobuf messages. A list counts as two: a
// value and its list. An object counts as three, because the entry of its map is a
// message too. So the limit is 48 lists or 32 objects. Readers in Python, Java and C++
// reject more than 100 levels, and up to 4 are above the data of a listed task.
const maxLevels = 96

// Text describes what is wrong with data that TooDeep reports.
const Text = "is nested deeper than 48 lists or 32 objects; clients of other languages cannot read it"

// TooDeep reports whether a value nests deeper than maxLevels.
func TooDeep(v *structpb.Value) bool { return deeper(v, maxLevels) }

// deeper reports whether a value has more levels than left.
func deeper(v *structpb.Value, left int) bool {
	switch k := v.GetKind().(type) {
	case *structpb.Value_ListValue:
		if left < 2 {
			return true
		}
		for _, e := range k.ListValue.GetValues() {
			if deeper(e, left-2) {
				return true
			}
		}
	case *structpb.Value_StructValue:
		return left < 1 || deeperStruct(k.StructValue, left-1)
	}
	return false
}

// TooDeepStruct is TooDeep for metadata.
func TooDeepStruct(s *structpb.Struct) bool { return deeperStruct(s, maxLevels) }

func deeperStruct(s *structpb.Struct, left int) bool {
	for _, v := range s.GetFields() {
		if left < 2 || deeper(v, left-2) {
			return true
		}
	}
	return false
}
