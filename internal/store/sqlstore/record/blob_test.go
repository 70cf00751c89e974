package record

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// eventWith returns an event with these files, in a message and in an artifact.
func eventWith(files ...[]byte) *teamv1.Event {
	m := &a2av1.Message{MessageId: "m", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStringValue("b")}}}
	for _, f := range files {
		m.Parts = append(m.Parts, &a2av1.Part{Content: &a2av1.Part_Raw{Raw: f}, Filename: "f"}, &a2av1.Part{Content: &a2av1.Part_Text{Text: "beside it"}})
	}
	return &teamv1.Event{Seq: 3, Kind: &teamv1.Event_Received{Received: &teamv1.Received{Message: m}}}
}

// checkSplit splits an event and joins it again, and returns how many blobs it had.
func checkSplit(t *testing.T, ev *teamv1.Event) int {
	t.Helper()
	body, err := proto.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	record, extracted := Split(ev, body, nil)
	known := blobs{}
	for _, b := range extracted {
		known[string(b.Hash)] = b.Value
	}
	_, missing, err := join(record, nil)
	if err != nil || len(missing) < len(extracted) || len(extracted) == 0 && !bytes.Equal(record, body) {
		t.Fatalf("%d blobs, of which %d are missing: %v", len(extracted), len(missing), err)
	}
	if got, missing, err := join(record, known); err != nil || len(missing) > 0 || !bytes.Equal(got, body) {
		t.Fatalf("joined to %d of %d bytes, %d blobs missing: %v", len(got), len(body), len(missing), err)
	}
	return len(extracted)
}

func TestA_16_Split(t *testing.T) {
	large, other := bytes.Repeat([]byte("ab"), minBlobSize), bytes.Repeat([]byte{0, 1, 2}, minBlobSize)
	inside := large[:minBlobSize]
	for name, c := range map[string]struct {
		files [][]byte
		want  int
	}{
		"no file":                     {nil, 0},
		"small files":                 {[][]byte{large[:minBlobSize-1], []byte("x")}, 0},
		"one":                         {[][]byte{large}, 1},
		"the same twice":              {[][]byte{large, other, large}, 2},
		"one that another one begins": {[][]byte{inside, large}, 2},
		"zeros":                       {[][]byte{make([]byte, minBlobSize), make([]byte, 2*minBlobSize)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if n := checkSplit(t, eventWith(c.files...)); n != c.want {
				t.Errorf("%d blobs, want %d", n, c.want)
			}
		})
	}
}

func TestA_16_SplitSizes(t *testing.T) {
	file := bytes.Repeat([]byte("x"), 1<<20)
	ev := eventWith(file, file, file)
	body, err := proto.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	if record, extracted := Split(ev, body, nil); len(record) > 300 || len(extracted) != 1 {
		t.Errorf("an event with the same file three times is %d bytes and %d blobs", len(record), len(extracted))
	}
}

// A large text of a run is stored once, as what an agent said, as the result of its step, and as the artifact.
func TestA_16_SplitTexts(t *testing.T) {
	text := strings.Repeat("ü", minBlobSize)
	parts := []*a2av1.Part{{Content: &a2av1.Part_Text{Text: text}}}
	for name, ev := range map[string]*teamv1.Event{
		"result":   {Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Result: &teamv1.Ended_Reply{Reply: &a2av1.Message{Parts: parts}}}}},
		"artifact": {Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: &a2av1.Artifact{Parts: parts}}}},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := proto.Marshal(ev)
			if err != nil {
				t.Fatal(err)
			}
			if _, extracted := Split(ev, body, nil); len(extracted) != 1 || string(extracted[0].Value) != text {
				t.Errorf("%d blobs, want the text", len(extracted))
			}
			checkSplit(t, ev)
		})
	}
	result := &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Result: &teamv1.Ended_Reply{Reply: &a2av1.Message{Parts: parts}}}}}
	body, err := proto.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if record, extracted := Split(result, body, func([]byte) bool { return false }); !bytes.Equal(record, body) || len(extracted) > 0 {
		t.Errorf("%d blobs were split off that may not be", len(extracted))
	}
	delta, err := Encode("r", &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{Text: text}}})
	if err != nil || len(delta.Blobs) > 0 {
		t.Errorf("streamed text, which is deleted before its run, has %d blobs, %v", len(delta.Blobs), err)
	}
}

// FuzzP17_Split splits events with files of any content.
func FuzzP17_Split(f *testing.F) {
	f.Add([]byte("ab"), uint32(minBlobSize), []byte{0}, uint32(3*minBlobSize))
	f.Fuzz(func(t *testing.T, a []byte, an uint32, b []byte, bn uint32) {
		grown := func(seed []byte, n uint32) []byte {
			if len(seed) == 0 {
				return nil
			}
			return bytes.Repeat(seed, 1+int(n%(4*minBlobSize))/len(seed))
		}
		x, y := grown(a, an), grown(b, bn)
		checkSplit(t, eventWith(x, y, x))
	})
}

// FuzzP17_Join joins records of any content: it returns an error, or a message.
func FuzzP17_Join(f *testing.F) {
	ev := eventWith(bytes.Repeat([]byte("ab"), minBlobSize))
	body, _ := proto.Marshal(ev)
	record, extracted := Split(ev, body, nil)
	f.Add(record)
	f.Add(binary.AppendUvarint([]byte{splitRecord}, 1<<63))
	known := blobs{string(extracted[0].Hash): extracted[0].Value}
	f.Fuzz(func(t *testing.T, record []byte) {
		got, missing, err := join(record, known)
		if err == nil && len(missing) == 0 && len(got) > len(record)*(2+2*minBlobSize) {
			t.Errorf("%d bytes of a record of %d", len(got), len(record))
		}
	})
}
