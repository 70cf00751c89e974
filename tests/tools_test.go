package tests

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// fromFile serves a configuration, whose agents ask models, and keeps what is logged.
func fromFile(t *testing.T, place rig.Place, text string, env map[string]string, models ...rig.Models) (rig.Target, *observer.ObservedLogs) {
	t.Helper()
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.DebugLevel)
	out, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	m := rig.Manager(t)
	agents, err := build.Register(build.Config{Definition: def, Registry: m, Egress: out, Log: rig.Logger(t, core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agents.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig.Serve(t, server.Config{Agents: m, Store: kept(t, place), Log: zap.New(core)}, models...), logs
}

// TestS_53_ModelsAndKeys runs a coordinator of one provider with a member that has
// no model and one that has another provider's: each request carries its own key,
// and no key comes out anywhere.
func TestS_53_ModelsAndKeys(t *testing.T) {
	t.Parallel()
	onStages(t, modelsAndKeys)
}

func modelsAndKeys(t *testing.T, place rig.Place) {
	const leadKey, ownKey = rig.Secret + "-of-the-lead", rig.Secret + "-of-the-member"
	lead, own := fakellm.New(t), fakellm.New(t)
	lead.Answer("big", func(r *fakellm.Request) fakellm.Turn {
		switch {
		case len(r.Tools) == 0: // the member without a model
			return fakellm.Turn{Text: "inherited: " + r.Last()}
		case r.Last() != "tides":
			return fakellm.Turn{Text: "both answered"}
		}
		return fakellm.Turn{Calls: []fakellm.Call{
			{Name: "delegate_to_plain", Arguments: `{"task":"one"}`}, {Name: "delegate_to_other", Arguments: `{"task":"two"}`},
		}}
	})
	own.Answer("small", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "own: " + r.Last()} })
	target, logs := fromFile(t, place, `version: v1
models:
  big: {provider: openai, name: big, base_url: "${LEAD}", api_key: "${LEAD_KEY}"}
  small: {provider: anthropic, name: small, base_url: "${OWN}", api_key: "${OWN_KEY}"}
agents:
  plain: {description: Does one thing., instructions: "Be the one without a model."}
  other: {description: Does another., model: small, instructions: "Be the other."}
teams:
  lead: {members: [{agent: plain}, {agent: other}], coordinator: {leader: {model: big, instructions: "Secret plan of the leader."}}}
`, map[string]string{"LEAD": lead.URL, "OWN": own.Root, "LEAD_KEY": leadKey, "OWN_KEY": ownKey}, lead, own)
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		resp, err := c.Send(t.Context(), rig.Text("lead", rand.Text(), "tides"))
		if err != nil {
			t.Fatal(err)
		}
		task := resp.GetTask()
		if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Fatal(task)
		}
		shown, err := protojson.Marshal(task)
		if err != nil || strings.Contains(string(shown), "sk-") {
			t.Errorf("R-003-15: a key is in the task: %s %v", shown, err)
		}
	})
	t.Run("R-003-14 C-26 the member without a model has the lead's model and key, and nothing else of it", func(t *testing.T) {
		n := 0
		for _, r := range lead.Requests() {
			if r.Auth != "Bearer "+leadKey {
				t.Errorf("the lead's endpoint was shown %q", r.Auth)
			}
			if len(r.Tools) == 0 {
				n++
				if r.Model != "big" || r.System != "Be the one without a model." || strings.Contains(string(r.Body), "Secret plan") {
					t.Errorf("the member was asked %s", r.Body)
				}
			}
		}
		if n != 3 {
			t.Errorf("the member without a model was asked %d times, want once a binding", n)
		}
	})
	t.Run("R-003-15 the member with its own uses its own", func(t *testing.T) {
		if n := len(own.Requests()); n != 3 {
			t.Errorf("asked %d times", n)
		}
		for _, r := range own.Requests() {
			if r.Auth != ownKey || r.Header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(r.Header), leadKey) {
				t.Errorf("S-53: the lead's key went to another provider: %v", r.Header)
			}
		}
	})
	for _, e := range logs.All() {
		if said := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(said, "sk-") {
			t.Errorf("R-003-15: a key is in the log: %s", said)
		}
	}
}

// tides is an MCP server with one tool.
func tides(t *testing.T) string {
	s := sdk.NewServer(&sdk.Implementation{Name: "tides", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{
		Name: "height", Description: "Tells how high the tide is.", InputSchema: json.RawMessage(`{"type":"object","properties":{"port":{"type":"string"}}}`),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
	}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "4.2 m with " + string(r.Params.Arguments)}}}, nil
	})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	return h.URL
}

// TestR_002_2_5_ToolsOfItsOwn has a member with a tool of an MCP server: it uses it by
// itself, and neither the leader nor another member sees it.
func TestR_002_2_5_ToolsOfItsOwn(t *testing.T) {
	t.Parallel()
	onStages(t, toolsOfItsOwn)
}

func toolsOfItsOwn(t *testing.T, place rig.Place) {
	llm := fakellm.New(t)
	llm.Answer("lead", func(r *fakellm.Request) fakellm.Turn {
		if r.Last() == "tides" {
			return fakellm.Turn{Calls: []fakellm.Call{
				{Name: "delegate_to_pilot", Arguments: `{"task":"Dover"}`}, {Name: "delegate_to_clerk", Arguments: `{"task":"Dover"}`},
			}}
		}
		return fakellm.Turn{Text: r.Messages[2].Text + "|" + r.Messages[3].Text}
	})
	use := func(r *fakellm.Request) fakellm.Turn {
		if r.Messages[len(r.Messages)-1].Role == "tool" {
			return fakellm.Turn{Text: r.Model + " says: " + r.Last()}
		}
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "height", Arguments: `{"port":"Dover"}`}}}
	}
	llm.Answer("pilot", use)
	llm.Answer("clerk", use)
	target, _ := fromFile(t, place, `version: v1
models:
  lead: {provider: openai, name: lead, base_url: "${LLM}"}
  pilot: {provider: gemini, name: pilot, base_url: "${ROOT}"}
  clerk: {provider: anthropic, name: clerk, base_url: "${ROOT}"}
tools: {sea: {mcp: {url: "${SEA}"}}}
agents:
  pilot: {description: Knows tides., model: pilot, tools: [sea]}
  clerk: {description: Knows nothing., model: clerk}
teams:
  lead: {members: [{agent: pilot}, {agent: clerk}], coordinator: {leader: {model: lead}}}
`, map[string]string{"LLM": llm.URL, "ROOT": llm.Root, "SEA": tides(t)}, llm)
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		resp, err := c.Send(t.Context(), rig.Text("lead", rand.Text(), "tides"))
		if err != nil {
			t.Fatal(err)
		}
		got := resp.GetTask().GetArtifacts()[0].GetParts()[0].GetText()
		if !strings.Contains(got, `pilot says: 4.2 m with {"port":"Dover"}`) {
			t.Errorf("answer %q", got)
		}
		if !strings.Contains(got, `clerk says: there is no tool "height"`) {
			t.Errorf("S-54: the member without the tool: %q", got)
		}
	})
	for _, r := range llm.Requests("lead", "clerk") {
		if slices.Contains(r.Tools, "height") {
			t.Errorf("%s was offered %v", r.Model, r.Tools)
		}
	}
	for _, r := range llm.Requests("pilot") {
		if !slices.Equal(r.Tools, []string{"height"}) || !strings.Contains(string(r.Body), `"port"`) {
			t.Errorf("the pilot was offered %v", r.Tools)
		}
	}
}

// TestToolServerDownAtFirst: a server starts without an MCP server that does not answer, and serves its agents. One that
// has its tools says so to its model and in its task; as soon as the MCP server answers, it has them.
func TestToolServerDownAtFirst(t *testing.T) {
	t.Parallel()
	llm := fakellm.New(t)
	llm.Answer("pilot", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "with " + strings.Join(r.Tools, ",")} })
	up := make(chan struct{})
	sea, err := url.Parse(tides(t))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-up:
			httputil.NewSingleHostReverseProxy(sea).ServeHTTP(w, r)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer front.Close()
	target, logs := fromFile(t, rig.Memory(t), `version: v1
models: {pilot: {provider: openai, name: pilot, base_url: "${LLM}"}}
tools: {sea: {mcp: {url: "${SEA}"}, approve: {tools: [height]}}}
agents: {pilot: {description: Knows tides., model: pilot, instructions: Help., tools: [sea]}}
`, map[string]string{"LLM": llm.URL, "SEA": front.URL}, llm)
	if n := logs.FilterMessage("an MCP server does not answer, and its tools are missing until it does; team-server doctor shows why").FilterField(zap.String("tool", "sea")).Len(); n != 1 {
		t.Errorf("logged %d times: %v", n, logs.All())
	}
	c := rig.NewREST(target)
	send := func() *a2av1.Task {
		t.Helper()
		resp, err := c.Send(t.Context(), rig.Text("pilot", rand.Text(), "tides"))
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetTask()
	}
	if got := send().GetArtifacts()[0].GetParts()[0].GetText(); got != "with " {
		t.Errorf("without its tools: %q", got)
	}
	if body := string(llm.Requests("pilot")[0].Body); !strings.Contains(body, "At the moment the tools of") || !strings.Contains(body, "If the task needs them, say that.") {
		t.Errorf("the model was not told: %s", body)
	}
	close(up)
	if got := send().GetArtifacts()[0].GetParts()[0].GetText(); got != "with height" {
		t.Errorf("with its tools: %q", got)
	}
}
