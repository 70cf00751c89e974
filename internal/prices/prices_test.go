package prices

import (
	"slices"
	"testing"
	"time"
)

// TestShipped: the list can be read, each model has prices above 0, no name is there twice, and the source is named.
func TestShipped(t *testing.T) {
	t.Parallel()
	l := Shipped()
	if _, err := time.Parse(time.DateOnly, l.Date); err != nil || l.Version == "" || l.String() != "genai-prices "+l.Version+" of "+l.Date {
		t.Errorf("the list is %v", l)
	}
	seen := map[[2]string]bool{}
	for _, m := range l.Models {
		if m.Input <= 0 || m.Output <= 0 || m.CachedInput != nil && *m.CachedInput > m.Input || m.CacheWrite != nil && *m.CacheWrite < m.Input {
			t.Errorf("%s has odd prices", m.Names)
		}
		for _, name := range m.Names {
			if key := [2]string{m.Provider, name}; seen[key] {
				t.Errorf("%v is there twice", key)
			} else {
				seen[key] = true
			}
		}
	}
	if len(seen) < 200 {
		t.Errorf("the list has %d names", len(seen))
	}
}

// TestOf: a price is found by the name of a model, also with the date of a snapshot where the provider has such names, and
// by no other name. It is the highest of several. Names without a price stay without.
func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider, name                    string
		input, cached, cacheWrite, output float64 // 0: none
	}{
		{"openai", "gpt-4o", 2.5, 1.25, 0, 10},
		{"openai", "gpt-4o-2024-05-13", 5, 0, 0, 15},
		{"openai", "GPT-4o", 2.5, 1.25, 0, 10},
		{"openai", "gpt-4o-2099-01-01", 0, 0, 0, 0},
		{"openai", "gpt-4o-search-preview", 0, 0, 0, 0}, // each search costs, too
		{"openai", "gpt-oss-120b", 0, 0, 0, 0},          // OpenAI does not sell it
		{"openai", "gpt-5.4", 5, 0.5, 0, 22.5},          // above 272,000 tokens
		{"openai", "text-embedding-3-small", 0, 0, 0, 0},
		{"anthropic", "claude-opus-4-5", 5, 0.5, 6.25, 25},
		{"anthropic", "claude-opus-4-5-20251101", 5, 0.5, 6.25, 25},
		{"anthropic", "claude-opus-4-5-turbo", 0, 0, 0, 0},
		{"anthropic", "claude-sonnet-4-5", 6, 0.6, 7.5, 22.5}, // above 200,000 tokens
		{"gemini", "gemini-2.5-pro", 2.5, 0.25, 0, 15},
		{"gemini", "gemini-2.5-flash", 1, 0.1, 0, 2.5},    // of audio
		{"gemini", "gemini-3.6-flash", 1.5, 0.15, 0, 7.5}, // from 2027 on
		{"gemini", "claude-opus-4-5", 0, 0, 0, 0},
		{"deepseek", "deepseek-chat", 0.27, 0.07, 0, 1.1}, // by day
		{"groq", "openai/gpt-oss-120b", 0.15, 0.075, 0, 0.6},
		{"azure", "gpt-4o", 0, 0, 0, 0},
		{"openrouter", "openai/gpt-4o", 0, 0, 0, 0},
		{"ollama", "gpt-4o", 0, 0, 0, 0},
		{"", "", 0, 0, 0, 0},
	} {
		p := Of(c.provider, c.name)
		got, want := []float64{p.GetInput(), p.GetCachedInput(), p.GetCacheWrite(), p.GetOutput()}, []float64{c.input, c.cached, c.cacheWrite, c.output}
		if !slices.Equal(got, want) || (p == nil) != (c.input == 0) {
			t.Errorf("%s %s costs %v, want %v", c.provider, c.name, p, want)
		}
	}
}
