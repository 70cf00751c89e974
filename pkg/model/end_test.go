package model_test

import (
	"errors"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/model"
)

// TestEndOf: every provider's reason for a turn that was cut, in any case, is told from that of a
// complete one.
func TestEndOf(t *testing.T) {
	for want, reasons := range map[teamv1.TurnEnd]string{
		teamv1.TurnEnd_TURN_END_COMPLETE:  "stop tool_calls function_call end_turn tool_use stop_sequence STOP COMPLETE eos_token",
		teamv1.TurnEnd_TURN_END_TRUNCATED: "length max_tokens model_context_window_exceeded MAX_TOKENS model_length",
		teamv1.TurnEnd_TURN_END_FILTERED: "content_filter refusal SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT " +
			"IMAGE_RECITATION sensitive guardrail_intervened content_filtered",
		teamv1.TurnEnd_TURN_END_UNSPECIFIED: "pause_turn something_new FINISH_REASON_UNSPECIFIED",
	} {
		for reason := range strings.FieldsSeq(reasons) {
			if got := model.EndOf(reason); got != want || model.BrokenEnd(reason) != nil {
				t.Errorf("%s is %v, broken: %v, want %v", reason, got, model.BrokenEnd(reason), want)
			}
		}
	}
	for reason := range strings.FieldsSeq("error MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL OTHER MALFORMED_RESPONSE insufficient_system_resource abort") {
		var broken *model.BrokenError
		if err := model.BrokenEnd(reason); !errors.As(err, &broken) || broken.Reason != reason || model.EndOf(reason) != 0 {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
