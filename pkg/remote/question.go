package remote

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Names under which agents write the text of a question into its data, its options (of which enum is
// that of a JSON schema) and the value of an option that is an object. The first of several counts.
var (
	textNames   = []string{"question", "prompt", "message", "text", "description", "reason", "title", "value"}
	optionNames = []string{"options", "choices", "enum"}
	valueNames  = []string{"value", "id", "label", "name"}
)

// explained returns the parts of a question with what people need to answer it: the question in its
// data, unless its texts say it, the data itself if nothing else says what is asked, and the options
// that its data offers, in the form of our own questions.
func explained(parts []*a2av1.Part) []*a2av1.Part {
	out := slices.Clone(parts)
	said := strings.TrimSpace(agent.Text(&a2av1.Message{Parts: parts}))
	texts := questionsIn(parts, said)
	if said == "" && len(texts) == 0 {
		texts = jsonOf(parts)
	}
	if len(texts) > 0 {
		first := slices.IndexFunc(out, func(p *a2av1.Part) bool { return p.GetData() != nil })
		out = slices.Insert(out, first, agent.TextParts(clip(strings.Join(texts, "\n")))...)
	}
	if slices.ContainsFunc(parts, isOptions) {
		return out
	}
	for _, p := range parts {
		if options := find(p.GetData(), optionsOf); len(options) > 0 {
			data := &structpb.Struct{Fields: map[string]*structpb.Value{"options": structpb.NewListValue(&structpb.ListValue{Values: options})}}
			return append(out, &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewStructValue(data)}})
		}
	}
	return out
}

// questionsIn returns the texts of the questions in the data of parts, except what was said already.
func questionsIn(parts []*a2av1.Part, said string) []string {
	var texts []string
	for _, p := range parts {
		for _, text := range find(p.GetData(), textOf) {
			if !isOptions(p) && !strings.Contains(said, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// jsonOf returns the data of parts as JSON.
func jsonOf(parts []*a2av1.Part) []string {
	var texts []string
	for _, p := range parts {
		if b, err := protojson.Marshal(p.GetData()); p.GetData() != nil && !isOptions(p) && err == nil {
			texts = append(texts, string(b))
		}
	}
	return texts
}

// find returns what is finds first in a value and the objects and lists below it, except what a JSON
// schema says of the fields of an object.
func find[T any](v *structpb.Value, is func(*structpb.Value) []T) []T {
	if found := is(v); len(found) > 0 {
		return found
	}
	for _, item := range v.GetListValue().GetValues() {
		if found := find(item, is); len(found) > 0 {
			return found
		}
	}
	fields := v.GetStructValue().GetFields()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name == "properties" {
			continue
		}
		if found := find(fields[name], is); len(found) > 0 {
			return found
		}
	}
	return nil
}

// textOf returns the text of the question that an object is.
func textOf(v *structpb.Value) []string {
	for _, name := range textNames {
		if text := v.GetStructValue().GetFields()[name].GetStringValue(); strings.TrimSpace(text) != "" {
			return []string{text}
		}
	}
	return nil
}

// optionsOf returns the options that an object offers, as texts.
func optionsOf(v *structpb.Value) []*structpb.Value {
	for _, name := range optionNames {
		var options []*structpb.Value
		for _, o := range v.GetStructValue().GetFields()[name].GetListValue().GetValues() {
			if text := optionText(o); text != "" {
				options = append(options, structpb.NewStringValue(text))
			}
		}
		if len(options) > 0 {
			return options
		}
	}
	return nil
}

// optionText returns an option as a text, empty for one that is neither a text nor an object with one.
func optionText(o *structpb.Value) string {
	if o.GetStringValue() != "" {
		return o.GetStringValue()
	}
	for _, name := range valueNames {
		if text := o.GetStructValue().GetFields()[name].GetStringValue(); text != "" {
			return text
		}
	}
	return ""
}

// isOptions reports whether a part holds the options of a question in our form and nothing else.
func isOptions(p *a2av1.Part) bool {
	fields := p.GetData().GetStructValue().GetFields()
	return len(fields) == 1 && fields["options"].GetListValue() != nil
}

// asData returns the parts of an answer to the question q. If the question has data besides options,
// an answer that is the JSON of an object or a list is sent as data.
func asData(q, answer []*a2av1.Part) []*a2av1.Part {
	hasData := slices.ContainsFunc(q, func(p *a2av1.Part) bool { return p.GetData() != nil && !isOptions(p) })
	text := strings.TrimSpace(agent.Text(&a2av1.Message{Parts: answer}))
	if !hasData || len(answer) != 1 || !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return answer
	}
	v := &structpb.Value{}
	if protojson.Unmarshal([]byte(text), v) != nil {
		return answer
	}
	return []*a2av1.Part{{Content: &a2av1.Part_Data{Data: v}}}
}
