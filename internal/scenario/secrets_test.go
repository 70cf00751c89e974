package scenario_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/internal/testkit/sample"
)

// core is in every form of the secret and in nothing else.
const core = "hush9k7"

// secrets are forms of a secret: a token, an address with a password, and one that has
// the form of an id.
var secrets = []string{"Zq-" + core + "/x+W=", "https://ann:" + core + "@h.example/v1", asID}

const asID = "zq-" + core

// place is a scalar on one line of a text: line = before + key + ": " + value + after.
type place struct {
	line                      int // from 0
	before, key, value, after string
}

// mistakes write a secret at a place, and something wrong. %[1]s is before, %[2]s the
// key, %[3]s the secret, %[4]s the rest of the line, %[5]s the old value.
var mistakes = map[string]string{
	"another value":            "%[1]s%[2]s: %[3]s%[4]s",
	"a quoted value":           "%[1]s%[2]s: \"%[3]s\"%[4]s",
	"no closing quote":         "%[1]s%[2]s: \"%[3]s%[4]s",
	"no opening quote":         "%[1]s%[2]s: %[3]s\"%[4]s",
	"text behind a quote":      "%[1]s%[2]s: \"x\"%[3]s%[4]s",
	"a quote in quotes":        "%[1]s%[2]s: 'it's %[3]s'%[4]s",
	"a backslash":              "%[1]s%[2]s: \"\\%[3]s\"%[4]s",
	"no colon":                 "%[1]s%[2]s %[3]s%[4]s",
	"no colon before a quote":  "%[1]s%[2]s \"%[3]s\"%[4]s",
	"no colon, one behind it":  "%[1]s%[2]s %[3]s:%[4]s",
	"no space":                 "%[1]s%[2]s:%[3]s%[4]s",
	"two colons":               "%[1]s%[2]s: %[5]s: %[3]s%[4]s",
	"a colon behind":           "%[1]s%[2]s: %[3]s: x%[4]s",
	"in braces":                "%[1]s%[2]s: {%[3]s}%[4]s",
	"a key in braces":          "%[1]s%[2]s: {%[3]s: 1}%[4]s",
	"in double braces":         "%[1]s%[2]s: {{%[3]s}}%[4]s",
	"braces in text":           "%[1]s%[2]s: '{{%[3]s}}'%[4]s",
	"in brackets":              "%[1]s%[2]s: [%[3]s]%[4]s",
	"an open brace":            "%[1]s%[2]s: {%[3]s%[4]s",
	"an open bracket":          "%[1]s%[2]s: [%[3]s%[4]s",
	"a dash":                   "%[1]s%[2]s: - %[3]s%[4]s",
	"the key twice":            "%[1]s%[2]s: %[5]s, %[2]s: %[3]s%[4]s",
	"another case":             "%[1]s%[2]s_TOKEN: %[3]s%[4]s",
	"a quoted key":             "%[1]s\"%[2]s\": %[3]s%[4]s",
	"a wrong scheme":           "%[1]s%[2]s: postgre://ann:%[3]s@db.example/x%[4]s",
	"no scheme":                "%[1]s%[2]s: ann:%[3]s@h.example:80%[4]s",
	"one slash":                "%[1]s%[2]s: https:/ann:%[3]s@h.example%[4]s",
	"in a query":               "%[1]s%[2]s: https://h.example/?key=%[3]s%[4]s",
	"in a path":                "%[1]s%[2]s: https://h.example/%[3]s%[4]s",
	"in a path with a keyword": "%[1]s%[2]s: http://h.example/%[3]s/chat/completions%[4]s",
	"a variable":               "%[1]s%[2]s: ${HIDDEN}%[4]s",
	"a variable in text":       "%[1]s%[2]s: \"a ${HIDDEN} b\"%[4]s",
	"a default":                "%[1]s%[2]s: \"${UNSET:-%[3]s}\"%[4]s",
	"a reference that is none": "%[1]s%[2]s: \"${%[3]s}\"%[4]s",
	"an open reference":        "%[1]s%[2]s: \"${%[3]s\"%[4]s",
	"a file that is none":      "%[1]s%[2]s: \"${file:/no such/%[3]s}\"%[4]s",
	"an anchor":                "%[1]s%[2]s: &%[3]s %[5]s%[4]s",
	"an alias":                 "%[1]s%[2]s: *%[3]s%[4]s",
	"a tag":                    "%[1]s%[2]s: !%[3]s %[5]s%[4]s",
	"a text tag":               "%[1]s%[2]s: !!int %[3]s%[4]s",
	"a block":                  "%[1]s%[2]s: |\n %[3]s: x%[4]s",
	"a value in the next line": "%[1]s%[2]s:\n%[3]s%[4]s",
	"a tab before":             "\t%[1]s%[2]s: %[3]s%[4]s",
	"a tab":                    "%[1]s%[2]s:\t%[3]s\t: x%[4]s",
	"a space before":           " %[1]s%[2]s: %[3]s%[4]s",
	"no line feed":             "%[1]s%[2]s: %[3]s\r%[4]s",
	"no UTF-8":                 "%[1]s%[2]s: \xff%[3]s%[4]s",
	"a control character":      "%[1]s%[2]s: \x01%[3]s%[4]s",
	"an expression":            "%[1]s%[2]s: \"%[3]s ==\"%[4]s",
	"a name in an expression":  "%[1]s%[2]s: \"turn == " + core + "\"%[4]s",
	"a text in an expression":  "%[1]s%[2]s: \"turn == '%[3]s'\"%[4]s",
	"a pattern":                "%[1]s%[2]s: \"(%[3]s\"%[4]s",
	"a file":                   "%[1]s%[2]s: %[3]s.txt%[4]s",
	"a member":                 "%[1]s%[2]s: \"%[3]s -> x\"%[4]s",
}

// TestS_SecretsAreNotShown writes secrets as the values of keys that hold them, in every file here, with many kinds of
// mistakes. No fault shows any of it, as text or as JSON.
func TestS_SecretsAreNotShown(t *testing.T) {
	tried, runs, refused := map[string]bool{}, 0, 0
	texts := examples(t)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		files := filesOf(t, path.Dir(name))
		for _, p := range places(texts[name], tried, name) {
			for _, mistake := range slices.Sorted(maps.Keys(mistakes)) {
				for _, secret := range secrets {
					if runs++; runs%7 != 0 && !sample.All() {
						continue
					}
					lines := strings.Split(texts[name], "\n")
					lines[p.line] = p.with(mistakes[mistake], secret)
					faults := faultsOf(t, files, name, strings.Join(lines, "\n"), secret)
					data, err := json.Marshal(faults)
					if err != nil {
						t.Fatal(err)
					}
					if strings.Contains(faults.Error()+string(data), core) {
						t.Errorf("%s: %s, line %d: %s\n%s", name, mistake, p.line+1, lines[p.line], faults.Error())
					}
					if len(faults) > 0 {
						refused++
					}
				}
			}
		}
	}
	if refused < 250 {
		t.Errorf("only %d files with faults", refused)
	}
}

// with returns the line with a mistake and a secret.
func (p place) with(format, secret string) string {
	return fmt.Sprintf(format+"%.0[1]s%.0[2]s%.0[3]s%.0[4]s%.0[5]s", p.before, p.key, secret, p.after, p.value)
}

// faultsOf returns the faults of a file with other content.
func faultsOf(t *testing.T, files fstest.MapFS, name, text, secret string) source.Faults {
	t.Helper()
	l := config.Loader{Files: files, Env: func(name string) (string, bool) { return secret, name == "HIDDEN" }}
	files[name] = &fstest.MapFile{Data: []byte(text)}
	var err error
	switch {
	case scenario.IsTest(name):
		_, err = scenario.Load(l, name)
	case strings.HasSuffix(name, ".script.yaml"), strings.HasSuffix(name, ".json"):
		_, err = l.Load(path.Join(path.Dir(name), "team.yaml"))
	default:
		_, err = l.Parse(name, []byte(text))
	}
	var faults source.Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatalf("%s: %v", name, err)
	}
	return faults
}

// examples returns the files of examples/ and the YAML in docs/, each also as JSON.
func examples(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	walk := func(dir string, visit func(name string, data []byte)) {
		err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(file)
			visit(strings.TrimPrefix(filepath.ToSlash(file), "../../"), data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	walk("../../examples", func(name string, data []byte) {
		if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".schema.json") {
			texts[name] = string(data)
		}
	})
	block := regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```")
	walk("../../docs", func(name string, data []byte) {
		for i, m := range block.FindAllStringSubmatch(string(data), -1) {
			texts[fmt.Sprintf("%s-%d.yaml", name, i)] = m[1]
		}
	})
	for name, text := range texts {
		var v any
		if yaml.Unmarshal([]byte(text), &v) == nil && strings.HasSuffix(name, ".yaml") && !scenario.IsTest(name) {
			if data, err := json.Marshal(v); err == nil {
				texts[strings.TrimSuffix(name, ".yaml")+"-json.yaml"] = strings.ReplaceAll(string(data), `":`, `": `)
			}
		}
	}
	return texts
}

// filesOf returns the files of a folder of examples.
func filesOf(t *testing.T, dir string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := filepath.Glob("../../" + dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil {
			files[path.Join(dir, filepath.Base(name))] = &fstest.MapFile{Data: data}
		}
	}
	return files
}

// places returns the scalars of a text that are unlike those tried before.
func places(text string, tried map[string]bool, name string) (all []place) {
	var root yaml.Node
	if yaml.Unmarshal([]byte(text), &root) != nil || len(root.Content) == 0 {
		return nil
	}
	lines := strings.Split(text, "\n")
	kind := ""
	if scenario.IsTest(name) || strings.HasSuffix(name, ".script.yaml") || strings.HasSuffix(name, ".json") {
		kind = name[strings.LastIndexAny(name, "_.s"):]
	}
	var visit func(n *yaml.Node, at string)
	visit = func(n *yaml.Node, at string) {
		for i, c := range n.Content {
			next, key := at+"[]", ""
			if n.Kind == yaml.MappingNode {
				if i%2 == 0 {
					continue
				}
				key, next = n.Content[i-1].Value, at+"."+n.Content[i-1].Value
				if named.MatchString(at) {
					next = at + ".*"
				}
			}
			visit(c, next)
			if c.Kind != yaml.ScalarNode || c.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || c.Line > len(lines) {
				continue
			}
			line := []rune(lines[c.Line-1])
			before, rest := string(line[:c.Column-1]), string(line[c.Column-1:])
			end := len(rest)
			if token := scalar.FindString(rest); token != "" {
				end = len(token)
			}
			p := place{line: c.Line - 1, before: before, key: "key", value: rest[:end], after: rest[end:]}
			if m := keyBefore.FindStringSubmatch(before); m != nil {
				p.before, p.key = m[1], m[2]
			}
			if !secretKey.MatchString(key) && !strings.HasSuffix(at, ".env") {
				continue
			}
			shape := fmt.Sprint(kind, next, strings.ContainsAny(p.before, "{["), strings.HasPrefix(p.value, `"`))
			if !tried[shape] {
				tried[shape] = true
				all = append(all, p)
			}
		}
	}
	visit(root.Content[0], "")
	return all
}

var (
	named     = regexp.MustCompile(`^\.(agents|teams|models|tools)$|\.(env|effects|arguments|properties|context)$`)
	scalar    = regexp.MustCompile(`^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,\]}#]+)`)
	secretKey = regexp.MustCompile(`^(api_key|bearer|store|store_listen|token)$`)
	keyBefore = regexp.MustCompile(`^(.*?)"?([A-Za-z0-9_.*-]+)"?: *$`)
)
