package config

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Text is the text of a file that faults quote. A mistake may put a secret anywhere in a file, so a
// fault shows a word of the file only if it is
//
//   - a word of the program: a key, a value of an enumeration, a name in expressions,
//   - a valid name that the file declares: the id of an agent, team, model, tool, step, rule or member.
//     Events and cards publish ids anyway,
//   - a name without digits where the file refers to an agent, member, model or tool,
//   - the name of a YAML, JSON or key file,
//   - a short number,
//   - a word that resembles one that the hint of the fault suggests,
//   - ${NAME} or ${file:PATH}, but never the value that replaces it.
//
// All other words are replaced by "…", in source lines and in what messages and hints quote: in
// quotation marks, in braces, in lists of known names and in cycles. The rest of a message is
// written by the program. In a source line, everything between a key that may hold a secret and the
// next key is replaced too.
type Text struct {
	lines []string
	names map[string]bool // names that the file declares
}

// NewText returns the text of a file. Faults show the names that root declares; root may be nil.
func NewText(data []byte, root *yaml.Node) *Text {
	t := &Text{lines: lineBreak.Split(string(data), -1), names: map[string]bool{}}
	t.declare(root)
	return t
}

// Fault returns a fault at a line and column of the text, counted from 1.
func (t *Text) Fault(file string, line, col int, message, hint string) Fault {
	near := t.resembling(message, hint)
	return t.Show(Fault{File: file, Line: line, Col: col, Message: t.quoted(inMessage, message, near), Hint: t.quoted(inHint, hint, near)})
}

// Show adds the source line to a fault. Words that the message shows are shown in the line too.
func (t *Text) Show(f Fault) Fault {
	if f.Line < 1 || f.Line > len(t.lines) {
		return f
	}
	near := map[string]bool{}
	for _, word := range wordsQuoted(f.Message) {
		near[word] = true
	}
	source, caret := t.mask(strings.TrimRight(t.lines[f.Line-1], " "), f.Col, near)
	if words.MatchString(source) {
		f.Source, f.caret = source, caret
	}
	return f
}

// declare records the names that a file declares. It must be called before variables are replaced.
func (t *Text) declare(root *yaml.Node) {
	if root == nil {
		return
	}
	for _, section := range []string{"agents", "teams", "models", "tools"} {
		_, entries := child(root, section)
		if entries == nil || entries.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(entries.Content); i += 2 {
			if entries.Content[i+1].Kind == yaml.MappingNode && anyID.MatchString(entries.Content[i].Value) {
				t.name(entries.Content[i].Value)
			}
		}
	}
	t.scalars("", root)
}

// scalars records the names among the scalars below n, which is the value of key.
func (t *Text) scalars(key string, n *yaml.Node) {
	for i, c := range n.Content {
		of := key
		if n.Kind == yaml.MappingNode {
			of = ""
			if i%2 == 1 {
				of = n.Content[i-1].Value
			}
		}
		if c.Kind == yaml.ScalarNode {
			id := of == "id" && anyID.MatchString(c.Value)
			refers := slices.Contains(namingKeys, of) && plainName.MatchString(c.Value)
			if id || refers || fileName.MatchString(c.Value) {
				t.name(c.Value)
			}
		}
		t.scalars(of, c)
	}
}

// namingKeys are the keys whose values, or whose list items, are names of agents, members, steps,
// models and tools.
var namingKeys = []string{
	"after", "agent", "default_agent", "entry_member", "finish", "handoff", "handoff_after", "member", "members", "model", "next", "tools",
}

func (t *Text) name(name string) {
	for _, chunk := range chunks.FindAllString(name, -1) {
		t.names[chunk] = true
	}
}

var (
	// lineBreak matches a YAML line break.
	lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")
	// anyID matches ids; ids of steps may contain capitals.
	anyID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$`)
	// plainName matches names that do not look like a generated secret.
	plainName = regexp.MustCompile(`^[a-z]{1,20}([_-][a-z]{1,20}){0,3}$`)
	fileName  = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,100}\.(ya?ml|json|pem|jwks?|crt|key)$`)

	// chunks matches a reference to a variable, and text between spaces, quotes and brackets.
	chunks = regexp.MustCompile(`\$\{(?:[A-Za-z_][A-Za-z0-9_]*|file:[A-Za-z0-9._/-]+)\}|[^\s{}\[\],"'` + "`" + `]+`)
	// words matches a word, as opposed to punctuation.
	words = regexp.MustCompile(`[A-Za-z0-9_-]*[A-Za-z0-9_][A-Za-z0-9_-]*`)
	// number matches a number or a duration.
	number = regexp.MustCompile(`^\d+(ms|s|m|h)?$`)
	// punctuation matches text that is shown between words.
	punctuation = regexp.MustCompile(`^[!-/:-@\[-` + "`" + `{-~]{0,3}$`)
	// inMessage matches quotations in a message.
	inMessage = regexp.MustCompile(`(^|[\s(\[:])"(?:[^"\\]|\\.)*"|(^|[\s(:])'[^']*'|` + "`.*`" + `|\{\{.*?\}\}|\$\{[^}]*\}?|\S+(?: -> \S+)+`)
	// inHint matches quotations and lists of names in a hint.
	inHint = regexp.MustCompile(`(^|\s)"(?:[^"\\]|\\.)*"|[kK]nown here[^:]*: .*`)
	// listLabel matches the text before a list of names.
	listLabel = regexp.MustCompile(`^[kK]nown here[^:]*: `)
)

// maxDigits is the maximum number of digits in a chunk outside of known words.
const maxDigits = 3

// harmless reports whether a chunk can be shown: it consists of known words.
func (t *Text) harmless(chunk string, near map[string]bool) bool {
	if t.names[chunk] || strings.HasPrefix(chunk, "${") {
		return true
	}
	digits, from := 0, 0
	for _, at := range words.FindAllStringIndex(chunk, -1) {
		word := chunk[at[0]:at[1]]
		switch bare := strings.Trim(word, "-"); {
		case !punctuation.MatchString(chunk[from:at[0]]):
			return false
		case isWord(word), isWord(bare), t.names[word], near[word]:
		case number.MatchString(bare):
			digits += len(strings.TrimRight(bare, "msh"))
		default:
			return false
		}
		from = at[1]
	}
	return digits <= maxDigits && punctuation.MatchString(chunk[from:])
}

// mask replaces possible secrets and returns the new column of the character at col. Columns count
// from 1. A col of 0 means that text is not a source line, so the rule for keys of secrets does not
// apply.
func (t *Text) mask(text string, col int, near map[string]bool) (masked string, caret int) {
	var b strings.Builder
	position := func() int { return utf8.RuneCountInString(b.String()) + 1 }
	at := byteAt(text, col)
	secret, from := false, 0
	for _, c := range chunks.FindAllStringIndex(text, -1) {
		chunk, between := text[c[0]:c[1]], text[from:c[0]]
		word, isKey := strings.CutSuffix(chunk, ":")
		isKey = isKey && programKeys()[word]
		if ofSecret := slices.Contains(secretKeys, word) || secretFields()[word]; isKey || ofSecret {
			isKey, secret = true, ofSecret && col > 0
		}
		show := t.harmless(chunk, near) && (isKey || !secret || strings.HasPrefix(chunk, "${"))
		if !show && strings.TrimSpace(between) == "" && strings.HasSuffix(b.String(), "…") {
			between = ""
		}
		if caret == 0 && at < c[0] {
			caret = position() + utf8.RuneCountInString(text[from:max(from, min(at, from+len(between)))])
		}
		b.WriteString(between)
		if caret == 0 && at < c[1] {
			caret = position()
			if show {
				caret += utf8.RuneCountInString(text[c[0]:at])
			}
		}
		if from = c[1]; !show {
			if !strings.HasSuffix(b.String(), "…") {
				b.WriteString("…")
			}
			continue
		}
		b.WriteString(chunk)
	}
	if caret == 0 {
		caret = position() + utf8.RuneCountInString(text[from:max(from, at)])
	}
	return b.String() + text[from:], caret
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

// quoted masks the quotations in a message or a hint.
func (t *Text) quoted(quotation *regexp.Regexp, message string, near map[string]bool) string {
	return quotation.ReplaceAllStringFunc(message, func(s string) string {
		label := listLabel.FindString(s)
		masked, _ := t.mask(s[len(label):], 0, near)
		return label + masked
	})
}

// resembling returns the words that a message quotes from the file and that resemble a known word
// in the hint. They are shown, because they are most likely that word, misspelled.
func (t *Text) resembling(message, hint string) map[string]bool {
	near := map[string]bool{}
	var meant []string
	for _, word := range words.FindAllString(hint, -1) {
		if isWord(word) || t.names[word] {
			meant = append(meant, word)
		}
	}
	for _, word := range wordsQuoted(message) {
		if nearest(word, meant) != "" && slices.ContainsFunc(t.lines, func(line string) bool { return strings.Contains(line, word) }) {
			near[word] = true
		}
	}
	return near
}

// wordsQuoted returns the words in the quotations of a message.
func wordsQuoted(message string) []string {
	return words.FindAllString(strings.Join(inMessage.FindAllString(message, -1), " "), -1)
}

// secretKeys are the keys of the definition whose values may contain secrets, besides secretFields.
var secretKeys = []string{"sha256", "key", "cert", "command"}

// isWord reports whether a word belongs to the program's vocabulary.
func isWord(word string) bool { return programWords()[word] }

// isKey reports whether a word is a key of configuration files or of test files.
func isKey(word string) bool { return programKeys()[word] }

// programKeys returns the keys of configuration files and test files.
var programKeys = sync.OnceValue(func() map[string]bool {
	keys := map[string]bool{}
	for alias := range aliases {
		keys[alias] = true
	}
	eachField(func(f protoreflect.FieldDescriptor) { keys[f.TextName()] = true })
	return keys
})

// programWords returns the keys, the values of enumerations, and otherWords.
var programWords = sync.OnceValue(func() map[string]bool {
	known := map[string]bool{}
	for key := range programKeys() {
		known[key] = true
	}
	for _, word := range strings.Fields(otherWords) {
		known[word] = true
	}
	eachField(func(f protoreflect.FieldDescriptor) {
		for e, i := f.Enum(), 0; e != nil && i < e.Values().Len(); i++ {
			known[string(e.Values().Get(i).Name())] = true
		}
	})
	return known
})

// otherWords are words of the vocabulary that are not part of the message definitions: versions,
// names of providers and stores, and the keys and names of expressions, templates, scripts and
// schemas.
const otherWords = `v1 v2 true false null yes no on off openai anthropic gemini scripted memory sqlite postgres postgresql http https
	context round turn last input tool results steps data score outcome error size contains startsWith endsWith matches has exists all filter map in int string double bool list
	brief task_description expected_output when arguments chunks tool_calls status reason delay usage
	type properties required items enum const pattern minimum maximum minLength maxLength minItems maxItems additionalProperties format title object array number integer boolean
	anyOf allOf oneOf not KEY`

// eachField calls visit for each field of the messages of configuration files and test files.
func eachField(visit func(protoreflect.FieldDescriptor)) {
	seen := map[protoreflect.FullName]bool{}
	var message func(m protoreflect.MessageDescriptor)
	message = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			visit(f)
			if f.IsMap() {
				f = f.MapValue()
				visit(f)
			}
			if f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "team.") {
				message(f.Message())
			}
		}
	}
	message((&teamv1.ServerConfig{}).ProtoReflect().Descriptor())
	message((&teamv1.ScenarioFile{}).ProtoReflect().Descriptor())
}
