package wire

import (
	"bytes"
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limits for decoded messages. Check enforces maxDepth and maxValues exactly. ScanJSON and
// UnmarshalProto have higher limits, with room for an envelope: they only prevent that a small
// input becomes a large object.
const (
	// MaxBody is the maximum size of a request, in bytes.
	MaxBody = 4 << 20
	// maxDepth is the maximum depth of nesting of a message as JSON.
	maxDepth = 64
	// maxValues is the maximum number of google.protobuf.Value in a message.
	maxValues = 20_000

	scanDepth     = maxDepth + 2
	scanNodes     = 5 * maxValues
	scanWireDepth = 3*maxDepth + 16 // a level of JSON is up to three of protobuf: value, struct, entry
)

var (
	errDeep  = errors.New("is nested deeper than 64 levels")
	errWide  = errors.New("contains too many values")
	errBytes = errors.New("is malformed")
)

// ScanJSON checks the depth of nesting and the number of values of a JSON text, without
// building anything in memory. It does not check the syntax.
func ScanJSON(b []byte) error {
	_, err := scanJSON(b)
	return err
}

// scanJSON is like ScanJSON. If the text is a valid JSON object, it also returns the number of its members,
// in which repeated keys count each time.
func scanJSON(b []byte) (members int, err error) {
	depth, nodes := 0, 1
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = endOfString(b, i)
		case '{', '[':
			depth++
			nodes++
		case '}', ']':
			depth--
		case ',':
			nodes++
		case ':':
			if depth == 1 {
				members++
			}
		}
		if depth > scanDepth {
			return 0, errDeep
		}
		if nodes > scanNodes {
			return 0, errWide
		}
	}
	return members, nil
}

// maxMembers is how many members an object may have that is read by members: an envelope has a few.
const maxMembers = 100

// members returns the members of a JSON object, of repeated ones the last. They are parts of b, and not checked.
func members(b []byte) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	depth, key, value := 0, "", -1 // where a value begins
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			end := endOfString(b, i)
			if depth == 1 && value < 0 && json.Unmarshal(b[i:min(end+1, len(b))], &key) != nil {
				return nil, errBytes
			}
			i = end
		case ':':
			if depth == 1 && value < 0 {
				value = i + 1
			}
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 1 && value >= 0 {
				all[key], value = bytes.TrimSpace(b[value:i]), -1
			}
			if len(all) > maxMembers {
				return nil, errWide
			}
			if c != ',' {
				depth--
			}
		}
	}
	if b = bytes.TrimSpace(b); depth != 0 || len(b) == 0 || b[0] != '{' || b[len(b)-1] != '}' {
		return nil, errBytes
	}
	return all, nil
}

// endOfString returns the index of the quote that ends the string that begins
// at i, or the length of b.
func endOfString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(b)
}

// UnmarshalProto decodes a message in protobuf's binary encoding into m, after checking the same
// limits as ScanJSON. The error is INVALID_REQUEST.
func UnmarshalProto(b []byte, m proto.Message) error {
	nodes := 0
	err := scanProto(b, m.ProtoReflect().Descriptor(), 0, &nodes)
	if err == nil && proto.Unmarshal(b, m) != nil {
		err = errBytes
	}
	if err != nil {
		return Invalid("", err.Error())
	}
	return nil
}

func scanProto(b []byte, d protoreflect.MessageDescriptor, depth int, nodes *int) error {
	if depth > scanWireDepth {
		return errDeep
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errBytes
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return errBytes
		}
		if *nodes++; *nodes > scanNodes {
			return errWide
		}
		fd := d.Fields().ByNumber(num)
		if fd != nil && fd.Message() != nil && typ == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b)
			if err := scanProto(inner, fd.Message(), depth+1, nodes); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}
