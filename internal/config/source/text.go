package source

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentteams/team-server/pkg/secret"
)

// Text is the text of a file that faults quote. They show it as it is written, except for the values of keys that hold
// secrets, the user and the query of URLs, and what replaces ${NAME} and ${file:PATH}.
type Text struct {
	lines  []string
	hidden [][]span // parts of each line that are not shown, in order
	values []string // values that messages must not quote
}

// span is a part of a line, from one byte to another.
type span struct{ from, to int }

// lineBreak matches a YAML line break.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

// NewText returns the text of a file.
func NewText(data []byte) *Text {
	t := &Text{}
	t.append(lineBreak.Split(string(data), -1))
	return t
}

// append adds the lines of a file.
func (t *Text) append(lines []string) {
	s := scanner{lines: lines, hidden: make([][]span, len(lines))}
	s.scan()
	t.lines, t.hidden, t.values = append(t.lines, lines...), append(t.hidden, s.hidden...), append(t.values, s.values...)
}

// conceal has messages not quote a value, which does not stand in the file.
func (t *Text) conceal(value string) {
	if value != "" {
		t.values = append(t.values, value)
	}
}

// Fault returns a fault at a line and column of the text, counted from 1.
func (t *Text) Fault(file string, line, col int, message, hint string) Fault {
	message = t.quotable(message)
	message, _ = mask(message, inURLs(message, nil), 0)
	return t.Show(Fault{File: file, Line: line, Col: col, Message: message, Hint: hint})
}

// Show adds the source line to a fault.
func (t *Text) Show(f Fault) Fault {
	if f.Line < 1 || f.Line > len(t.lines) {
		return f
	}
	line := t.lines[f.Line-1]
	if source, caret := mask(line, t.hidden[f.Line-1], byteAt(line, f.Col)); strings.Trim(source, " \t…") != "" {
		f.Source, f.caret = source, caret
	}
	return f
}

// mask replaces parts of a line by "…". It returns the column, counted from 1, of the character that was at a byte.
func mask(line string, hidden []span, at int) (masked string, caret int) {
	var b strings.Builder
	from := 0
	write := func(text string, begin int, shown bool) {
		if at >= begin && at < begin+len(text) {
			caret = utf8.RuneCountInString(b.String()) + 1
			if shown {
				caret += utf8.RuneCountInString(text[:at-begin])
			}
		}
		if !shown {
			text = "…"
		}
		b.WriteString(text)
	}
	for _, h := range hidden {
		write(line[from:h.from], from, true)
		write(line[h.from:h.to], h.from, false)
		from = h.to
	}
	write(line[from:], from, true)
	if caret == 0 {
		caret = utf8.RuneCountInString(b.String()) + 1
	}
	return strings.TrimRight(b.String(), " "), caret
}

// byteAt returns the byte index of the character at col, counted from 1.
func byteAt(text string, col int) int {
	for i := range text {
		if col--; col < 1 {
			return i
		}
	}
	return len(text)
}

// quotable returns a message without the values that it must not quote.
func (t *Text) quotable(message string) string {
	const least = 4 // bytes; shorter values are parts of other words
	for _, value := range t.values {
		if len(value) < least {
			continue
		}
		message = strings.ReplaceAll(message, strconv.Quote(value), `"…"`)
		if len(value) >= secret.MinHidden {
			message = strings.ReplaceAll(message, value, "…")
		}
	}
	return message
}

// inURLs adds the users and the queries of URLs and addresses in a text to its hidden parts, which it returns in order.
func inURLs(text string, hidden []span) []span {
	for _, part := range urlSecrets {
		for _, at := range part.FindAllStringSubmatchIndex(text, -1) {
			h := span{at[2], at[3]}
			if !slices.ContainsFunc(hidden, func(o span) bool { return h.from < o.to && o.from < h.to }) {
				hidden = append(hidden, h)
			}
		}
	}
	slices.SortFunc(hidden, func(a, b span) int { return a.from - b.from })
	return hidden
}

// urlSecrets match what may be a secret in URLs and addresses, as their first group.
var urlSecrets = []*regexp.Regexp{
	regexp.MustCompile(`://([^\s/"'@]+)@`),
	regexp.MustCompile(`(?:^|[\s"'\[{,])([^\s/"'@:{,]+:[^\s/"'@{,]+)@`),
	regexp.MustCompile(`://[^\s"'?]*\?([^\s"']+)`),
	regexp.MustCompile(`\b(?:url|card|address|issuer)["']?:[ \t]*["']?[^\s"'?]*\?([^\s"']+)`),
}

var (
	// secretName matches the names of keys that hold secrets, also in files of other programs.
	secretName = regexp.MustCompile(`(?i)^(|.*[_-])(api-?_?key|key|token|secret|password|passwd|passphrase|credentials?|authorization|bearer)$|apikey$|authtoken$|accesstoken$`)
	// keyIn matches a key and what separates it from its value.
	keyIn = regexp.MustCompile(`["']?([A-Za-z_][A-Za-z0-9_-]*)["']?[ \t]*:`)
	// wordFirst matches the first word of a text, and wordAmong that of an entry within brackets, whose colon may be missing.
	wordFirst = regexp.MustCompile(`^[ \t]*(?:- +)*["']?([A-Za-z_][A-Za-z0-9_-]*)["']?(?:[ \t]|$)`)
	wordAmong = regexp.MustCompile(`[{,][ \t]*["']?([A-Za-z_][A-Za-z0-9_-]*)["']?(?:[ \t]|$)`)
	// referenceOnly matches a value that another place has.
	referenceOnly = regexp.MustCompile(`^["']?\$\{(?:[A-Za-z_][A-Za-z0-9_]*|file:[A-Za-z0-9._/-]+)\}["']?[ \t]*([,}\]#]|$)`)
)

// isSecretName reports whether values of a key are secrets.
func isSecretName(key string) bool {
	return secretFields()[key] != 0 || secretName.MatchString(key)
}

// scanner finds the values of keys that hold secrets in the lines of a file, which need not be YAML.
type scanner struct {
	lines  []string
	hidden [][]span
	values []string

	below int    // lines that are indented further belong to a secret; -1 outside of a secret
	named bool   // they are a mapping, whose keys are shown
	block bool   // the next line belongs to it however it is indented
	bare  bool   // so does a next line without a key, because the line of the secret's key has no value
	quote byte   // the quote that a secret has opened; 0 if no quote is open
	open  string // the brackets that a secret has opened
	next  bool   // a secret within brackets begins in the next line
}

func (s *scanner) scan() {
	s.below = -1
	for i := range s.lines {
		s.line(i)
		s.hidden[i] = inURLs(s.lines[i], s.hidden[i])
	}
}

// line finds the secrets in a line.
func (s *scanner) line(i int) {
	line := s.lines[i]
	indent := len(line) - len(strings.TrimLeft(line, " \t"))
	switch {
	case s.quote != 0 || s.open != "" || s.next && strings.TrimSpace(line) != "":
		within := s.next
		s.next = false
		end := s.value(line, 0, within)
		s.rest(i, end, 0)
		s.keys(i, end)
		return
	case strings.TrimSpace(line) == "":
		return
	case s.below >= 0 && (s.block || s.bare && !beginsWithKey(line) || indent > s.below || indent == s.below && strings.HasPrefix(line[indent:], "- ")):
		if k := keyIn.FindStringIndex(line); s.named && k != nil && k[0] == indent {
			indent = k[1]
		}
		s.hide(i, indent, len(line))
		s.block, s.bare = false, false
		return
	}
	s.below, s.bare = -1, false
	s.keys(i, 0)
}

// keys finds the values of the secret keys of a line, from a byte on.
func (s *scanner) keys(i, from int) {
	line := s.lines[i]
	finder := keyFinder{line: line}
	for from < len(line) {
		name, end := finder.next(from)
		if name == "" {
			return
		}
		if !isSecretName(name) {
			from = end
			continue
		}
		if end < len(line) && line[end] == ':' { // after a key without a space
			end++
		}
		begin := end + len(line[end:]) - len(strings.TrimLeft(line[end:], " \t"))
		s.below, s.named = len(line)-len(strings.TrimLeft(line, " \t-")), secretFields()[name] == secretMap
		if ref := referenceOnly.FindString(line[begin:]); ref != "" {
			from, s.below = begin+len(ref), -1
			continue
		}
		within := strings.ContainsAny(line[:begin], "{[")
		end = s.value(line, begin, within)
		s.rest(i, end, begin)
		s.next = within && begin == len(line)
		s.bare = !within && begin == len(line)
		s.block = !within && begin < len(line) && strings.ContainsRune("|>", rune(line[begin]))
		from = max(end, begin+1)
		if end < len(line) {
			s.below, s.block = -1, false
		}
	}
}

// beginsWithKey reports whether the first word of a line is a key with a colon.
func beginsWithKey(line string) bool {
	at := keyIn.FindStringIndex(line)
	return at != nil && strings.Trim(line[:at[0]], " \t-{[") == ""
}

// keyFinder finds the keys of a line from left to right. Each part of the line is searched once.
type keyFinder struct {
	line string
	// with is the next key that has a colon, and alone the next word without one: where it begins, and its submatches.
	with, alone []int
}

// next returns the first key of the line at or after the byte from, and where the key ends. It returns "" if the rest of
// the line has no key. A word without a colon counts if it is the name of a secret. from must not decrease.
func (f *keyFinder) next(from int) (name string, end int) {
	if f.with == nil || len(f.with) > 0 && f.with[0] < from {
		f.with = matchFrom(keyIn, f.line, from)
	}
	if len(f.with) > 0 {
		name, end = f.line[f.with[2]:f.with[3]], f.with[1]
	}
	if at := wordFirst.FindStringSubmatchIndex(f.line[from:]); at != nil && (name == "" || from+at[1] < end) {
		if word := f.line[from+at[2] : from+at[3]]; secretFields()[word] != 0 || from == 0 && isSecretName(word) {
			return word, from + at[1]
		}
	}
	for f.alone == nil || len(f.alone) > 0 && (f.alone[0] < from || secretFields()[f.line[f.alone[2]:f.alone[3]]] == 0) {
		if len(f.alone) > 0 {
			from = max(from, f.alone[1])
		}
		f.alone = matchFrom(wordAmong, f.line, from)
	}
	if len(f.alone) > 0 && (name == "" || f.alone[1] < end) {
		return f.line[f.alone[2]:f.alone[3]], f.alone[1]
	}
	return name, end
}

// matchFrom returns the indices of the first match in a line at or after a byte. Without a match it returns an empty
// slice that is not nil.
func matchFrom(re *regexp.Regexp, line string, from int) []int {
	at := append([]int{}, re.FindStringSubmatchIndex(line[from:])...)
	for i := range at {
		at[i] += from
	}
	return at
}

// rest hides what value has found, from begin on.
func (s *scanner) rest(i, end, begin int) {
	line := s.lines[i]
	if text := strings.TrimSpace(line[begin:end]); text != "" && text[0] != '#' && text != "|" && text != ">" {
		s.hide(i, begin, end)
		s.values = append(s.values, strings.Trim(text, `"':`))
		if s.named { // each of them is a secret
			s.values = append(s.values, strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(` {}:,"'$`, r) })...)
		}
	}
}

// value returns the end of a secret that begins, or goes on, at a byte of a line. inFlow says that it is within brackets.
func (s *scanner) value(line string, from int, inFlow bool) int {
	for j := from; j < len(line); j++ {
		c := line[j]
		switch {
		case s.quote == '"' && c == '\\':
			j++
		case s.quote != 0:
			if c == s.quote {
				s.quote = 0
			}
		case c == '"' || c == '\'':
			s.quote = c
		case c == '{' || c == '[':
			s.open += string(c)
		case (c == '}' || c == ']') && s.open != "":
			s.open = s.open[:len(s.open)-1]
		case s.open == "" && inFlow && (c == '}' || c == ']' || c == ','):
			return j
		}
	}
	return len(line)
}

// hide marks a part of a line as hidden.
func (s *scanner) hide(i, from, to int) {
	line := s.lines[i]
	from += len(line[from:to]) - len(strings.TrimLeft(line[from:to], " \t"))
	if to = from + len(strings.TrimRight(line[from:to], " \t")); from < to {
		s.hidden[i] = append(s.hidden[i], span{from, to})
	}
}
