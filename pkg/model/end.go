package model

import (
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// BrokenError is the error for a response that ended with a reason which is neither the model's own
// end nor a limit, so that another attempt may succeed.
type BrokenError struct {
	// Reason is the provider's word; "" if there is none.
	Reason string
}

func (e *BrokenError) Error() string {
	return "the endpoint ended the response with an error" + e.words()
}

// words returns the reason in parentheses, after a space.
func (e *BrokenError) words() string {
	if e.Reason == "" {
		return ""
	}
	return " (" + e.Reason + ")"
}

// EndOf returns what the reason means that a provider gives for the end of a turn. The case of letters
// does not matter, and every provider may use the words of the others, because gateways pass them on. An
// unknown reason is TURN_END_UNSPECIFIED.
func EndOf(reason string) teamv1.TurnEnd { return ends[strings.ToLower(reason)] }

// BrokenEnd returns a *BrokenError if a reason means that the turn cannot be used, and nil otherwise.
func BrokenEnd(reason string) error {
	if broken[strings.ToLower(reason)] {
		return &BrokenError{Reason: reason}
	}
	return nil
}

// ends are the reasons of providers in lower case: finish_reason of chat completions, stop_reason of
// Anthropic, finishReason and blockReason of Gemini.
var ends = map[string]teamv1.TurnEnd{
	// OpenAI, https://platform.openai.com/docs/api-reference/chat/object
	"stop": complete, "tool_calls": complete, "function_call": complete, "length": truncated, "content_filter": filtered,
	// Anthropic, https://docs.anthropic.com/en/api/handling-stop-reasons
	"end_turn": complete, "stop_sequence": complete, "tool_use": complete,
	"max_tokens": truncated, "model_context_window_exceeded": truncated, "refusal": filtered,
	// Gemini, FinishReason and BlockReason in https://ai.google.dev/api/generate-content; STOP and
	// MAX_TOKENS are above
	"safety": filtered, "recitation": filtered, "language": filtered, "blocklist": filtered, "prohibited_content": filtered, "spii": filtered,
	"image_safety": filtered, "image_prohibited_content": filtered, "image_recitation": filtered, "model_armor": filtered, "jailbreak": filtered,
	// Mistral, https://docs.mistral.ai/api
	"model_length": truncated,
	// Zhipu, https://docs.z.ai/api-reference/llm/chat-completion
	"sensitive": filtered,
	// Hugging Face TGI, https://huggingface.co/docs/text-generation-inference/reference/api_reference
	"eos_token": complete,
	// Together, https://docs.together.ai/reference/chat-completions-1
	"eos": complete,
	// Cohere, https://docs.cohere.com/reference/chat; MAX_TOKENS is above
	"complete": complete, "tool_call": complete, "error_limit": truncated, "error_toxic": filtered,
	// Bedrock, https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
	"guardrail_intervened": filtered, "content_filtered": filtered,
}

// broken are the reasons after which a turn cannot be used, in lower case.
var broken = map[string]bool{
	// of gateways such as OpenRouter, and of Mistral
	"error": true,
	// Gemini
	"malformed_function_call": true, "unexpected_tool_call": true, "too_many_tool_calls": true, "missing_thought_signature": true,
	"malformed_response": true, "continuation": true, "other": true, "image_other": true, "no_image": true,
	// DeepSeek, https://api-docs.deepseek.com/api/create-chat-completion
	"insufficient_system_resource": true,
	// Zhipu
	"network_error": true,
	// vLLM: the request was aborted
	"abort": true,
	// Bedrock
	"malformed_model_output": true, "malformed_tool_use": true,
}

const (
	complete  = teamv1.TurnEnd_TURN_END_COMPLETE
	truncated = teamv1.TurnEnd_TURN_END_TRUNCATED
	filtered  = teamv1.TurnEnd_TURN_END_FILTERED
)
