package config

import "strings"

// bracket is an open [ or {, with the state of its latest entry.
type bracket struct {
	at    spot
	colon bool // the entry has a key and a colon
	done  bool // the entry has a value
	plain bool // the value has no quotes
}

// flow reads lists and mappings in brackets, up to the end of the line with the last
// closing bracket.
func (o *outline) flow(at spot) {
	var stack []bracket
	key, i, j := o.key, at.line, at.col
	for o.found == nil {
		j += len(o.lines[i][j:]) - len(strings.TrimLeft(o.lines[i][j:], " \t"))
		rest := o.lines[i][j:]
		if rest == "" || rest[0] == '#' {
			if i, j = i+1, 0; i == len(o.lines) {
				o.unclosed(stack[len(stack)-1].at)
				return
			}
			if o.leftOpen(stack, i) {
				o.unclosed(stack[len(stack)-1].at)
			}
			continue
		}
		var end spot
		if stack, end = o.token(stack, spot{i, j}); len(stack) == 0 {
			o.key = key
			o.behindBracket(end)
			return
		}
		i, j = end.line, end.col
	}
}

// leftOpen reports whether a line has keys or entries at the level of the key that the
// brackets belong to, so the brackets should have been closed before it.
func (o *outline) leftOpen(stack []bracket, line int) bool {
	first, text := stack[0].at, o.lines[line]
	outer, indent := indentOf(o.lines[first.line]), indentOf(text)
	return first.col > outer && indent <= outer && (isItem(text[indent:]) || keyEnd(text[indent:]) > 0)
}

// token reads one punctuation mark, value or key within brackets and returns where it
// ends.
func (o *outline) token(stack []bracket, at spot) ([]bracket, spot) {
	text := o.lines[at.line]
	next := spot{at.line, at.col + 1}
	var top *bracket
	if len(stack) > 0 {
		top = &stack[len(stack)-1]
	}
	if m := property.FindString(text[at.col:]); m != "" && top != nil && !top.done {
		return stack, spot{at.line, at.col + len(m)}
	}
	switch c := text[at.col]; c {
	case '[', '{':
		switch {
		case top == nil:
		case top.done && top.plain:
			o.bracketIn(at)
		case strings.HasPrefix(text[at.col:], "{{"):
			o.braces(at)
		case top.done:
			o.noComma(at)
		}
		if top != nil {
			top.done, top.plain = true, false
		}
		return append(stack, bracket{at: at}), next
	case ']', '}':
		if what := o.lines[top.at.line][top.at.col : top.at.col+1]; closing[what] != string(c) {
			o.unclosed(top.at)
		}
		return stack[:len(stack)-1], next
	case ',':
		*top = bracket{at: top.at}
		return stack, next
	case ':':
		if top.done {
			top.colon, top.done = true, false
			return stack, next
		}
	case '"', '\'':
		if top.done {
			o.behindValue(top, at)
		}
		end, _ := o.closing(at)
		top.done, top.plain = true, false
		return stack, end
	}
	return stack, o.word(top, at)
}

// word reads text without quotes within brackets: a key up to its colon, or a value.
func (o *outline) word(top *bracket, at spot) spot {
	text := o.lines[at.line]
	if top.done && !top.plain {
		o.behindValue(top, at)
	}
	end := at.col + 1
	for end < len(text) && !strings.ContainsRune(",[]{}", rune(text[end])) && !strings.HasPrefix(text[end:], " #") && !endsKey(text, end) {
		end++
	}
	word := text[at.col:end]
	colon := end < len(text) && text[end] == ':'
	switch {
	case !top.done && strings.ContainsRune("@`%*|>", rune(word[0])):
		o.reserved(at, word)
	case colon && top.done && top.plain && !top.colon, colon && top.done && keyWord.FindString(word) == strings.TrimSpace(word):
		o.noComma(at)
	case colon && top.colon:
		o.colonIn(spot{at.line, end}, text[at.col:])
	}
	if !top.done {
		o.first = word
	}
	if !colon {
		top.done, top.plain = true, true
		return spot{at.line, end}
	}
	if !top.colon {
		o.key = strings.TrimSpace(word)
	}
	top.colon, top.done, top.plain = true, false, false
	return spot{at.line, end + 1}
}

// endsKey reports whether a colon ends a key within brackets.
func endsKey(text string, i int) bool {
	return text[i] == ':' && (i+1 == len(text) || strings.ContainsRune(" \t,[]{}", rune(text[i+1])))
}

// bracketIn reports a bracket within an unquoted value in brackets.
func (o *outline) bracketIn(at spot) {
	what := o.lines[at.line][at.col : at.col+1]
	if strings.HasPrefix(o.lines[at.line][at.col:], "{{") {
		what = "{{"
	}
	o.fail(at, "a value with "+what+" in it must be quoted within brackets", o.quoteHint(o.first))
}

// behindValue reports text that follows a complete value without a comma.
func (o *outline) behindValue(top *bracket, at spot) {
	before := strings.TrimRight(o.lines[at.line][:at.col], " ")
	if before != "" && !top.plain && strings.ContainsAny(before[len(before)-1:], `"'`) && !strings.ContainsAny(o.lines[at.line][at.col:at.col+1], `"'`) && keyEnd(o.lines[at.line][at.col:]) < 0 {
		quote := before[len(before)-1:]
		escape := map[string]string{`"`: `\"`, "'": "''"}[quote]
		o.fail(at, "text after the closing "+quote, "put the whole value in quotes; within them, write "+escape+" for "+quote)
		return
	}
	o.noComma(at)
}

func (o *outline) noComma(at spot) {
	o.fail(at, "a comma is missing before this", "write a comma between the entries")
}

// behindBracket reads the rest of the line after the last closing bracket.
func (o *outline) behindBracket(end spot) {
	text := o.lines[end.line]
	rest := strings.TrimLeft(text[end.col:], " \t")
	at := spot{end.line, len(text) - len(rest)}
	switch {
	case blank(rest), rest[0] == ':': // the brackets are a key
		o.at = end.line + 1
	case rest[0] == '}' || rest[0] == ']':
		opens := map[byte]string{'}': "{", ']': "["}[rest[0]]
		o.fail(at, "unexpected "+rest[:1], "remove it, or add the missing "+opens)
	default:
		hint := o.quoteHint(rest)
		o.fail(at, "text after the closing "+text[end.col-1:end.col], "put the value in quotes if it is text"+strings.TrimPrefix(hint, "put the value in quotes"))
	}
}
