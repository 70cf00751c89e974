package model

import "strings"

// thinkTags are the tags between which models write their reasoning, if the endpoint does not separate
// it from the answer: DeepSeek R1, Qwen and most others; models that were trained on their answers;
// Gemma; Seed-OSS; Magistral.
var thinkTags = []struct{ open, end string }{
	{"<think>", "</think>"}, {"<thinking>", "</thinking>"}, {"<thought>", "</thought>"},
	{"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"},
}

// Thinking removes the reasoning at the beginning of a text that arrives in pieces. The zero value is
// ready for use.
type Thinking struct {
	held   string // what cannot be decided yet
	inside string // the end of the block that has begun; "" outside
	text   bool   // the answer has begun
	found  bool
}

// Add returns the part of the answer that a piece makes known.
func (t *Thinking) Add(piece string) string {
	if t.text {
		return piece
	}
	t.held += piece
	for {
		if t.inside != "" {
			at := strings.Index(t.held, t.inside)
			if at < 0 {
				t.held = t.held[max(0, len(t.held)-len(t.inside)+1):]
				return ""
			}
			t.held, t.inside = t.held[at+len(t.inside):], ""
		}
		rest := strings.TrimLeft(t.held, " \t\r\n")
		if t.inside = opened(rest); t.inside != "" {
			t.found = true
			continue
		}
		if mayOpen(rest) {
			return ""
		}
		t.text = true
		if t.found {
			return rest
		}
		return t.held
	}
}

// End returns what was held back when the text has ended.
func (t *Thinking) End() string {
	if t.text || t.inside != "" {
		return ""
	}
	t.text = true
	if t.found {
		return strings.TrimLeft(t.held, " \t\r\n")
	}
	return t.held
}

// Found reports whether the text began with reasoning.
func (t *Thinking) Found() bool { return t.found }

// opened returns the end of the block that a text begins with, or "".
func opened(text string) string {
	for _, tag := range thinkTags {
		if strings.HasPrefix(text, tag.open) {
			return tag.end
		}
	}
	return ""
}

// mayOpen reports whether more of a text can make it begin with a block.
func mayOpen(text string) bool {
	for _, tag := range thinkTags {
		if strings.HasPrefix(tag.open, text) {
			return true
		}
	}
	return false
}

// AfterThinking returns the answer in a whole text whose reasoning has an end and no beginning, because
// the chat template wrote the beginning into the prompt. The end must be a line of its own.
func AfterThinking(text string) string {
	for _, tag := range thinkTags {
		before, after, found := strings.Cut(text, tag.end)
		alone := strings.HasSuffix(before, "\n") && (after == "" || strings.HasPrefix(after, "\n") || strings.HasPrefix(after, "\r\n"))
		if found && alone && !strings.Contains(before, tag.open) {
			return strings.TrimLeft(after, " \t\r\n")
		}
	}
	return text
}

// WithoutThinking returns the answer in a whole text, without reasoning.
func WithoutThinking(text string) string {
	var t Thinking
	said := t.Add(text) + t.End()
	if !t.Found() {
		said = AfterThinking(said)
	}
	return said
}
