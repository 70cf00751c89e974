package tracing

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumented: docs/tracing.md has each name of an attribute, and the version of the conventions.
func TestDocumented(t *testing.T) {
	names, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`attribute\.Key\("([^"]+)"\)`).FindAllStringSubmatch(string(names), -1)
	if len(all) < 40 {
		t.Errorf("found only %d names", len(all))
	}
	for _, name := range all {
		if !strings.Contains(string(doc), "`"+name[1]+"`") {
			t.Errorf("%s is not documented", name[1])
		}
	}
	if !strings.Contains(string(doc), conventions) {
		t.Errorf("version %s is not documented", conventions)
	}
}
