//go:build linux

package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// long is the text of large answers: two large messages.
var long = string(large) + string(large)

// beElsewhere serves what the agents of the server call: a model, a tool, a remote agent, and a webhook that does not
// answer. It returns the exit code.
func beElsewhere() int {
	debug.SetMemoryLimit(attackerMemory / 2)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err == nil {
		err = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tools := mcp.NewServer(&mcp.Implementation{Name: "sea", Version: "1"}, nil)
	tools.AddTool(&mcp.Tool{Name: "dive", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: long}}}, nil
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/chat/completions", complete)
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{Stateless: true}))
	mux.HandleFunc("/hole", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	at := "http://" + l.Addr().String()
	mux.HandleFunc("/agent/.well-known/agent-card.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":"far","description":"Talks.","version":"1","supportedInterfaces":[{"url":"%s/agent","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"talk","name":"Talk","description":"Talks.","tags":["talk"]}]}`, at)
	})
	mux.HandleFunc("/agent", func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID json.RawMessage `json:"id"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"message":{"messageId":"a","role":"ROLE_AGENT","parts":[{"text":"`, req.ID)
		_, _ = io.WriteString(w, long)
		_, _ = io.WriteString(w, `"}]}}}`)
	})
	fmt.Println("ready", l.Addr())
	err = http.Serve(l, mux)
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// complete answers as a model: with a plan or a call of a tool if there is one, and else with a long text.
func complete(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tool, arguments := "", "{}"
	if len(req.Tools) > 0 && req.Messages[len(req.Messages)-1].Role == "user" {
		names := []string{}
		for _, t := range req.Tools {
			names = append(names, t.Function.Name)
		}
		tool = names[0]
		if slices.Contains(names, "plan") {
			tool, arguments = "plan", fmt.Sprintf(`{"steps":[{"id":"a","member":"echo","task":%q}]}`, strings.Repeat("{{input}}", 2000))
		} else if slices.Contains(names, "dive") {
			tool = "dive"
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(delta, finish string) {
		fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
	}
	if tool != "" {
		event(fmt.Sprintf(`{"role":"assistant","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":%q,"arguments":%q}}]}`, tool, arguments), "null")
		event("{}", `"tool_calls"`)
	} else {
		for part := range slices.Chunk([]byte(long), 64<<10) {
			event(fmt.Sprintf(`{"content":%q}`, part), "null")
		}
		event("{}", `"stop"`)
	}
	_, _ = io.WriteString(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":10,\"total_tokens\":20}}\n\ndata: [DONE]\n\n")
}
