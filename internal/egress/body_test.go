package egress_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/agent"
)

// room notes what a call reserves.
type room struct{ t *testing.T }

func (r room) Grow(n int64) { r.t.Errorf("a call without memory grew by %d bytes", n) }
func (r room) Release()     {}

// TestLargeAnswersWaitForMemory reads answers in a call of a run: memory is reserved once, before the rest of a large
// one is read. An answer that is refused memory is not read on.
func TestLargeAnswersWaitForMemory(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", map[string]int{"/small": 1000, "/large": 1 << 20}[r.URL.Path]))
	}))
	defer s.Close()
	d, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct {
		path   string
		refuse error
		want   []int64
		n      int
	}{
		{"/small", nil, []int64{10}, 1000},
		{"/large", nil, []int64{10, agent.MaxText}, 1 << 20},
		{"/large", agent.ErrCanceled, []int64{10, agent.MaxText}, -1},
	} {
		var asked []int64
		run := &agent.Run{CallMemory: func(_ context.Context, n int64) (agent.Room, error) {
			if asked = append(asked, n); n == 10 {
				return nil, nil //nolint:nilnil // it needs none
			}
			return room{t}, c.refuse
		}}
		ctx, end, err := run.BeginCall(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := d.HTTPClient().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		end()
		if !slices.Equal(asked, c.want) || (err != nil) != (c.refuse != nil) || c.n >= 0 && len(b) != c.n || c.n < 0 && len(b) > 2*agent.LargeBytes {
			t.Errorf("%s: reserved %v, read %d bytes, %v", c.path, asked, len(b), err)
		}
	}
}
