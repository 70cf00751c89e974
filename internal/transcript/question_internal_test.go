package transcript

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

func TestQuestion(t *testing.T) {
	for parts, want := range map[string]string{
		`[{"text":"Which city?"}]`:                               "Which city?",
		`[{"text":"Really?"},{"data":{"options":["yes","no"]}}]`: "Really? [yes, no]",
		`[{"text":"Pay?"},{"data":{"interruptId":"i1"}},{"data":{"options":["yes"]}},{"text":"Say so."}]`: "Pay?\nSay so. {\"interruptId\":\"i1\"} [yes]",
	} {
		m := &a2av1.Message{}
		if err := protojson.Unmarshal([]byte(`{"parts":`+parts+`}`), m); err != nil {
			t.Fatal(err)
		}
		if got := Question(m); got != want {
			t.Errorf("%s: %q, want %q", parts, got, want)
		}
	}
}
