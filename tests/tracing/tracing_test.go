// Package tracing tests the traces that servers export.
package tracing

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/collector"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// canary is in each text of the run, and apiKey the key of the model. Neither may be exported by default.
const (
	canary = "canary-content"
	apiKey = "sk-canary-secret"
)

// theirs is the trace context of a caller.
const (
	theirTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theirSpan  = "00f067aa0ba902b7"
	theirs     = "00-" + theirTrace + "-" + theirSpan + "-01"
)

// headers records the headers of requests that servers make.
type headers struct {
	mu  sync.Mutex
	all []http.Header // guarded by mu
}

func (h *headers) add(header http.Header) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, header.Clone())
}

// spans returns the ids of the spans that the headers name. Each of them must have the same trace. It fails the test if
// a request has baggage.
func (h *headers) spans(t *testing.T, trace string) map[string]bool {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := map[string]bool{}
	for _, one := range h.all {
		for name := range one {
			if name = strings.ToLower(name); name == "baggage" || name == "tracestate" {
				t.Errorf("a request has %s: %v", name, one)
			}
		}
		if value := one.Get("traceparent"); value != "" {
			parts := strings.Split(value, "-")
			if len(parts) != 4 || parts[1] != trace || parts[3] != "01" {
				t.Errorf("traceparent is %q, want a sampled span of trace %s", value, trace)
				continue
			}
			ids[parts[2]] = true
		}
	}
	return ids
}

// tides is an MCP server with one tool, which records the headers of requests and the _meta of calls.
func tides(t *testing.T, seen, meta *headers) string {
	s := sdk.NewServer(&sdk.Implementation{Name: "tides", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{
		Name: "height", Description: "Tells how high the tide is.", InputSchema: json.RawMessage(`{"type":"object","properties":{"port":{"type":"string"}}}`),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
	}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		h := http.Header{}
		for key, value := range r.Params.Meta {
			h.Set(key, fmt.Sprint(value))
		}
		meta.add(h)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "4.2 m " + canary}}}, nil
	})
	next := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.add(r.Header)
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	return h.URL
}

// world is a team that has a team on another server as a member, twice: over A2A, and with the Agent service.
type world struct {
	front, back *whole.Server
	llm         *fakellm.Server
	mcp, meta   headers // what the MCP server has seen
}

// settings are those of the two servers.
type settings struct {
	front, back string // keys below server, one a line
	model       string // further keys of the model
	binding     string // of the member over A2A; "" is the first that its card offers at its origin
}

func newWorld(t *testing.T, s settings) *world {
	t.Helper()
	w := &world{llm: fakellm.New(t)}
	w.llm.Answer("small", func(r *fakellm.Request) fakellm.Turn {
		usage := &fakellm.Usage{PromptTokens: 1000, CompletionTokens: 30, TotalTokens: 1030}
		if len(r.Tools) > 0 && r.Messages[len(r.Messages)-1].Role != "tool" {
			return fakellm.Turn{Calls: []fakellm.Call{{ID: "call-1", Name: "height", Arguments: `{"port":"` + canary + `"}`}}, Usage: usage}
		}
		return fakellm.Turn{Text: "said " + canary + " with " + apiKey, Usage: usage}
	})
	const models = `version: v1
models:
  small: {provider: openai, name: small, base_url: "${LLM}", api_key: ` + apiKey + `, price: {input: 3, output: 7.5}%s}
`
	const auth = `
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", permissions: [READ, CALL, ANSWER, MANAGE, ADMIN]}, {name: bob, account: acme, sha256: "${BOB}"}]}
`
	backAuth, token := auth, ", auth: {bearer: acme/ann}"
	if s.binding == "GRPC" {
		backAuth, token = "\n", ""
	}
	t.Setenv("OTEL_SERVICE_NAME", "back")
	w.back = whole.Open(t, rig.SQLite(t), fmt.Sprintf(models, s.model)+fmt.Sprintf(`
tools: {tides: {mcp: {url: %q}}}
agents: {pilot: {description: Knows tides., model: small, tools: [tides]}}
teams:
  harbor: {description: Knows the harbor., members: [{agent: pilot}], workflow: {steps: [{id: find, agent: pilot}]}}
server:
  default_agent: harbor%s%s`, tides(t, &w.mcp, &w.meta), s.back, backAuth), w.llm)
	t.Setenv("OTEL_SERVICE_NAME", "front")
	binding := ""
	if s.binding != "" {
		binding = ", binding: " + s.binding
	}
	w.front = whole.Open(t, rig.SQLite(t), fmt.Sprintf(models, s.model)+fmt.Sprintf(`
agents:
  over_a2a: {description: Knows the harbor., a2a: {card: "%s/harbor/.well-known/agent-card.json"%s%s}}
  over_grpc: {description: Knows the harbor., grpc: {address: %q, agent_id: harbor%s}}
  writer: {description: Writes., model: small}
teams:
  desk:
    description: Answers.
    members: [{agent: over_a2a}, {agent: over_grpc}, {agent: writer}]
    supervisor:
      rules:
        - {id: first, when: turn == 1, next: [over_a2a]}
        - {id: second, when: turn == 2, next: [over_grpc]}
        - {id: third, when: turn == 3, next: [writer]}
        - {id: done, when: "true", finish: last}
server:
  default_agent: desk
  egress: {allow: [127.0.0.1]}%s%s`, w.back.HTTP, binding, token, w.back.GRPC, token, s.front, auth), w.llm)
	return w
}

// run sends a message with the trace context of the caller and a webhook, and waits until the webhook knows the end.
func (w *world) run(t *testing.T, hook *rig.Receiver) *a2av1.Task {
	t.Helper()
	at := w.front.Target
	at.Headers = map[string]string{"Traceparent": theirs, "Tracestate": "vendor=x", "Baggage": "user=" + canary}
	c := rig.NewREST(at)
	req := rig.Text("desk", "m1", "ask about "+canary)
	req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: &a2av1.TaskPushNotificationConfig{Url: hook.URL}}
	resp, err := c.Send(t.Context(), req)
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatal(resp, err)
	}
	hook.Until(t, "the end", func(all []rig.Notification) bool { return slices.ContainsFunc(all, rig.Ended) })
	return resp.GetTask()
}

// traced exports to a collector at once.
func traced(t *testing.T) *collector.Collector {
	t.Helper()
	c := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	return c
}

// TestS_66_OneTree: a team with a team on another server as its member, tools of an MCP server and a webhook is one
// trace over both servers, whose costs add up to what the tasks have spent. The caller, who is not trusted, has a link
// to it. No texts are exported, and no baggage is passed on.
func TestS_66_OneTree(t *testing.T) {
	for _, binding := range []string{"GRPC", "JSONRPC", "REST"} {
		t.Run(binding, func(t *testing.T) { oneTree(t, binding) })
	}
}

func oneTree(t *testing.T, binding string) {
	to := traced(t)
	trust := "acme/ann"
	if binding == "GRPC" { // at another origin than the card, which gets no token
		trust = "local"
	}
	w := newWorld(t, settings{binding: binding, back: "\n  tracing: {trust_callers: [" + trust + "]}"})
	hook := rig.NewReceiver(t)
	task := w.run(t, hook)
	spentByBack := w.spentByBack(t)
	w.front.Stop()
	w.back.Stop()
	all := to.Spans()
	run := only(t, all, func(s collector.Span) bool { return s.GetName() == "invoke_agent desk" })
	trace := run.Trace()
	var tree, rest []collector.Span // tree: without what depends on time
	ids := map[string]string{}
	for _, s := range all {
		ids[s.ID()] = s.GetName()
		switch {
		case s.Trace() != trace:
			rest = append(rest, s)
		case !slices.Contains([]string{"AgentCard", "Info", "push notification", "claim"}, s.GetName()):
			tree = append(tree, s)
		case s.Parent() == "" || ids[s.Parent()] == "" && !slices.ContainsFunc(all, func(p collector.Span) bool { return p.ID() == s.Parent() }):
			t.Errorf("%s has no parent", s.GetName())
		}
	}
	t.Logf("the trace, with tokens and costs:\n%s", collector.Tree(all, costs))
	for _, s := range rest { // such as checks of health
		if s.GetKind() != tracev1.Span_SPAN_KIND_SERVER {
			t.Errorf("there is another trace:\n%s", collector.Tree(rest, kinds))
		}
	}
	if diff := cmp.Diff(shape, collector.Tree(tree, kinds)); diff != "" {
		t.Errorf("the tree (-want +got):\n%s", diff)
	}

	request := only(t, all, func(s collector.Span) bool { return s.GetName() == "SendMessage" && s.Service == "front" })
	if links := request.GetLinks(); request.Parent() != "" || trace == theirTrace || len(links) != 1 || hex.EncodeToString(links[0].GetTraceId()) != theirTrace || hex.EncodeToString(links[0].GetSpanId()) != theirSpan {
		t.Errorf("the request has parent %q, trace %s and links %v, want a link to that of the caller alone", request.Parent(), trace, links)
	}
	if request.Text("team_server.account") != "acme" || request.Text("team_server.task.id") != task.GetId() || request.Text("gen_ai.agent.name") != "desk" {
		t.Errorf("the request has %v", request.GetAttributes())
	}
	for _, s := range tree {
		if name := s.GetName(); s.GetKind() != tracev1.Span_SPAN_KIND_SERVER && s.Service == "front" && s.Text("gen_ai.conversation.id") != task.GetContextId() {
			t.Errorf("%s is of conversation %q, want %q", name, s.Text("gen_ai.conversation.id"), task.GetContextId())
		}
		if name := s.GetName(); name == "chat small" && (s.Text("gen_ai.provider.name") != "openai" || s.Text("gen_ai.request.model") != "small" || s.Text("gen_ai.operation.name") != "chat") {
			t.Errorf("%s has %v", name, s.GetAttributes())
		}
	}

	// Costs: those of the spans of a task are what it has spent, and those of the trace what all of it has spent.
	spent := a2a.RunOf(task.GetMetadata()).GetSpent()
	if got := sum(all, func(s collector.Span) bool { return s.Text("team_server.task.id") == task.GetId() }, "gen_ai.usage", "team_server.claimed"); got != amountOf(spent) {
		t.Errorf("the spans of the task cost %+v, and it has spent %+v", got, amountOf(spent))
	}
	if got := sum(all, func(s collector.Span) bool { return s.Trace() == trace }, "gen_ai.usage"); got != amountOf(spent) || got.input != 5000 {
		t.Errorf("the spans of the trace cost %+v, and the task has spent %+v", got, amountOf(spent))
	}
	if got := sum(all, func(s collector.Span) bool { return s.Service == "back" }, "gen_ai.usage", "team_server.claimed"); got != amountOf(spentByBack) {
		t.Errorf("the spans of the other server cost %+v, and its tasks have spent %+v", got, amountOf(spentByBack))
	}

	// What was passed on: to the tool, and to the webhook, but not to the provider of the model.
	for id := range w.mcp.spans(t, trace) {
		if ids[id] == "" {
			t.Errorf("the MCP server was sent span %s, which was not exported", id)
		}
	}
	for id := range w.meta.spans(t, trace) {
		if ids[id] != "execute_tool height" {
			t.Errorf("the call of the tool was sent span %s %q", id, ids[id])
		}
	}
	if len(w.mcp.spans(t, trace)) == 0 || len(w.meta.spans(t, trace)) != 2 {
		t.Errorf("spans at the MCP server: %v, in its calls: %v", w.mcp.spans(t, trace), w.meta.spans(t, trace))
	}
	hooked := &headers{}
	for _, n := range hook.Taken() {
		hooked.add(n.Header)
	}
	for id := range hooked.spans(t, trace) {
		if ids[id] != "push notification" {
			t.Errorf("the webhook was sent span %s %q", id, ids[id])
		}
	}
	if len(hooked.spans(t, trace)) != len(hook.Taken()) {
		t.Errorf("%d notifications have %d spans", len(hook.Taken()), len(hooked.spans(t, trace)))
	}
	for _, r := range w.llm.Requests() {
		if value := r.Header.Get("Traceparent") + r.Header.Get("Baggage") + r.Header.Get("Tracestate"); value != "" {
			t.Errorf("the provider of the model was sent %q", value)
		}
	}
	if text := fmt.Sprint(all); strings.Contains(text, canary) || strings.Contains(text, apiKey) {
		t.Errorf("texts are exported: %s", text)
	}
}

// shape is the trace of the run: its spans with their server and kind, below their parents.
var shape = func() string {
	lines := func(indent string, all ...string) string { return indent + strings.Join(all, "\n"+indent) + "\n" }
	nested := func(method string) string {
		return lines("      ", method+" back server", "  invoke_workflow harbor back internal", "    plan harbor back internal", "    invoke_agent pilot back internal",
			"      chat small back client", "      execute_tool height back internal", "      chat small back client", "    plan harbor back internal")
	}
	return lines("", "SendMessage front server", "  invoke_agent desk front internal", "    plan desk front internal", "    invoke_agent over_a2a front client") + nested("SendStreamingMessage") +
		lines("    ", "plan desk front internal", "invoke_agent over_grpc front client") + nested("ProcessStream") +
		lines("    ", "plan desk front internal", "invoke_agent writer front internal", "  chat small front client", "plan desk front internal")
}()

// kinds returns the server and the kind of a span.
func kinds(s collector.Span) string {
	return " " + s.Service + " " + strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_"))
}

// only returns the one span that is meant.
func only(t *testing.T, all []collector.Span, is func(collector.Span) bool) collector.Span {
	t.Helper()
	var found []collector.Span
	for _, s := range all {
		if is(s) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans, want 1, among\n%s", len(found), collector.Tree(all, kinds))
	}
	return found[0]
}

// amount is what was spent.
type amount struct{ input, output, micros int64 }

func amountOf(s *teamv1.Spent) amount {
	return amount{s.GetInputTokens(), s.GetOutputTokens(), s.GetCostMicros()}
}

// sum adds up what the spans that are meant have cost, according to the attributes with each prefix.
func sum(all []collector.Span, is func(collector.Span) bool, prefixes ...string) amount {
	var a amount
	for _, s := range all {
		for _, of := range prefixes {
			if is(s) {
				a.input += s.Int(of + ".input_tokens")
				a.output += s.Int(of + ".output_tokens")
				a.micros += int64(math.Round(1e6 * s.Float(strings.Replace(of, "gen_ai", "team_server", 1)+".cost_usd")))
			}
		}
	}
	return a
}

// spentByBack returns what the tasks of the server of the member have spent.
func (w *world) spentByBack(t *testing.T) *teamv1.Spent {
	t.Helper()
	resp, err := teamv1.NewMonitorServiceClient(rig.Services(t, w.back.Target)[0]).ListCosts(t.Context(), &teamv1.ListCostsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTotal().GetSpent()
}

// costs returns the server of a span, and what it has cost.
func costs(s collector.Span) string {
	var b strings.Builder
	fmt.Fprintf(&b, " [%s]", s.Service)
	for _, of := range []string{"gen_ai.usage", "team_server.claimed"} {
		if in := s.Int(of + ".input_tokens"); in > 0 {
			usd := s.Float(strings.Replace(of, "gen_ai", "team_server", 1) + ".cost_usd")
			fmt.Fprintf(&b, " %s: %d + %d tokens, %.6f USD", of[strings.LastIndexByte(of, '.')+1:], in, s.Int(of+".output_tokens"), usd)
		}
	}
	if word := s.Text("error.type"); word != "" {
		b.WriteString(" error " + word)
	}
	if n := len(s.GetLinks()); n > 0 {
		fmt.Fprintf(&b, " %d link", n)
	}
	return b.String()
}

// TestT_51_Content: with tracing.content spans have the texts, without the secrets of the file, and cut; and with
// send_traceparent the provider of the model gets the trace context.
func TestT_51_Content(t *testing.T) {
	to := traced(t)
	const on = "\n  tracing: {content: true, trust_callers: [\"*\"]}"
	w := newWorld(t, settings{front: on, back: on, model: ", send_traceparent: true"})
	w.run(t, rig.NewReceiver(t))
	w.front.Stop()
	w.back.Stop()
	all := to.Spans()
	request := only(t, all, func(s collector.Span) bool { return s.GetName() == "SendMessage" && s.Service == "front" })
	if request.Trace() != theirTrace || request.Parent() != theirSpan || len(request.GetLinks()) > 0 {
		t.Errorf("the request of a trusted caller is in trace %s below %s", request.Trace(), request.Parent())
	}
	if text := fmt.Sprint(all); strings.Contains(text, apiKey) {
		t.Error("a secret of the file is exported")
	}
	wants := map[string][]string{
		"chat small":          {"gen_ai.input.messages", "gen_ai.output.messages"},
		"execute_tool height": {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"},
		"invoke_agent desk":   {"gen_ai.input.messages", "gen_ai.output.messages"},
		"invoke_agent writer": {"gen_ai.input.messages", "gen_ai.output.messages"},
	}
	seen := map[string]bool{}
	ids := map[string]string{}
	for _, s := range all {
		ids[s.ID()] = s.GetName()
		for _, key := range wants[s.GetName()] {
			value := s.Text(key)
			if !strings.Contains(value, canary) && !strings.Contains(value, "tool_call") {
				t.Errorf("%s: %s is %q", s.GetName(), key, value)
			}
			if strings.Contains(key, "messages") && !json.Valid([]byte(value)) {
				t.Errorf("%s: %s is not JSON: %s", s.GetName(), key, value)
			}
			seen[s.GetName()] = true
		}
	}
	if len(seen) != len(wants) {
		t.Errorf("seen only %v", slices.Sorted(maps.Keys(seen)))
	}
	if text := fmt.Sprint(all); !strings.Contains(text, "with ***") {
		t.Error("no secret is replaced")
	}
	for _, r := range w.llm.Requests() {
		if parts := strings.Split(r.Header.Get("Traceparent"), "-"); len(parts) != 4 || parts[1] != theirTrace || ids[parts[2]] != "chat small" {
			t.Errorf("the provider of the model was sent traceparent %v", parts)
		}
		if r.Header.Get("Baggage")+r.Header.Get("Tracestate") != "" {
			t.Errorf("the provider of the model was sent %v", r.Header)
		}
	}
}

// TestT_51_Off: without variables of OpenTelemetry nothing is exported, and no trace context is passed on.
func TestT_51_Off(t *testing.T) {
	to := collector.New(t)
	w := newWorld(t, settings{back: "\n  tracing: {trust_callers: [\"*\"]}", model: ", send_traceparent: true"})
	hook := rig.NewReceiver(t)
	w.run(t, hook)
	w.front.Stop()
	w.back.Stop()
	seen := &headers{all: slices.Concat(w.mcp.all, w.meta.all)}
	for _, n := range hook.Taken() {
		seen.add(n.Header)
	}
	for _, r := range w.llm.Requests() {
		seen.add(r.Header)
	}
	for _, h := range seen.all {
		if value := h.Get("Traceparent") + h.Get("Baggage") + h.Get("Tracestate"); value != "" {
			t.Errorf("passed on: %s", value)
		}
	}
	if n := to.Connections(); n > 0 {
		t.Errorf("%d connections to the collector", n)
	}
}

// TestT_51_Untrusted: the requests of a server that is not trusted begin traces of their own, with links to its spans.
func TestT_51_Untrusted(t *testing.T) {
	to := traced(t)
	w := newWorld(t, settings{back: "\n  tracing: {trust_callers: [other, acme/bob]}"})
	w.run(t, rig.NewReceiver(t))
	w.front.Stop()
	w.back.Stop()
	all := to.Spans()
	member := only(t, all, func(s collector.Span) bool { return s.GetName() == "invoke_agent over_a2a" })
	request := only(t, all, func(s collector.Span) bool { return s.GetName() == "SendStreamingMessage" })
	if request.Trace() == member.Trace() || request.Parent() != "" || len(request.GetLinks()) != 1 || hex.EncodeToString(request.GetLinks()[0].GetSpanId()) != member.ID() {
		t.Errorf("the request of the member:\n%v\nwant a link to\n%v", request.Span, member.Span)
	}
}

// TestT_51_Sampling: a caller that is not trusted cannot force sampling, and servers that are called do not sample
// either.
func TestT_51_Sampling(t *testing.T) {
	to := traced(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	w := newWorld(t, settings{back: "\n  tracing: {trust_callers: [\"*\"]}"})
	hook := rig.NewReceiver(t)
	w.run(t, hook)
	w.front.Stop()
	w.back.Stop()
	if n := len(to.Spans()); n > 0 {
		t.Errorf("%d spans, want none", n)
	}
	for _, n := range hook.Taken() {
		if value := n.Header.Get("Traceparent"); !strings.HasSuffix(value, "-00") || strings.Contains(value, theirTrace) {
			t.Errorf("the webhook was sent %q, want a trace that is not sampled", value)
		}
	}
}
