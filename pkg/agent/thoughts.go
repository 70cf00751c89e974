package agent

import "strings"

// thoughtTag is a pair of marks between which models write their reasoning.
type thoughtTag struct{ open, end string }

// thoughtTags are those of DeepSeek R1, Qwen and most others; of models that were trained on their answers; of Gemma;
// of Seed-OSS; and of Magistral.
var thoughtTags = []thoughtTag{
	{"<think>", "</think>"}, {"<thinking>", "</thinking>"}, {"<thought>", "</thought>"},
	{"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"},
}

const (
	blanks        = " \t\r\n"
	byteOrderMark = "\ufeff"
)

// ThoughtFilter removes the reasoning that a model writes at the beginning of a text, if the endpoint does not
// separate it, from a text that arrives in pieces. The zero value is ready for use. It is not safe for concurrent use.
type ThoughtFilter struct {
	held  string     // what cannot be decided yet
	seen  int        // the part of held that has no further tag
	block thoughtTag // the block that has begun
	depth int        // how often it has begun; 0 outside of a block
	ended bool       // it has ended once: held is what follows, and is the answer if there is no other end
	found bool       // there was a block
	text  bool       // the answer has begun
}

// Add returns the part of the answer that a piece makes known.
func (f *ThoughtFilter) Add(piece string) string {
	if f.text {
		return piece
	}
	f.held += piece
	for f.skip() {
		f.held = strings.TrimPrefix(f.held, byteOrderMark)
		rest := strings.TrimLeft(f.held, blanks)
		if f.opens(rest) {
			continue
		}
		if mayOpen(rest) {
			return ""
		}
		return f.rest()
	}
	return ""
}

// End returns what was held back when the text has ended.
func (f *ThoughtFilter) End() string {
	if f.text || f.depth > 0 && !f.ended {
		return ""
	}
	return f.rest()
}

// rest begins the answer with what is held back.
func (f *ThoughtFilter) rest() string {
	f.text = true
	if f.found {
		return strings.TrimLeft(f.held, blanks)
	}
	return f.held
}

// opens begins a block if a text begins with one.
func (f *ThoughtFilter) opens(text string) bool {
	for _, t := range thoughtTags {
		if rest, ok := strings.CutPrefix(text, t.open); ok {
			f.held, f.seen, f.block, f.depth, f.ended, f.found = rest, 0, t, 1, false, true
			return true
		}
	}
	return false
}

// skip skips the block that has begun, with blocks of its kind in it. It reports whether the text is outside
// of a block. Templates and models both write the beginning, so a block may begin more often than it ends.
func (f *ThoughtFilter) skip() bool {
	for f.depth > 0 {
		rest := f.held[f.seen:]
		open, end := strings.Index(rest, f.block.open), strings.Index(rest, f.block.end)
		switch {
		case end >= 0 && (open < 0 || end < open):
			f.held, f.seen, f.ended = rest[end+len(f.block.end):], 0, true
			f.depth--
		case open >= 0:
			f.seen += open + len(f.block.open)
			f.depth++
		default: // the last bytes may begin a tag
			f.seen = max(f.seen, len(f.held)-len(f.block.end)+1)
			if !f.ended {
				f.held, f.seen = f.held[f.seen:], 0
			}
			return false
		}
	}
	return true
}

// mayOpen reports whether more of a text can make it begin with a block.
func mayOpen(text string) bool {
	for _, t := range thoughtTags {
		if strings.HasPrefix(t.open, text) {
			return true
		}
	}
	return strings.HasPrefix(byteOrderMark, text)
}

// AfterThoughts returns the answer in a whole text. Unlike a ThoughtFilter, it knows reasoning that has an end and no
// beginning, because the chat template wrote the beginning into the prompt. Such an end is a line of its own.
func AfterThoughts(text string) string {
	var f ThoughtFilter
	said := f.Add(text) + f.End()
	if f.found {
		return said
	}
	for _, t := range thoughtTags {
		if before, after, ok := cutLine(said, t.end); ok && !strings.Contains(before, t.open) {
			return strings.TrimLeft(after, blanks)
		}
	}
	return said
}

// cutLine cuts a text at the first line that consists of mark, and perhaps blanks around it.
func cutLine(text, mark string) (before, after string, ok bool) {
	for from := 0; ; {
		at := strings.Index(text[from:], mark)
		if at < 0 {
			return text, "", false
		}
		before, after = strings.TrimRight(text[:from+at], " \t"), strings.TrimLeft(text[from+at+len(mark):], " \t\r")
		if (before == "" || before[len(before)-1] == '\n') && (after == "" || after[0] == '\n') {
			return before, after, true
		}
		from += at + len(mark)
	}
}
