package source

import (
	"cmp"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// meantKeys are keys of other systems, or of another place, by the message that they are written in, and what to write
// instead; the message "" is any.
var meantKeys = map[string]map[string]string{
	"ServerConfig": {
		"mcpservers": toolHint, "mcp_servers": toolHint, "mcp": toolHint,
		"llm": modelsHint, "llms": modelsHint, "model": modelsHint, "providers": modelsHint,
		"tasks": "write the steps as workflow: {steps: [...]} of a team",
	},
	"AgentConfig": {
		"system_prompt": instructionsHint, "systemprompt": instructionsHint, "system": instructionsHint, "prompt": instructionsHint,
		"system_message": instructionsHint, "role": instructionsHint, "goal": instructionsHint, "backstory": instructionsHint,
		"llm": `did you mean "model"?`, "mcp": toolHint, "mcpservers": toolHint, "mcp_servers": toolHint,
	},
	"TeamConfig": {
		"mode": modeHint, "type": modeHint, "process": modeHint, "strategy": modeHint, "agents": `did you mean "members"?`,
		"steps": "write workflow: {steps: [...]}", "rules": "write supervisor: {rules: [...]}", "leader": leaderHint,
		"manager": leaderHint, "system_prompt": leaderHint,
		"instructions": leaderHint, "model": leaderHint,
	},
	"ModelConfig": {
		"model": `did you mean "name"?`, "model_name": `did you mean "name"?`, "max_tokens": `did you mean "max_output_tokens"?`,
		"url": `did you mean "base_url"?`, "api_base": `did you mean "base_url"?`, "endpoint": `did you mean "base_url"?`, "type": `did you mean "provider"?`,
	},
	"McpTool": {
		"args": "write the arguments after the program: command: [PROGRAM, ARGUMENT]", "arguments": "write the arguments after the program: command: [PROGRAM, ARGUMENT]",
		"transport": "remove it: command means stdio, url means streamable HTTP", "type": "remove it: command means stdio, url means streamable HTTP",
		"token": `did you mean "bearer"?`, "api_key": `did you mean "bearer"?`,
	},
	"ApiKey":       {"key": hashHint, "api_key": hashHint, "token": hashHint, "value": hashHint, "secret": hashHint, "password": hashHint, "hash": hashHint},
	"WorkflowStep": {"approve": humanHint, "confirm": humanHint, "member": `did you mean "agent"?`, "depends_on": `did you mean "after"?`},
}

const (
	instructionsHint = `did you mean "instructions"?`
	toolHint         = "write tools: {NAME: {mcp: {command: [PROGRAM, ARGUMENT]}}}, and tools: [NAME] in the agent"
	modelsHint       = "write models: {NAME: {provider: openai, name: MODEL}}, and model: NAME in the agent"
	modeHint         = "remove it: the mode is the key supervisor, workflow, coordinator, swarm, route or broadcast, with its settings"
	hashHint         = "keys are stored as SHA-256: write sha256: with the output of printf %s KEY | sha256sum"
	leaderHint       = "write coordinator: {model: NAME, instructions: TEXT}, or coordinator: {leader: AGENT}"
	humanHint        = `write ask: "Send this?" to ask people, and options: [yes, no] beside it`
)

// hintFor returns what to write in place of an unknown key of a message.
func hintFor(m protoreflect.MessageDescriptor, key string, known []string) string {
	meant := meantKeys[string(m.Name())][strings.ToLower(key)]
	if f := m.Fields().ByName("settings"); meant == "" && f != nil && f.Message() != nil {
		if inner := f.Message().Fields().ByTextName(strings.ToLower(key)); inner != nil {
			meant = "write settings: {" + inner.TextName() + ": VALUE}"
		}
	}
	return cmp.Or(meant, Suggest(key, known))
}

// asList returns how to write a text where a list of values is expected.
func asList(value *yaml.Node, f protoreflect.FieldDescriptor) string {
	split := func(r rune) bool { return r == ',' || r == ' ' && f.TextName() == "command" }
	words := strings.FieldsFunc(value.Value, split)
	for i, word := range words {
		words[i] = strings.TrimSpace(word)
	}
	return "write " + f.TextName() + ": [" + strings.Join(words, ", ") + "]"
}
