package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// StreamError is the error for a failure that an endpoint reports within a response with a status of
// 2xx.
type StreamError struct {
	// Body is the JSON of the report.
	Body []byte
}

func (e *StreamError) Error() string { return "the endpoint reported: " + string(e.Body) }

// Reported returns the *StreamError of an event that reports a failure in one of the forms of readReport, and
// nil for any other. A text is a failure, also as a JSON string.
func Reported(event []byte) error {
	var doc any
	failed := json.Unmarshal(event, &doc) != nil
	if list, ok := doc.([]any); ok && len(list) > 0 {
		doc = list[0]
	}
	if text, ok := doc.(string); ok {
		failed = failed || text != ""
	}
	if object, ok := doc.(map[string]any); failed || ok && fails(object) {
		return &StreamError{Body: bytes.Clone(event)}
	}
	return nil
}

// fails reports whether an object reports a failure: by an error, by a code that is not one of success, or, if it has no
// code, by a text for people.
func fails(object map[string]any) bool {
	object = lowered(object)
	if object["type"] == "error" || object["object"] == "error" || object["success"] == false || holds(object["error"]) || holds(object["errors"]) {
		return true
	}
	for _, key := range inner {
		if o, ok := object[key].(map[string]any); ok && fails(o) {
			return true
		}
	}
	coded := false
	for _, key := range numbered {
		code, ok := object[key]
		if ok && code != nil && !slices.Contains([]string{"", "0", "200", "ok", "success"}, codeOf(code)) {
			return true
		}
		coded = coded || ok && code != nil
	}
	return !coded && slices.ContainsFunc(said, func(key string) bool { return holds(object[key]) })
}

// inner are the fields with an object that describes how a call ended. Sources: the API of MiniMax (base_resp), Tencent
// (Response), Volcengine (ResponseMetadata) and iFlytek (header).
var inner = []string{"error", baseResp, "response", "responsemetadata", "header"}

// numbered are the fields with the code of a failure, which is 0 or a word of success otherwise. Sources: MiniMax
// (status_code), Baidu (error_code), and others in their place (errcode).
var numbered = []string{"code", "status_code", "error_code", "errcode"}

// baseResp is the field for the codes of MiniMax.
const baseResp = "base_resp"

// lowered returns an object with its keys in lower case.
func lowered(object map[string]any) map[string]any {
	low := make(map[string]any, len(object))
	for key, v := range object {
		low[strings.ToLower(key)] = v
	}
	return low
}

// codeOf returns a code in lower case; "" if a value is none.
func codeOf(v any) string {
	switch v := v.(type) {
	case string:
		return strings.ToLower(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// Holds reports whether the value of a field of an event says something: whether it is not missing, null, false,
// zero or empty.
func Holds(raw json.RawMessage) bool {
	var v any
	return len(raw) > 0 && json.Unmarshal(raw, &v) == nil && holds(v)
}

func holds(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return !slices.Contains([]any{nil, false, 0.0, ""}, v)
}

// report is what an endpoint says about a failure.
type report struct {
	status     int
	words      string   // for people
	codes      []string // for programs, in lower case
	retryAfter time.Duration
}

// readReport reads the body of an error in any of the forms that endpoints use: {"error": {"message"}} of
// OpenAI, Anthropic and Google, {"error": "text"}, {"message"} and {"detail"} of gateways and of FastAPI, codes
// such as {"base_resp": {"status_code", "status_msg"}} of MiniMax, a list of these, or a text. status is 0 for an error within a response of 200, which may have its own.
func readReport(status int, body []byte) *report {
	r := &report{status: status, words: strings.TrimSpace(string(body))}
	var doc any
	if err := json.Unmarshal(body, &doc); err == nil {
		r.read(doc)
	} else if strings.HasPrefix(r.words, "<") {
		r.words = markup.ReplaceAllString(r.words, " ")
	}
	if r.status == 0 {
		r.status = r.ownStatus()
	}
	return r
}

// markup matches what is not text of a page.
var markup = regexp.MustCompile(`(?is)<(style|script)\b.*?</(style|script)>|<[^>]*>`)

// read reads the fields of a document.
func (r *report) read(doc any) {
	if text, ok := doc.(string); ok {
		r.words = text
	}
	if list, ok := doc.([]any); ok && len(list) > 0 {
		doc = list[0]
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return
	}
	object = lowered(object)
	r.fields(object, "")
	for {
		within := slices.IndexFunc(inner, func(key string) bool { _, ok := object[key].(map[string]any); return ok })
		if within < 0 {
			break
		}
		object = lowered(object[inner[within]].(map[string]any)) //nolint:forcetypeassert // see above
		r.fields(object, inner[within])
	}
	if words, whole := sentence(object); whole {
		r.words = words
	}
}

// fields reads the codes of an object, and the delay that Google's errors have among their details. name is that of its
// field; "" if it has none.
func (r *report) fields(object map[string]any, name string) {
	for _, key := range append([]string{"type", "status", "object", "error"}, numbered...) {
		code := codeOf(object[key])
		if code != "" && name == baseResp {
			code = name + " " + code
		}
		if code != "" {
			r.codes = append(r.codes, code)
		}
	}
	details, _ := object["details"].([]any)
	for _, d := range details {
		detail, _ := d.(map[string]any)
		if reason, ok := detail["reason"].(string); ok {
			r.codes = append(r.codes, strings.ToLower(reason))
		}
		if after, ok := detail["retryDelay"].(string); ok {
			r.retryAfter, _ = time.ParseDuration(after) // 0 if malformed
		}
	}
}

// said are the fields of errors that are for people, in the order in which they are shown. Sources: error and
// error_description of OAuth 2, title and detail of RFC 9457, status_msg of MiniMax, error_msg of Baidu; see
// readReport for the others.
var said = []string{"error", "title", "message", "detail", "msg", "error_description", "status_msg", "error_msg", "errmsg"}

// sentence returns the text of an error for people. whole reports that the objects and lists in other fields
// say nothing more to people than it does.
func sentence(object map[string]any) (text string, whole bool) {
	for _, key := range said {
		if s, ok := object[key].(string); ok && !strings.Contains(text, s) {
			text = strings.TrimPrefix(text+": "+s, ": ")
		}
	}
	for key, v := range object {
		switch v.(type) {
		case map[string]any, []any:
			if key != "details" && !repeats(v, text) { // details are for programs
				return "", false
			}
		}
	}
	return text, text != ""
}

// repeats reports whether all texts of a value are in another text.
func repeats(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(text, v)
	case []any:
		return !slices.ContainsFunc(v, func(inner any) bool { return !repeats(inner, text) })
	case map[string]any:
		return repeats(slices.AppendSeq([]any{}, maps.Values(v)), text)
	}
	return true
}

// ownStatus returns the HTTP status that corresponds to an error within a response of 200: that, if it is not
// known.
func (r *report) ownStatus() int {
	for _, code := range r.codes {
		if n, err := strconv.Atoi(code); err == nil && n >= 400 && n <= 599 {
			return n
		}
	}
	for _, code := range r.codes {
		if status := statusOf[code]; status != 0 {
			return status
		}
	}
	return http.StatusOK
}

// statusOf is the HTTP status of the words that OpenAI, Anthropic and Google use in errors, and of the codes of MiniMax.
var statusOf = map[string]int{
	"invalid_request_error": http.StatusBadRequest, "invalid_argument": http.StatusBadRequest, "context_length_exceeded": http.StatusBadRequest,
	"authentication_error": http.StatusUnauthorized, "unauthenticated": http.StatusUnauthorized, "invalid_api_key": http.StatusUnauthorized,
	"permission_error": http.StatusForbidden, "permission_denied": http.StatusForbidden,
	"billing_error": http.StatusPaymentRequired, "insufficient_quota": http.StatusTooManyRequests,
	"not_found_error": http.StatusNotFound, "not_found": http.StatusNotFound, "model_not_found": http.StatusNotFound,
	"request_too_large": http.StatusRequestEntityTooLarge,
	"rate_limit_error":  http.StatusTooManyRequests, "rate_limit_exceeded": http.StatusTooManyRequests, "resource_exhausted": http.StatusTooManyRequests,
	"overloaded_error": statusOverloaded, "unavailable": http.StatusServiceUnavailable, "timeout_error": http.StatusGatewayTimeout,
	"server_error": http.StatusInternalServerError, "api_error": http.StatusInternalServerError, "internal": http.StatusInternalServerError,
	"internal_error": http.StatusInternalServerError, "internal_server_error": http.StatusInternalServerError,
	// https://platform.minimax.io/docs/api-reference/errorcode
	"base_resp 1000": http.StatusInternalServerError, "base_resp 1001": http.StatusGatewayTimeout, "base_resp 1002": http.StatusTooManyRequests,
	"base_resp 1004": http.StatusUnauthorized, "base_resp 1008": http.StatusPaymentRequired, "base_resp 1024": http.StatusInternalServerError,
	"base_resp 1033": http.StatusInternalServerError, "base_resp 1039": http.StatusTooManyRequests, "base_resp 1041": http.StatusTooManyRequests,
	"base_resp 1042": http.StatusBadRequest, "base_resp 2013": http.StatusBadRequest, "base_resp 2045": http.StatusTooManyRequests,
	"base_resp 2049": http.StatusUnauthorized, "base_resp 2056": http.StatusTooManyRequests, "base_resp 2061": http.StatusForbidden,
}

// statusOverloaded is a status that only Anthropic uses.
const statusOverloaded = 529

// has reports whether an endpoint has given one of the codes.
func (r *report) has(codes ...string) bool {
	return slices.ContainsFunc(codes, func(c string) bool { return slices.Contains(r.codes, c) })
}

// refusedContents reports whether an endpoint has refused a prompt, or the rest of an answer, because of its contents, in a
// *Rejection or a *StreamError. Sources: Azure OpenAI (content_filter), OpenAI (content_policy_violation,
// invalid_prompt), Moonshot (content_filter), Alibaba (data_inspection_failed), MiniMax (1026 and 1027).
func refusedContents(err error) bool {
	var rejected *Rejection
	var reported *StreamError
	var r *report
	switch {
	case errors.As(err, &rejected):
		r = readReport(rejected.Status, rejected.Body)
	case errors.As(err, &reported):
		r = readReport(0, reported.Body)
	default:
		return false
	}
	return r.has("content_filter", "content_policy_violation", "invalid_prompt", "data_inspection_failed", "datainspectionfailed", "base_resp 1026", "base_resp 1027")
}

// Blames reports whether the body of a rejection of the request's form, with a status of 400 or 422, has one of
// the words. The case of letters does not matter.
func (r *Rejection) Blames(words ...string) bool {
	return (r.Status == http.StatusBadRequest || r.Status == http.StatusUnprocessableEntity) && r.has(words...)
}

// BlamesAs500 is like Blames for endpoints that were seen to reject a part of a request with 500. The body must
// have all the words, because a status of 5xx can mean anything.
func (r *Rejection) BlamesAs500(words ...string) bool {
	return r.Status == http.StatusInternalServerError && !slices.ContainsFunc(words, func(w string) bool { return !r.has(w) })
}

// has reports whether the body has one of the words.
func (r *Rejection) has(words ...string) bool {
	body := strings.ToLower(string(r.Body))
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(body, w) })
}

// failure is a kind of failure of a model. docs/models.md has the same table.
type failure struct {
	name  string
	retry bool // the same model is asked again
	other bool // the next model of fallback is asked
	text  string
}

// The kinds of failures.
var (
	busy     = failure{"busy", true, true, "model %q limits the rate of calls (HTTP %d); try again later"}
	failing  = failure{"failing", true, true, "the endpoint of model %q failed (HTTP %d); try again later"}
	lost     = failure{"unreachable", true, true, ""}
	silent   = failure{"silent", true, true, ""}
	empty    = failure{"empty", true, true, "the endpoint of model %q answered with an empty stream (HTTP %d), without one event; the log of the endpoint may say why, for example that the request is longer than its context"}
	broke    = failure{"quota", false, true, "the quota of model %q is exhausted (HTTP %d); retrying does not help"}
	keyless  = failure{"key", false, true, "the endpoint of model %q refused the key (HTTP %d); check the model's api_key"}
	barred   = failure{"permission", false, true, "the endpoint of model %q does not permit this request (HTTP %d); check whether the account or key may use this model, in this region and with these contents"}
	unknown  = failure{"model", false, true, "the endpoint of model %q does not know this model (HTTP %d); check the model's name and base_url"}
	tooLong  = failure{"context", false, true, declined.text}
	noStream = failure{"other", false, true, ""}
	tooLarge = failure{"too large", false, false, ""}
	declined = failure{"refused", false, false, "the endpoint of model %q refused the request (HTTP %d)"}
)

// kind returns which kind of failure an endpoint reports.
func (r *report) kind() failure {
	switch {
	case r.status == http.StatusPaymentRequired,
		r.has("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "exceeded_current_quota_error", "insufficient_balance", "billing_error"),
		r.status < 500 && spent.MatchString(r.words):
		return broke
	case r.status == http.StatusTooManyRequests:
		return busy
	case r.status == http.StatusRequestTimeout, r.status >= http.StatusInternalServerError:
		return failing
	case r.status == http.StatusUnauthorized,
		r.has("invalid_api_key", "api_key_invalid", "authentication_error", "no_db_connection"), badKey.MatchString(r.words):
		return keyless
	case r.status == http.StatusForbidden:
		return barred
	case r.status == http.StatusOK && limited.MatchString(r.words):
		return busy
	case tooMuch.MatchString(r.words) && !sum.MatchString(r.words):
		return declined
	case r.status == http.StatusRequestEntityTooLarge, r.has("context_length_exceeded", "exceed_context_size_error"), overflow.MatchString(r.words):
		return tooLong
	case r.status == http.StatusNotFound, r.status == http.StatusGone, r.has("model_not_found"), badModel.MatchString(r.words):
		return unknown
	case r.status == http.StatusOK:
		return failing
	}
	return declined
}

// Words by which failures are known whose status and codes say less. Endpoints have nothing else for them.
var (
	// Anthropic, DeepSeek, Zhipu and OpenRouter.
	spent = regexp.MustCompile(`(?i)credit balance is too low|insufficient (account )?(balance|credits|funds|quota)`)
	// xAI and Gemini answer with 400, LiteLLM with 400 and no_db_connection, and Baidu with 200 (access token).
	badKey = regexp.MustCompile(`(?i)(incorrect|invalid) api[ -]?key|(api[ -]?key|access token) (is |has )?(not valid|invalid|expired)`)
	// Baidu, and gateways that answer with 200.
	limited = regexp.MustCompile(`(?i)rate limit|too many requests|(qps|request|concurrency) limit|\b(qps|rpm|tpm)\b`)
	// LiteLLM and vLLM behind gateways answer with 400.
	badModel = regexp.MustCompile(`(?i)invalid model name|unknown model\b|no such model|model\b.{0,80}\b(does not exist|not found|is not (available|supported))`)
	// OpenAI, vLLM, DeepSeek and Mistral: maximum context length; Anthropic: prompt is too long, exceed
	// context limit; Gemini: token count exceeds; llama.cpp: context size; llama-cpp-python: context window;
	// Bedrock: input is too long; Cohere: too many tokens; xAI: maximum prompt length; Together and TGI: a sum
	// of tokens; Moonshot: model token limit; Zhipu: prompt exceeds; Alibaba: range of input length; Groq:
	// reduce the length.
	overflow = regexp.MustCompile(`(?i)context[ _]?(length|window|size|limit)|(prompt|input) (is |are )?too long|too many tokens` +
		`|token (count|limit).{0,80}exceed|exceed(s|ed)?\b.{0,40}(token|context)|max(imum)? (prompt|model|input|sequence) length` +
		`|prompt exceeds|range of input length|reduce the length|must (be <=|have less than).{0,20}(\d|token)`)
	// The names of our limit in requests; the last one is Bedrock's.
	outputLimit = regexp.MustCompile(`(?i)` + outputName)
	// Our limit is too high for the model, or for the rest of its context. OpenAI and vLLM: is too large;
	// newer vLLM: cannot be greater than; Groq and TGI: must be; Mistral and FastAPI: should be less; Anthropic:
	// N > M; Bedrock: exceeds; Gemini: supported range; DeepSeek and Alibaba: range of.
	tooMuch = regexp.MustCompile(`(?i)` + outputName + `.{0,60}?(too (large|high|big)|(must|should) (be|not)\b|[:= ]\d+ ?> ?\d|cannot (be|exceed)|exceeds|supported range)` +
		`|range of ` + outputName)
	// It is too high together with the prompt: Anthropic and TGI.
	sum = regexp.MustCompile("(?i)(\\+|\\band) *[`'\"]?" + outputName + "|" + outputName + "[`'\"]? *\\+")
)

const outputName = `(max_(completion_|output_|new_)?tokens|maxOutputTokens|maximum tokens you requested)`

// message returns the text of a failure for callers. words are what the endpoint says, cleaned.
func (f failure) message(name string, status int, words string) string {
	text := fmt.Sprintf(f.text, name, status)
	if words != "" && status < http.StatusInternalServerError {
		text += ": " + words
	}
	switch {
	case f.name == tooLong.name:
		text = strings.TrimSuffix(text, ".") + "; the request is longer than the model's context: shorten what the agent reads, or lower max_output_tokens of the model"
	case f.name == declined.name && outputLimit.MatchString(words):
		text = strings.TrimSuffix(text, ".") + "; the limit of output tokens is max_output_tokens of the model"
	}
	return text
}
