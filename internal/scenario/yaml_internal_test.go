package scenario

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestNode_Texts: every text is read as it was written, whatever white space it has.
func TestNode_Texts(t *testing.T) {
	t.Parallel()
	var try func(text string, more int)
	try = func(text string, more int) {
		data, err := document(nil, mapping("of", []*yaml.Node{mapping("text", text)}))
		var again struct{ Of []map[string]string }
		if err == nil {
			err = yaml.Unmarshal(data, &again)
		}
		if err != nil || again.Of[0]["text"] != text {
			t.Errorf("%q: %v\n%s", text, err, data)
		}
		for _, next := range []string{"\t", "\n", " ", "a", "#"} {
			if more > 0 {
				try(text+next, more-1)
			}
		}
	}
	try("", 5)
}
