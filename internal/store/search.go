package store

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of what is stored of the message of a task, to list and find it.
const (
	maxText  = 200 // characters
	maxWords = 40
)

// TextOf returns the text with which the task of a message is listed: its first 200 characters, in one line.
func TextOf(m *a2av1.Message) string {
	text := agent.Text(m)
	if len(text) > 8*maxText*utf8.UTFMax { // far more than is needed, unless it begins with much white space
		text = strings.ToValidUTF8(text[:8*maxText*utf8.UTFMax], "")
	}
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "\x00", "")
	n := 0
	for i := range text {
		if n++; n > maxText {
			return text[:i]
		}
	}
	return text
}

// Words returns the first 40 different words of a text, in lower case. A character of a script without spaces between
// words is a word.
func Words(text string) []string {
	var words []string
	add := func(word string) {
		if word != "" && len(words) < maxWords && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	from := 0
	text = strings.ToLower(text)
	for i, c := range text {
		alone := unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
		if !alone && (unicode.In(c, unicode.Letter, unicode.Number, unicode.Mark)) {
			continue
		}
		add(text[from:i])
		from = i + utf8.RuneLen(c)
		if alone {
			add(text[i:from])
		}
	}
	add(text[from:])
	return words
}

// HasWords reports whether a text has all of some words that Words has returned.
func HasWords(text string, words []string) bool {
	lower := strings.ToLower(text)
	if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(lower, w) }) {
		return false // most texts
	}
	has := Words(text)
	return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(has, w) })
}

// BoundToQuery returns what the token of a page of found tasks is valid for; see Sealer.
func BoundToQuery(q runs.TaskQuery) []byte {
	var b []byte
	for _, s := range []string{"found", q.Account, q.Owner, q.ID, q.Agent, q.ContextID, q.Text} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, n := range []int64{int64(q.State), q.MinCostMicros, q.Since.UnixMilli(), q.Until.UnixMilli()} {
		b = binary.AppendVarint(b, n)
	}
	return b
}
