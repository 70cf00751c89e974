package modeltest

import (
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/secret"
)

var secretKey = secret.New("key-of-the-test")

// odd is text with characters that JSON, HTML and terminals treat specially.
const odd = "a <b> & \"c\" \\ \n\t\x01 é 漢 😀 \u2028"

// cases are the requests that all providers compare with golden files.
func cases() map[string]Case {
	user := func(text string) agent.ModelMessage { return agent.ModelMessage{Role: agent.RoleUser, Text: text} }
	says := func(text string, calls ...*teamv1.ToolCall) agent.ModelMessage {
		return agent.ModelMessage{Role: agent.RoleAssistant, Text: text, ToolCalls: calls}
	}
	result := func(id, tool, text string, parts ...*a2av1.Part) agent.ModelMessage {
		return agent.ModelMessage{Role: agent.RoleTool, CallID: id, Tool: tool, Text: text, Parts: parts}
	}
	call := func(id, name, arguments string) *teamv1.ToolCall {
		return &teamv1.ToolCall{Id: id, Name: name, Arguments: arguments}
	}
	talk := func(messages ...agent.ModelMessage) *agent.ModelRequest {
		return &agent.ModelRequest{Agent: Agent, Messages: messages}
	}
	state := func(state string) *agent.ModelRequest {
		m := says("Hm.", call("c1", "look", `{"q":1}`))
		m.State = []byte(state)
		return talk(user("x"), m, result("c1", "look", "seen"))
	}
	tools := []agent.ToolSpec{
		{Name: "search", Description: "Finds pages <all>.", Parameters: []byte(`{"type":"object","properties":{"q":{"type":"string","enum":["a","é"]},"n":{"type":"integer","minimum":0,"maximum":1.5},` +
			`"deep":{"$ref":"#/$defs/d"}},"required":["q"],"additionalProperties":false,"$defs":{"d":{"anyOf":[{"type":"null"},{"type":"array","items":{"type":"boolean"}}]}}}`)},
		{Name: "clock"},
		{Name: "empty", Description: "Takes nothing.", Parameters: []byte(`{}`)},
	}
	with := func(r *agent.ModelRequest, change func(*agent.ModelRequest)) *agent.ModelRequest {
		change(r)
		return r
	}
	settings := func(s *teamv1.ModelSettings) model.Config { return model.Config{Settings: s} }
	schema := func(r *agent.ModelRequest) {
		r.Schema = []byte(`{"type":"object","properties":{"score":{"type":"integer"}},"required":["score"],"additionalProperties":false}`)
	}
	extra, err := structpb.NewStruct(map[string]any{
		"top_k": 5, "temperature": nil, "generationConfig": map[string]any{"topK": 5, "temperature": nil}, "thinking": map[string]any{"type": "disabled"},
	})
	if err != nil {
		panic(err)
	}
	return map[string]Case{
		"settings":                    {Config: settings(&teamv1.ModelSettings{Temperature: new(0.0), TopP: new(0.5), Seed: new(int64(7)), Stop: []string{"END", "\n\n"}, ReasoningEffort: "low", ParallelToolCalls: new(false)}), Request: talk(user("Hi"))},
		"settings with tools":         {Config: settings(&teamv1.ModelSettings{ParallelToolCalls: new(false)}), Request: with(talk(user("Hi")), func(r *agent.ModelRequest) { r.Tools = tools })},
		"settings with a forced tool": {Config: settings(&teamv1.ModelSettings{ParallelToolCalls: new(false)}), Request: with(talk(user("Hi")), func(r *agent.ModelRequest) { r.Tools, r.Force = tools, "clock" })},
		"an extra body":               {Config: settings(&teamv1.ModelSettings{Temperature: new(0.5), ExtraBody: extra}), Request: with(talk(user(odd)), func(r *agent.ModelRequest) { r.Tools = tools[:1] })},
		"headers":                     {Config: model.Config{APIKey: secretKey, Headers: map[string]secret.Secret{"X-Team": secret.New("desk"), "authorization": secret.New("Basic other")}}, Request: talk(user("Hi"))},
		"a schema":                    {Request: with(talk(user("Hi")), schema)},
		"a schema and tools":          {Request: with(with(talk(user("Hi")), schema), func(r *agent.ModelRequest) { r.Tools = tools[1:2] })},
		"text":                        {Request: talk(user("Hi"))},
		"turns": {Request: with(talk(user("Hi"), says("Hello."), user(odd), says("Ok."), user("Bye")), func(r *agent.ModelRequest) {
			r.Instructions = "Be brief.\n" + odd
		})},
		"blank texts":             {Request: with(talk(user(""), says(" \n"), user("\t"), says(""), user("")), func(r *agent.ModelRequest) { r.Instructions = " " })},
		"the assistant begins":    {Request: talk(says("Before"), user("Hi"))},
		"only the assistant":      {Request: talk(says("Before"))},
		"several of one role":     {Request: talk(user("a"), user("b"), says("c"), says("d"), user("e"))},
		"tools":                   {Request: with(talk(user("Hi")), func(r *agent.ModelRequest) { r.Tools = tools })},
		"a forced tool":           {Request: with(talk(user("Hi")), func(r *agent.ModelRequest) { r.Tools, r.Force = tools, "clock" })},
		"the limit of a request":  {Request: with(talk(user("Hi")), func(r *agent.ModelRequest) { r.MaxOutput = 77 })},
		"the limit of the model":  {Config: model.Config{MaxOutput: 99}, Request: talk(user("Hi"))},
		"the lower limit":         {Config: model.Config{MaxOutput: 99}, Request: with(talk(user("Hi")), func(r *agent.ModelRequest) { r.MaxOutput = 1 << 40 })},
		"keys":                    {Config: model.Config{APIKey: secretKey}, Request: with(talk(user("Hi")), func(r *agent.ModelRequest) { r.Key = "run/1/2" })},
		"base URL":                {Config: model.Config{BaseURL: "http://127.0.0.1:9"}, Request: talk(user("Hi"))},
		"base URL with a slash":   {Config: model.Config{BaseURL: "http://127.0.0.1:9/"}, Request: talk(user("Hi"))},
		"base URL with a path":    {Config: model.Config{BaseURL: "https://gateway.example/proxy/team%20a"}, Request: talk(user("Hi"))},
		"base URL with path/":     {Config: model.Config{BaseURL: "https://gateway.example/proxy/"}, Request: talk(user("Hi"))},
		"calls and their results": {Request: talk(user("Hi"), says("Looking.", call("c1", "look", `{"b":[1,2.5,null,{"x":"<é>"}],"a":true}`), call("c2", "clock", "")), result("c1", "look", odd), result("c2", "", "12:00"), user("Well?"))},
		"calls without text": {Request: talk(user("Hi"), says(" ", call("c1", "look", "{bad"), call("c2", "look", "[1]"), call("c3", "look", "null"), call("unnamed-1-4", "look", " {} ")),
			result("c1", "look", "error: no JSON"), result("c2", "look", ""), result("c3", "look", " "), result("unnamed-1-4", "look", "ok"))},
		"several turns with calls": {Request: talk(user("Hi"), says("", call("c1", "look", "{}")), result("c1", "look", "one"), says("", call("c2", "look", "{}")), result("c2", "look", "two"))},
		"files": {Request: talk(user("before"), agent.ModelMessage{Role: agent.RoleUser, Text: "unused", Parts: []*a2av1.Part{
			textPart("first"), textPart(" "), rawPart("a.png", "image/png", "png"), rawPart("", "IMAGE/JPEG; q=1", "jpeg"), rawPart("", "image/webp", "webp"), textPart(odd),
			rawPart("", "application/pdf", "pdf"), rawPart("report <1>.pdf", "application/pdf", "pdf"), rawPart(strings.Repeat("é", 300)+".pdf", "application/pdf", "pdf"),
			urlPart("", "image/gif", "https://x.example/i?a=1&b=2"), urlPart("u.pdf", "application/pdf", "https://x.example/u.pdf"),
			rawPart("", "audio/wav", "wav"), rawPart("v.mp4", "video/mp4", "mp4"), urlPart("", "video/mp4", "https://x.example/v"),
		}})},
		"files of results": {Request: talk(user("Hi"), says("", call("c1", "look", "{}"), call("c2", "look", "{}")),
			result("c1", "look", "seen", textPart("seen"), rawPart("s.png", "image/png", "png"), rawPart("r.pdf", "application/pdf", "pdf")),
			result("c2", "look", "", urlPart("", "image/png", "https://x.example/i"), urlPart("", "application/pdf", "https://x.example/d")), user("And?"))},
		"state of another provider":      {Request: state(`{"provider":"other","model":"m","content":[{"type":"text","text":"no"}]}`)},
		"state that is not JSON":         {Request: state(`{`)},
		"state that is empty":            {Request: state(`{}`)},
		"state with unsuitable contents": {Request: state(`{"provider":"anthropic","model":"claude-test","content":{"a":1}}`)},
	}
}

func textPart(s string) *a2av1.Part { return agent.TextParts(s)[0] }

func rawPart(name, media, data string) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte(data)}, Filename: name, MediaType: media}
}

func urlPart(name, media, url string) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Url{Url: url}, Filename: name, MediaType: media}
}

// responses are the failures that all providers compare with golden files.
func responses() map[string]Response {
	out := map[string]Response{
		"no body":                 {Status: 400},
		"plain text":              {Status: 400, Header: http.Header{"Content-Type": {"text/plain"}}, Body: "upstream said no to " + secretKey.Reveal()},
		"a page":                  {Status: 502, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<html>bad gateway</html>"},
		"other JSON":              {Status: 422, Body: `{"detail":"no"}`},
		"a list":                  {Status: 422, Body: `["no"]`},
		"null":                    {Status: 422, Body: `null`},
		"an error that is a text": {Status: 400, Body: `{"error":"no"}`},
		"an error that is null":   {Status: 400, Body: `{"error":null}`},
		"a redirect":              {Status: 302, Header: http.Header{}, Body: ""},
		"not modified":            {Status: 304, Header: http.Header{}, Body: ""},
		"seconds to wait":         {Status: 429, Header: http.Header{"Retry-After": {"7"}}},
		"milliseconds to wait":    {Status: 503, Header: http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {"1500"}}},
		"no content":              {Status: 204, Header: http.Header{}},
		"a page in place of data": {Status: 200, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<html>"},
		"JSON in place of data":   {Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: "{}"},
		"a long message":          {Status: 400, Body: `{"type":"error","error":{"type":"invalid_request_error","code":400,"status":"INVALID_ARGUMENT","message":"` + strings.Repeat("long ", 100) + `"}}`},
		"a body beyond the limit": {Status: 400, Body: `{"type":"error","error":{"type":"invalid_request_error","message":"` + strings.Repeat("long ", 50_000) + `"}}`},
	}
	for _, status := range []int{400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503, 529} {
		body := `{"type":"error","error":{"type":"some_error","code":499,"status":"SOME","message":"Because of ` + secretKey.Reveal() + `."}}`
		out["status "+strconv.Itoa(status)] = Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
	}
	return out
}
