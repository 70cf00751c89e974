package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// mistake is the reason why a text is not YAML, and its position: line and column count from 1.
type mistake struct {
	line, col     int
	message, hint string
}

// level is a mapping or a list; its entries begin at one column.
type level struct {
	indent, line int // of its latest entry
	list         bool
	inEntry      bool // of a mapping: its first key follows a dash
}

// outline tracks the keys, lists and values of a text line by line. It supports a subset of YAML
// that is sufficient to find common mistakes.
type outline struct {
	lines  []string
	at     int     // index of the current line, from 0
	levels []level // outermost first
	key    string  // the latest key; empty in an entry without one
	open   bool    // the latest key or dash has no value yet; it may be below
	openAt int     // column of that key or dash
	plain  bool    // the latest value has no quotes and may continue on the next line
	lone   *spot   // start of the latest value, if it has a line of its own
	block  int     // indentation of the block text (|) that ended on the previous line; 0 if there was none
	first  string  // first line of the latest unquoted value
	found  *mistake
}

// spot is a place in a text: line and column (in bytes), both from 0.
type spot struct{ line, col int }

// findMistake returns the reason why a text is not YAML, or nil if it finds none.
func findMistake(lines []string) *mistake {
	o := &outline{lines: make([]string, len(lines))}
	for i, text := range lines {
		o.lines[i] = strings.TrimRight(text, "\r")
	}
	for o.found == nil && o.at < len(o.lines) {
		o.line()
	}
	return o.found
}

// fail records the first mistake and ignores later ones.
func (o *outline) fail(at spot, message, hint string) {
	if o.found == nil {
		col := utf8.RuneCountInString(o.lines[at.line][:min(at.col, len(o.lines[at.line]))]) + 1
		o.found = &mistake{line: at.line + 1, col: col, message: message, hint: hint}
	}
}

func (o *outline) top() level {
	if len(o.levels) == 0 {
		return level{indent: -1}
	}
	return o.levels[len(o.levels)-1]
}

// line reads the next line and all lines that belong to its value.
func (o *outline) line() {
	text := o.lines[o.at]
	indent := indentOf(text)
	rest := text[indent:]
	switch {
	case blank(rest) && rest != "" && rest[0] == '\t' && o.plain && indent <= o.top().indent:
		o.fail(spot{o.at, indent}, "this line is indented with a tab", "remove the tab")
		return
	case blank(rest):
		o.at++
		return
	case strings.HasPrefix(rest, "? "): // an explicit key, which is not a common mistake
		o.at = len(o.lines)
		return
	case indent == 0 && (rest == "---" || rest == "..." || strings.HasPrefix(rest, "--- ") || rest[0] == '%'):
		*o = outline{lines: o.lines, at: o.at + 1}
		return
	case rest[0] == '\t' && !o.continuesValue(indent, rest):
		o.fail(spot{o.at, indent}, "this line is indented with a tab", o.expected(text))
		return
	}
	o.place(indent, rest)
}

// continuesValue reports whether a line continues the value above it.
func (o *outline) continuesValue(indent int, rest string) bool {
	return o.plain && indent > o.top().indent && keyEnd(strings.TrimLeft(rest, "\t ")) < 0
}

// expected describes the indentation that a line which begins with tabs should have.
func (o *outline) expected(text string) string {
	top := o.top()
	if o.open {
		return "indent it by " + spaces(top.indent+2) + fmt.Sprintf(" instead, 2 more than line %d", top.line+1)
	}
	item := isItem(strings.TrimLeft(text, " \t"))
	for _, l := range slices.Backward(o.levels) {
		if l.list == item {
			return "indent it by " + spaces(l.indent) + fmt.Sprintf(" instead, as line %d", l.line+1)
		}
	}
	return "indent it with spaces instead"
}

// place finds the level that a line belongs to by its indentation, and reads the line.
func (o *outline) place(indent int, rest string) {
	item, key := isItem(rest), keyEnd(rest) >= 0
	if o.open && (indent > o.openAt || indent == o.openAt && item && !o.top().list) {
		o.content(indent)
		return
	}
	if o.plain && indent > o.top().indent {
		o.more(indent, rest)
		return
	}
	dropped := o.drop(indent)
	if top := o.top(); top.list && !item && len(o.levels) > 1 && o.levels[len(o.levels)-2].indent == indent {
		dropped = append(dropped, top)
		o.levels = o.levels[:len(o.levels)-1]
	}
	switch top := o.top(); {
	case len(o.levels) == 0 && len(dropped) == 0, top.indent == indent && top.list == item && (item || key):
		o.content(indent)
	case top.indent == indent && !top.list && !item:
		o.noColon(spot{o.at, indent})
	default:
		o.misplaced(indent, item, dropped)
	}
}

// drop removes the levels that are indented further.
func (o *outline) drop(indent int) []level {
	n := len(o.levels)
	for n > 0 && o.levels[n-1].indent > indent {
		n--
	}
	dropped := slices.Clone(o.levels[n:])
	o.levels = o.levels[:n]
	return dropped
}

// more reads a line that continues an unquoted value.
func (o *outline) more(indent int, rest string) {
	at := spot{o.at, indent}
	switch k := keyEnd(rest); {
	case k < 0:
		o.at++
	case o.noColonAbove():
	case isItem(rest) || oneWord.MatchString(rest[:k]):
		o.misplaced(indent, isItem(rest), nil)
	default:
		o.colonIn(spot{at.line, indent + k}, rest)
	}
}

// oneWord matches a key, as opposed to the start of a sentence with a colon in it.
var oneWord = regexp.MustCompile(`^["']?[\w.-]+["']?\s*$`)

// noColonAbove reports text where a key was expected and keys follow below.
func (o *outline) noColonAbove() bool {
	if o.lone == nil {
		return false
	}
	text := o.lines[o.lone.line][o.lone.col:]
	word := keyWord.FindString(text)
	known := isKey(word)
	if word == "" || !known && word != strings.TrimSpace(text) && !gluedColon.MatchString(text) {
		return false
	}
	o.noColon(*o.lone)
	return o.found != nil
}

var (
	keyWord    = regexp.MustCompile(`^[\w.-]+`)
	gluedColon = regexp.MustCompile(`^[\w.-]+:[^\s/]`)
)

// noColon reports text where a key was expected: the colon, or the space after it, is
// missing.
func (o *outline) noColon(at spot) {
	text := o.lines[at.line][at.col:]
	word := keyWord.FindString(text)
	shown := "KEY:"
	known := isKey(word)
	if known {
		shown = word + ":"
	}
	alone := word == strings.TrimSpace(text)
	hint := "write " + shown + " and a space before the value"
	switch {
	case alone && known:
		hint = "write " + shown
	case alone:
		hint = "write KEY: and its value after it, or below it with more spaces"
	case isDash(text):
		o.noSpaceBehindDash(at)
		return
	case !known && !gluedColon.MatchString(text):
		o.fail(at, "text where a key was expected", "indent it by "+spaces(at.col+2)+` if it belongs to the value above, or begin it with a key and ": "`)
		return
	}
	message := "a colon is missing after this key"
	at.col += len(word)
	if gluedColon.MatchString(text) {
		message = "a space is missing after the colon"
		at.col++
	}
	o.fail(at, message, hint)
}

func (o *outline) noSpaceBehindDash(at spot) {
	at.col++
	o.fail(at, "a space is missing after the dash", "write a dash and a space before each entry of a list")
}

// misplaced reports a line whose indentation matches no mapping or list that it can
// belong to, and names the nearest one that it can.
func (o *outline) misplaced(indent int, item bool, dropped []level) {
	what := "key"
	if item {
		what = "list item"
	} else if keyEnd(o.lines[o.at][indent:]) < 0 {
		what = "text"
	}
	var best *level
	for _, l := range slices.Concat(o.levels, dropped) {
		if l.list == item && (best == nil || distance(l.indent, indent) <= distance(best.indent, indent)) {
			best = &l
		}
	}
	at := spot{o.at, indent}
	if best == nil && item {
		o.fail(at, "a list item where a key was expected", "write the key of the list in the line above, or remove the dash")
		return
	}
	if best == nil {
		o.fail(at, "a "+what+" where a list item was expected", "begin the line with a dash and a space")
		return
	}
	hint := "indent it by " + spaces(best.indent) + fmt.Sprintf(" as line %d", best.line+1)
	switch {
	case o.block > indent:
		hint = "indent it by " + spaces(o.block) + " if it belongs to the text above, or by " + spaces(best.indent) + fmt.Sprintf(" as line %d", best.line+1)
	case best.indent == 0:
		hint = fmt.Sprintf("remove the spaces before it, as in line %d", best.line+1)
	case best.inEntry:
		hint = "indent it by " + spaces(best.indent) + fmt.Sprintf(", below the first key in line %d", best.line+1)
	}
	o.fail(at, "wrong indentation: "+spaces(indent)+" before this "+what, hint)
}

// content reads the entry at a column: dashes, then a key, then a value.
func (o *outline) content(col int) {
	text, entry := o.lines[o.at], false
	for isItem(text[col:]) {
		o.enter(level{col, o.at, true, false})
		o.key, o.open, o.openAt, entry = "", true, col, true
		col += 1 + len(text[col+1:]) - len(strings.TrimLeft(text[col+1:], " \t"))
		if blank(text[col:]) {
			o.plain, o.lone = false, nil
			o.at++
			return
		}
	}
	k := keyEnd(text[col:])
	if k < 0 || text[col] == '*' {
		if !entry {
			o.lone = &spot{o.at, col}
		} else {
			o.lone = nil
		}
		if isDash(text[col:]) && !entry && strings.ContainsAny(text[col+1:col+2], `{["'`) {
			o.noSpaceBehindDash(spot{o.at, col})
			return
		}
		o.value(col)
		return
	}
	if isDash(text[col:]) && !entry && len(text) > col+1 && text[col+1] != '-' {
		o.noSpaceBehindDash(spot{o.at, col})
		return
	}
	o.lone = nil
	o.enter(level{col, o.at, false, entry})
	o.key, o.openAt = strings.Trim(strings.TrimSpace(text[col:col+k]), `"'`), col
	o.value(col + k + 1)
}

// enter begins a level, or the next entry of one.
func (o *outline) enter(l level) {
	if top := o.top(); top.indent == l.indent && top.list == l.list {
		if !top.inEntry {
			o.levels[len(o.levels)-1].line = l.line
		}
		return
	}
	o.levels = append(o.levels, l)
}

var (
	property = regexp.MustCompile(`^([&!]\S*)(\s+|$)`)
	header   = regexp.MustCompile(`^[|>][-+0-9]*\s*(\s#.*)?$`)
)

// value reads a value: after a key or a dash, or on a line of its own.
func (o *outline) value(col int) {
	text := o.lines[o.at]
	col += len(text[col:]) - len(strings.TrimLeft(text[col:], " \t"))
	for m := property.FindString(text[col:]); m != ""; m = property.FindString(text[col:]) {
		col += len(m)
	}
	o.plain, o.open, o.block, o.first = false, false, 0, text[col:]
	rest, at := text[col:], spot{o.at, col}
	switch {
	case blank(rest):
		o.open = true
		o.at++
	case header.MatchString(rest):
		o.skipBlock(rest)
	case strings.HasPrefix(rest, "{{"):
		o.braces(at)
	case rest[0] == '{' || rest[0] == '[':
		o.flow(at)
	case rest[0] == '"' || rest[0] == '\'':
		o.quoted(at)
	case isItem(rest):
		o.fail(at, "a list item cannot follow a key on the same line", "write it on the next line, or write [one, two]")
	case strings.ContainsRune("@`%*&,]}|>", rune(rest[0])):
		o.reserved(at, rest)
	case keyEnd(rest) >= 0:
		o.colonIn(spot{o.at, col + keyEnd(rest)}, rest)
	default:
		// A comment ends the value.
		o.plain = !strings.Contains(rest, " #")
		o.at++
	}
}

// reserved reports a value that begins with a character that is special in YAML.
func (o *outline) reserved(at spot, value string) {
	o.fail(at, "a value that begins with "+value[:1]+" must be in quotes", o.quoteHint(value))
}

func (o *outline) braces(at spot) {
	o.fail(at, "a value that begins with {{ must be in quotes", o.quoteHint(o.lines[at.line][at.col:]))
}

// colonIn reports a colon within an unquoted value.
func (o *outline) colonIn(at spot, value string) {
	what := `": " in it`
	if blank(o.lines[at.line][at.col+1:]) {
		what = `":" at its end`
	}
	hint := o.quoteHint(o.first + value)
	word := keyWord.FindString(value)
	if isKey(word) && strings.HasPrefix(value[len(word):], ":") {
		hint = "write " + word + ": in the next line with more spaces; if it is text, " + hint
	}
	o.fail(at, "a value with "+what+" must be in quotes", hint)
}

// quoteHint describes how to write a value in quotes. It never shows the value, which
// may be a secret, and shows only keys that are known to the program.
func (o *outline) quoteHint(value string) string {
	key := ""
	if isKey(o.key) {
		key = o.key + ": "
	}
	quote := `"`
	if strings.ContainsAny(value, `"\`) {
		quote = "'"
	}
	if quote == "'" && strings.Contains(value, "'") {
		return "write " + key + "| and the text below it, indented by " + spaces(max(o.top().indent, 0)+2)
	}
	return "put the value in quotes: " + key + quote + "..." + quote
}

// skipBlock skips the text below | or >. An optional digit after the sign is the
// indentation of that text.
func (o *outline) skipBlock(header string) {
	parent := o.top().indent
	if i := strings.IndexAny(header[:min(3, len(header))], "123456789"); i > 0 {
		o.block = max(parent, 0) + int(header[i]-'0')
	}
	for o.at++; o.at < len(o.lines); o.at++ {
		text := o.lines[o.at]
		indent := indentOf(text)
		switch {
		case strings.TrimSpace(text) == "":
			continue
		case indent <= parent && strings.HasPrefix(text[indent:], "\t"):
			o.fail(spot{o.at, indent}, "this line is indented with a tab", "indent it by "+spaces(max(parent, 0)+2)+" instead")
			return
		case indent <= parent:
			o.block = 0
			return
		case o.block == 0:
			o.block = indent
		case indent < o.block:
			return
		}
	}
}

// quoted reads a quoted value and the rest of its line.
func (o *outline) quoted(at spot) {
	end, ok := o.closing(at)
	if !ok {
		return
	}
	rest := o.lines[end.line][end.col:]
	if !blank(rest) {
		o.behindQuote(at, end)
		return
	}
	o.at = end.line + 1
}

// behindQuote reports text after a closing quote. If lines between the quotes look like
// keys, it reports that the first quote is never closed.
func (o *outline) behindQuote(at, end spot) {
	quote := o.lines[at.line][at.col : at.col+1]
	for _, text := range o.lines[at.line+1 : end.line+1] {
		indent := indentOf(text)
		if indent <= indentOf(o.lines[at.line]) && (isItem(text[indent:]) || keyEnd(text[indent:]) > 0) {
			o.unclosed(at)
			return
		}
	}
	escape := `\"`
	if quote == "'" {
		escape = "''"
	}
	end.col += len(o.lines[end.line][end.col:]) - len(strings.TrimLeft(o.lines[end.line][end.col:], " "))
	o.fail(end, "text after the closing "+quote, "put the whole value in quotes; within them, write "+escape+" for "+quote)
}

// unclosed reports a bracket or quote that is never closed.
func (o *outline) unclosed(at spot) {
	what := o.lines[at.line][at.col : at.col+1]
	o.fail(at, "this "+what+" is never closed", "close it with "+closing[what])
}

// closing maps an open bracket or quote to the one that closes it.
var closing = map[string]string{"[": "]", "{": "}", `"`: `"`, "'": "'"}

// escapes are the characters that may follow a backslash in double quotes.
const escapes = "0abt\tnvfre \"'/\\N_LPxuU"

// closing finds the end of a quoted text: the position after the closing quote.
func (o *outline) closing(at spot) (end spot, ok bool) {
	quote := o.lines[at.line][at.col]
	for i, from := at.line, at.col+1; i < len(o.lines); i, from = i+1, 0 {
		text := o.lines[i]
		for j := from; j < len(text); j++ {
			switch {
			case quote == '"' && text[j] == '\\':
				if j++; j < len(text) && !strings.ContainsRune(escapes, rune(text[j])) {
					o.fail(spot{i, j - 1}, "unknown escape sequence in double quotes", `write \\ for a backslash, or put the value in single quotes`)
					return spot{}, false
				}
			case quote == '\'' && strings.HasPrefix(text[j:], "''"):
				j++
			case text[j] == quote:
				return spot{i, j + 1}, true
			}
		}
	}
	o.unclosed(at)
	return spot{}, false
}

// keyEnd returns the index of the colon after a key, -1 for a line that does not begin
// with a key.
func keyEnd(text string) int {
	from := 0
	switch {
	case text == "" || strings.ContainsRune("{[|>#", rune(text[0])):
		return -1
	case text[0] == '"' || text[0] == '\'':
		if from = quotedEnd(text, 0) + 1; from == 1 || !strings.HasPrefix(strings.TrimLeft(text[from:], " "), ":") {
			return -1
		}
	}
	for i := from; i < len(text); i++ {
		switch {
		case text[i] == '#' && i > 0 && (text[i-1] == ' ' || text[i-1] == '\t'):
			return -1
		case text[i] == ':' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\t'):
			return i
		}
	}
	return -1
}

// isItem reports whether a text begins with the dash of a list entry.
func isItem(text string) bool {
	return text == "-" || strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "-\t")
}

// isDash reports whether a text begins with a dash that has no space after it.
func isDash(text string) bool { return len(text) > 1 && text[0] == '-' && !isItem(text) }

// blank reports whether a text holds only spaces and a comment.
func blank(text string) bool {
	text = strings.TrimLeft(text, " \t")
	return text == "" || text[0] == '#'
}

func indentOf(text string) int { return len(text) - len(strings.TrimLeft(text, " ")) }

func distance(a, b int) int { return max(a-b, b-a) }

func spaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// quotedEnd returns the end of the quoted text that begins at i; 0 if it has no end.
func quotedEnd(line string, i int) int {
	for j := i + 1; j < len(line); j++ {
		switch {
		case line[i] == '"' && line[j] == '\\':
			j++
		case line[j] == line[i]:
			return j
		}
	}
	return 0
}
