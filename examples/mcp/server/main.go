// Command server is an MCP server with the tools of a small shop, over its standard
// input and output.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	shop := &shop{left: map[string]int{"tea": 40, "cups": 6}}
	mcp.AddTool(s, &mcp.Tool{
		Name: "price", Description: "Says what goods cost, if there are enough.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}, // so it is called again after a crash
	}, shop.price)
	mcp.AddTool(s, &mcp.Tool{Name: "reserve", Description: "Reserves goods."}, shop.reserve) // not read-only: a person is asked after a crash
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// order is the input of both tools, such as "3 tea".
type order struct {
	Order string `json:"order" jsonschema:"a number and the goods, such as 3 tea"`
}

// cents holds the prices of the goods, in cents.
var cents = map[string]int{"tea": 320, "cups": 750}

type shop struct {
	mu   sync.Mutex
	left map[string]int // guarded by mu
}

// read returns the number and the goods of an order.
func read(o order) (n int, goods string, err error) {
	if _, err := fmt.Sscanf(strings.TrimSpace(o.Order), "%d %s", &n, &goods); err != nil || n < 1 {
		return 0, "", fmt.Errorf("%q is no order; write a number and the goods, such as 3 tea", o.Order)
	}
	if cents[goods] == 0 {
		return 0, "", fmt.Errorf("there is no %s here", goods)
	}
	return n, goods, nil
}

func (s *shop) price(_ context.Context, _ *mcp.CallToolRequest, o order) (*mcp.CallToolResult, any, error) {
	n, goods, err := read(o)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.left[goods] {
		return nil, nil, fmt.Errorf("there are only %d %s", s.left[goods], goods)
	}
	total := n * cents[goods]
	return say("%d %s: %d.%02d EUR, in stock.", n, goods, total/100, total%100), nil, nil
}

func (s *shop) reserve(_ context.Context, _ *mcp.CallToolRequest, o order) (*mcp.CallToolResult, any, error) {
	n, goods, err := read(o)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[goods] -= n
	return say("Reserved; %d are left.", s.left[goods]), nil, nil
}

func say(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}
