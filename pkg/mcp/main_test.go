package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/agentteams/team-server/pkg/mcp"
)

// TestMain is also the program that the tests start: an MCP server on its standard
// input and output.
func TestMain(m *testing.M) {
	switch os.Getenv("MCP_TEST_PROGRAM") {
	case "":
		goleak.VerifyTestMain(m)
	case "crash": // says why, the last line without its end, and ends
		fmt.Fprint(os.Stderr, "reading config\ncannot open data.db: permission denied")
		os.Exit(7)
	case "waits": // for a file, and then answers
		for range 1000 {
			if _, err := os.Stat(os.Getenv("WAIT_FOR")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		_ = server("plain", nil).Run(context.Background(), &sdk.StdioTransport{}) // ends with its input
	case "exact":
		exactServer()
	case "silent": // reads, and never answers
		_, _ = os.Stdin.Read(make([]byte, 1<<20))
		for range 100 {
			time.Sleep(100 * time.Millisecond)
		}
	default:
		fmt.Fprintln(os.Stderr, "the program starts")
		if os.Getenv("MCP_TEST_PROGRAM") == "noisy" {
			fmt.Print("[db] Connected to data.db\r\n\n  \n", `{"level":"info","msg":"ready"}`, "\n42\n[1, {}]\n")
		}
		err := server(os.Getenv("MCP_TEST_PROGRAM"), nil).Run(context.Background(), &sdk.StdioTransport{})
		if err != nil && !errors.Is(err, context.Canceled) {
			os.Exit(1)
		}
	}
}

// hung counts the calls of the tool hang in progress, and released those that were
// canceled, for servers in this process.
var hung, released atomic.Int32

// server is an MCP server with tools of all kinds; which changes its list, and end
// ends calls that hang.
func server(which string, end <-chan struct{}) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, versions(which))
	object := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
	add := func(name string, hints *sdk.ToolAnnotations, do sdk.ToolHandler) {
		s.AddTool(&sdk.Tool{Name: name, Description: "Does " + name + ".", InputSchema: object, Annotations: hints}, do)
	}
	say := func(text string) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil
	}
	add("echo", &sdk.ToolAnnotations{ReadOnlyHint: true}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return say(fmt.Sprintf("%s with key %v", r.Params.Arguments, r.Params.Meta[mcp.KeyMeta]))
	})
	add("put", &sdk.ToolAnnotations{IdempotentHint: true}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return say("put") })
	add("pid", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return say(strconv.Itoa(os.Getpid()))
	})
	add("variables", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		dir, _ := os.Getwd()
		return say(dir + "\n" + strings.Join(os.Environ(), "\n"))
	})
	add("show", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: "see"}, &sdk.ImageContent{MIMEType: "image/png", Data: []byte("abc")}, &sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("a")},
			&sdk.ResourceLink{URI: "file:///x", Name: "x"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///y", MIMEType: "text/plain", Text: "inside"}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///z", MIMEType: "image/gif", Blob: []byte("1234")}},
		}}, nil
	})
	add("data", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{}, StructuredContent: map[string]any{"n": 1}}, nil
	})
	add("summary", nil, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) { // the text is given
		var in struct {
			Text  string
			Fails bool
		}
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{
			IsError: in.Fails, StructuredContent: map[string]any{"n": 1, "of": "<a> & b"},
			Content: []sdk.Content{&sdk.TextContent{Text: in.Text}, &sdk.ResourceLink{URI: "test://a", Name: "a", MIMEType: "text/plain", Description: "More."}},
		}, nil
	})
	add("noise", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		fmt.Printf("debug: %s\n{\"jsonrpc\":\"2.0\"}\nnull\n", os.Getenv("TOKEN"))
		return say("fine")
	})
	add("long", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return say(strings.Repeat("ü", 200<<10))
	})
	add("fails", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "no such page"}}}, nil
	})
	add("asks_too_late", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { // as FastMCP 4.2.3 does
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."}}}, nil
	})
	add("refuses", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, errors.New("not for you")
	})
	add("hang", nil, func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		hung.Add(1)
		select {
		case <-ctx.Done():
			released.Add(1)
		case <-end:
		}
		return say("no more")
	})
	add("steps", nil, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) { // takes longer than a call may without progress
		for i := range 6 {
			time.Sleep(200 * time.Millisecond)
			p := &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}
			if err := r.Session.NotifyProgress(ctx, p); err != nil {
				return nil, err
			}
		}
		return say("six steps")
	})
	add("die", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "out of paper")
		os.Exit(3)
		return nil, nil
	})
	add("grow", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		add("grown", nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return say("grown") })
		return say("grew")
	})
	addAsking(s, which, end)
	if strings.Contains(which, "resources") {
		addResources(s)
	}
	if which == "resources taken" {
		add("web_read_resource", nil, nil)
	}
	if which == "odd" {
		add("files.read", nil, nil)
		add(strings.Repeat("x", 70), nil, nil)
	}
	if which == "same" {
		add("files.read", nil, nil)
		add("files_read", nil, nil)
	}
	return s
}
