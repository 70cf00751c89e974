package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentteams/team-server/pkg/agent"
)

// UnmarshalAnswer reads ProtoJSON in the answer of another server, as Unmarshal reads a
// request, and reads a time without a zone as UTC. AnswerFault returns the text of its
// error.
func UnmarshalAnswer(b []byte, m proto.Message) error {
	err := Unmarshal(b, m)
	if err == nil || ScanJSON(b) != nil { // too much to read it a second time
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil || !addZones(v, m.ProtoReflect().Descriptor()) {
		return err
	}
	zoned, failed := json.Marshal(v)
	if failed != nil {
		return err
	}
	return Unmarshal(zoned, m)
}

// AnswerFault describes what is wrong with an answer; err is the error of reading it.
func AnswerFault(err error) string {
	var e *agent.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	if of, ok := strings.CutPrefix(e.Message, "the request "); ok {
		return "the answer " + of
	}
	return "the answer cannot be read: " + e.Message
}

// addZones adds UTC to the times of a message that name no zone, and reports whether it
// found any. v is the message as JSON.
func addZones(v any, d protoreflect.MessageDescriptor) (added bool) {
	object, ok := v.(map[string]any)
	if !ok || d.ParentFile().Package() == "google.protobuf" {
		return false
	}
	for name, v := range object {
		fd := fieldOf(d, name)
		if fd == nil || fd.Message() == nil {
			continue
		}
		if text, ok := v.(string); ok && fd.Message().FullName() == "google.protobuf.Timestamp" {
			if t, ok := inUTC(text); ok {
				object[name], added = t, true
			}
			continue
		}
		for _, v := range elements(v, fd) {
			added = addZones(v, elementOf(fd)) || added
		}
	}
	return added
}

// elements returns the messages that a field holds.
func elements(v any, fd protoreflect.FieldDescriptor) []any {
	switch v := v.(type) {
	case []any:
		return v
	case map[string]any:
		if fd.IsMap() {
			return slices.Collect(maps.Values(v))
		}
	}
	return []any{v}
}

// elementOf returns the type of the messages that a field holds.
func elementOf(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if !fd.IsMap() {
		return fd.Message()
	}
	if d := fd.MapValue().Message(); d != nil {
		return d
	}
	return fd.Message() // of a map to plain values, which have no times
}

// inUTC adds UTC to a time that names no zone; ok reports whether text is such a time.
func inUTC(text string) (_ string, ok bool) {
	text = strings.Replace(text, " ", "T", 1)
	if _, err := time.Parse("2006-01-02T15:04:05", text); err != nil { // accepts fractions of a second too
		return "", false
	}
	return text + "Z", true
}
