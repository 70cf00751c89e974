package model

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTableOfFailures compares the table in docs/models.md with what the code does.
func TestTableOfFailures(t *testing.T) {
	doc, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## When a model fails\n")
	section, _, _ = strings.Cut(section, "\n## ")
	word := map[bool]string{true: "yes", false: "no"}
	var want, got []string
	for _, f := range []failure{busy, failing, lost, silent, empty, broke, keyless, barred, unknown, tooLong, noStream, tooLarge, declined} {
		want = append(want, f.name+" "+word[f.retry]+" "+word[f.other])
	}
	for line := range strings.Lines(section) {
		if c := strings.Split(line, "|"); len(c) == 7 && !strings.HasPrefix(line, "|-") && strings.TrimSpace(c[1]) != "Failure" {
			got = append(got, strings.TrimSpace(c[1])+" "+strings.TrimSpace(c[3])+" "+strings.TrimSpace(c[4]))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table in docs/models.md (-code +docs):\n%s", diff)
	}
}

// TestKindsOfFailures: what endpoints say about the same failure, each in its own way.
func TestKindsOfFailures(t *testing.T) {
	for want, bodies := range map[string][]string{
		"context": {
			`400 {"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.","code":"context_length_exceeded"}}`,
			`400 {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 200001 tokens > 200000 maximum"}}`,
			"400 {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000\"}}",
			`400 {"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`,
			`400 {"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size","type":"exceed_context_size_error"}}`,
			`400 {"error":{"message":"Requested tokens (300) exceed context window of 256","type":"invalid_request_error"}}`,
			`400 {"detail":"Prompt is too long: 2000 tokens, this model has 256"}`,
			`400 {"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}`,
			`400 {"error":"This model's maximum prompt length is 131072 but the request contains 200000 tokens."}`,
			`400 {"error":{"message":"Invalid request: Your request exceeded model token limit: 8192","type":"invalid_request_error"}}`,
			`400 {"error":{"code":"1261","message":"Prompt exceeds max length"}}`,
			`400 {"error":{"message":"Range of input length should be [1, 30720]","code":"invalid_parameter_error"}}`,
			`413 {"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`,
			"422 {\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000\"}",
			`400 {"message":"Input is too long for requested model."}`,
			`400 {"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081"}`,
		},
		"quota": {
			`429 {"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`,
			`402 {"error":{"message":"Insufficient Balance"}}`, `402 `,
			`400 {"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}`,
			`429 {"error":{"message":"Your account is not active","type":"billing_not_active"}}`,
			`0 {"type":"error","error":{"type":"billing_error","message":"Pay."}}`,
			`0 {"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`,
		},
		"key": {
			`401 {"error":"Unauthorized"}`, `401 {"detail":"Invalid API key"}`,
			`400 {"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","details":[{"reason":"API_KEY_INVALID"}]}}`,
			`400 {"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}`,
			`400 {"code":"x","error":"Incorrect API key provided: xa***ey."}`,
			`403 {"error":{"code":403,"message":"API key expired. Please renew the API key."}}`,
			`0 {"base_resp":{"status_code":1004,"status_msg":"login fail"}}`, `0 {"base_resp":{"status_code":2049,"status_msg":"bad"}}`,
			`0 {"error_code":110,"error_msg":"Access token invalid or no longer valid"}`,
		},
		"permission": {
			`403 {"error":{"message":"no"}}`, `403 `, `403 {"error":{"message":"Country, region, or territory not supported","code":"unsupported_country_region_territory"}}`,
			`403 {"error":{"code":403,"message":"Flagged input"}}`, `0 {"type":"error","error":{"type":"permission_error","message":"Not for you."}}`,
			`0 {"error":{"code":"403","message":"Flagged input"}}`, `0 {"base_resp":{"status_code":2061,"status_msg":"your plan does not support this model"}}`,
		},
		"model": {
			`404 {"error":{"message":"The model m does not exist","code":"model_not_found"}}`, `410 gone`,
			`400 {"error":{"message":"Invalid model name passed in model=m","code":"400"}}`,
			`400 {"error":{"message":"model 'm' not found, try pulling it first"}}`,
		},
		"busy": {
			`429 {"error":{"message":"Rate limit reached on tokens per min. Limit: 30000, Requested: 35000 tokens exceed","code":"rate_limit_exceeded"}}`,
			`429 {"error":{"code":429,"message":"You exceeded your current quota, please check your plan.","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"13s"}]}}`,
			`0 {"error":{"type":"rate_limit_error"}}`, `0 {"base_resp":{"status_code":1002,"status_msg":"no"}}`,
			`0 {"error_code":18,"error_msg":"Open api qps request limit reached"}`, `0 {"code":50505,"message":"Rate limit reached"}`,
		},
		"failing": {`500 `, `529 {"type":"error","error":{"type":"overloaded_error"}}`, `0 {"error":{"message":"engine died","type":null,"code":"500"}}`, `0 {"error":"text"}`, `408 `, `0 {"detail":"no"}`, `0 {"base_resp":{"status_code":1000,"status_msg":"unknown error"}}`, `0 {"code":77,"message":"no"}`, `0 {"type":"error"}`, `0 {"error":{"type":"server_error","message":"trace"}}`},
		"refused": {
			`400 {"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"}}`, `422 {"detail":[{"msg":"Extra inputs are not permitted"}]}`, `400 null`, `409 [1]`,
			`400 {"error":{"message":"max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.","param":"max_tokens","code":"invalid_value"}}`,
			`400 {"object":"error","message":"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 12 input tokens (5000 > 4096 - 12).","type":"BadRequestError","code":400}`,
			`400 {"error":{"message":"max_tokens=5000 cannot be greater than max_model_len=max_total_tokens=4096. Please request fewer output tokens."}}`,
			`400 {"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 128000 > 8192, which is the maximum allowed number of output tokens for claude-test"}}`,
			"400 {\"error\":{\"message\":\"`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model\"}}",
			"422 {\"error\":\"Input validation error: `max_new_tokens` must be <= 512. Given: 5000\"}", `400 {"error":{"message":"max_tokens must be <= 4096"}}`,
			`422 {"detail":[{"loc":["body","max_tokens"],"msg":"Input should be less than or equal to 4096"}]}`,
			`400 {"message":"The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096."}`,
			`400 {"error":{"code":400,"message":"Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 8193 (exclusive)."}}`,
			`400 {"error":{"message":"Range of max_tokens should be [1, 8192]"}}`,
			`400 {"error":{"message":"Conversation roles must alternate user/assistant/user/assistant/..."}}`,
		},
	} {
		for _, b := range bodies {
			status, body, _ := strings.Cut(b, " ")
			n := map[string]int{"0": 0, "400": 400, "401": 401, "402": 402, "403": 403, "404": 404, "408": 408, "409": 409, "410": 410, "413": 413, "422": 422, "429": 429, "500": 500, "529": 529}[status]
			r := readReport(n, []byte(body))
			got := r.kind()
			if got.name != want {
				t.Errorf("%s is %q, want %q", b, got.name, want)
			}
			named := strings.Contains(got.message("m", r.status, r.words), "max_output_tokens of the model")
			if ours := strings.Contains(strings.ToLower(b), "max") && want == "refused"; ours && !named {
				t.Errorf("%s: %s", b, got.message("m", r.status, r.words))
			}
		}
	}
}
