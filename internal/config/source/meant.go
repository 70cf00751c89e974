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
		"tasks": "write the steps as workflow: {steps: [...]} of a team", "limits": limitsHint, "timeout": limitsHint, "max_cost": limitsHint,
	},
	"AgentConfig": {
		"system_prompt": instructionsHint, "systemprompt": instructionsHint, "system": instructionsHint, "prompt": instructionsHint,
		"system_message": instructionsHint, "role": instructionsHint, "goal": instructionsHint, "backstory": instructionsHint,
		"stream": streamHint, "streaming": streamHint, "max_iterations": turnsHint, "max_iter": turnsHint,
		"handoffs": handoffHint, "handoff": handoffHint, "sub_agents": membersHint, "members": membersHint,
		"llm": `did you mean "model"?`, "mcp": toolHint, "mcpservers": toolHint, "mcp_servers": toolHint,
	},
	"TeamConfig": {
		"mode": modeHint, "type": modeHint, "process": modeHint, "strategy": modeHint, "agents": `did you mean "members"?`,
		"steps": "write workflow: {steps: [...]}", "rules": "write supervisor: {rules: [...]}", "leader": leaderHint,
		"edges": edgesHint, "nodes": edgesHint, "graph": edgesHint, "sub_agents": `did you mean "members"?`,
		"manager": leaderHint, "system_prompt": leaderHint,
		"instructions": leaderHint, "model": leaderHint,
	},
	"ModelConfig": {
		"model": `did you mean "name"?`, "model_name": `did you mean "name"?`, "max_tokens": `did you mean "max_output_tokens"?`,
		"url": `did you mean "base_url"?`, "api_base": `did you mean "base_url"?`, "endpoint": `did you mean "base_url"?`, "type": `did you mean "provider"?`,
	},
	"ScenarioFile": {"tests": scenariosHint, "cases": scenariosHint},
	"Scenario": {
		"input": sendHint, "prompt": sendHint, "message": sendHint, "text": sendHint, "ask": sendHint, "expect": wantHint, "expected": wantHint, "assert": wantHint,
		"agent": `did you mean "team"?`, "script": "write models: {MODEL: {agents: {AGENT: [{text: TEXT}]}}}",
	},
	"Price": {
		"prompt": `did you mean "input"?`, "input_tokens": `did you mean "input"?`, "completion": `did you mean "output"?`, "output_tokens": `did you mean "output"?`,
		"cached": `did you mean "cached_input"?`, "cache_read": `did you mean "cached_input"?`,
	},
	"ServerSettings": {"listen": listenHint, "address": listenHint, "host": listenHint, "port": listenHint},
	"LoopConfig": {
		"max_iterations": `did you mean "max_rounds"?`, "iterations": `did you mean "max_rounds"?`, "max": `did you mean "max_rounds"?`, "rounds": `did you mean "max_rounds"?`,
		"until": `did you mean "exit_when"?`, "when": `did you mean "exit_when"?`, "stop_when": `did you mean "exit_when"?`, "exit": `did you mean "exit_when"?`,
		"members": "write members beside loop", "agents": "write members: [...] beside loop", "steps": "write members: [...] beside loop",
	},
	"HumanStep": {"choices": `did you mean "options"?`},
	"McpTool": {
		"args": "write the arguments after the program: command: [PROGRAM, ARGUMENT]", "arguments": "write the arguments after the program: command: [PROGRAM, ARGUMENT]",
		"transport": "remove it: command means stdio, url means streamable HTTP", "type": "remove it: command means stdio, url means streamable HTTP",
		"token": `did you mean "bearer"?`, "api_key": `did you mean "bearer"?`,
	},
	"ApiKey": {"key": hashHint, "api_key": hashHint, "token": hashHint, "value": hashHint, "secret": hashHint, "password": hashHint, "hash": hashHint},
	"WorkflowStep": {"approve": humanHint, "confirm": humanHint, "member": `did you mean "agent"?`, "depends_on": `did you mean "after"?`, "needs": `did you mean "after"?`,
		"choices": `did you mean "options"?`, "prompt": `did you mean "task"?`, "input": `did you mean "task"?`, "instructions": `did you mean "task"?`,
		"if": `did you mean "when"?`, "condition": `did you mean "when"?`, "loop": `did you mean "repeat"?`},
}

const (
	instructionsHint = `did you mean "instructions"?`
	toolHint         = "write tools: {NAME: {mcp: {command: [PROGRAM, ARGUMENT]}}}, and tools: [NAME] in the agent"
	modelsHint       = "write models: {NAME: {provider: openai, name: MODEL}}, and model: NAME in the agent"
	modeHint         = "remove it: the mode is the key supervisor, workflow, coordinator, swarm, route, broadcast, loop or program, with its settings"
	hashHint         = "keys are stored as SHA-256: write sha256: with the output of printf %s KEY | sha256sum"
	leaderHint       = "write coordinator: {model: NAME, instructions: TEXT}, or coordinator: {leader: AGENT}"
	scenariosHint    = `did you mean "scenarios"?`
	sendHint         = `did you mean "send"?`
	wantHint         = `did you mean "want"?`
	limitsHint       = "write limits: {...} in a team or an agent"
	streamHint       = "remove it: clients choose whether they are answered as a stream"
	turnsHint        = "write limits: {max_turns: NUMBER}"
	handoffHint      = "write a team: teams: {NAME: {members: [...], swarm: {entry_member: AGENT}}}"
	membersHint      = "write a team: teams: {NAME: {members: [...], coordinator: {leader: AGENT}}}"
	edgesHint        = "write workflow: {steps: [...]}; a step says with after: [STEP] which steps it follows"
	listenHint       = "write http: HOST:PORT, for example 127.0.0.1:8080"
	humanHint        = `write ask: "Send this?" to ask people, and options: [yes, no] beside it`
)

// hintFor returns what to write in place of an unknown key of a message.
func hintFor(m protoreflect.MessageDescriptor, key string, known []string) string {
	meant := meantKeys[string(m.Name())][strings.ToLower(key)]
	if meant == "" && Nearest(key, known) == "" {
		meant = below(m, strings.ToLower(key))
	}
	return cmp.Or(meant, Suggest(key, known))
}

// below returns how to write a key that belongs to a message below m, if there is one such message.
func below(m protoreflect.MessageDescriptor, key string) string {
	found := ""
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.Message() == nil || f.IsMap() || f.IsList() || f.Message().Fields().ByTextName(key) == nil {
			continue
		}
		if found != "" {
			return ""
		}
		found = "write " + f.TextName() + ": {" + key + ": VALUE}"
	}
	return found
}

// forms are how messages are written, for those in whose place a text, number or list is tried.
var forms = map[string]string{
	"ModelConfig":       "{provider: openai, name: MODEL}",
	"AgentConfig":       "{model: NAME, instructions: TEXT}",
	"TeamConfig":        "{members: [AGENT], coordinator: {model: NAME}}",
	"CoordinatorConfig": "{leader: AGENT}, or {model: NAME}",
	"WorkflowConfig":    "{steps: [...]}",
	"SupervisorConfig":  "{rules: [...]}",
	"SwarmConfig":       "{entry_member: AGENT}",
	"LoopConfig":        "{exit_when: CONDITION, max_rounds: NUMBER}",
	"RouteConfig":       "{model: NAME}",
	"BroadcastConfig":   "{model: NAME}",
	"RouterConfig":      "{model: NAME}",
	"ToolConfig":        "{mcp: {command: [PROGRAM, ARGUMENT]}}",
	"McpTool":           "{command: [PROGRAM, ARGUMENT]}, or {url: URL}",
	"Price":             "{input: X, output: Y} in USD per million tokens",
	"Limits":            "{max_cost: X, timeout: 5m}",
	"TextExpectation":   "{contains: [TEXT]}",
	"RetryConfig":       "{attempts: NUMBER}",
	"ReviewConfig":      "{judge: {model: NAME}}",
}

// formOf returns how to write a value of a field in place of one of another kind, or "".
func formOf(value *yaml.Node, f protoreflect.FieldDescriptor, entry bool) string {
	switch {
	case value.Kind == yaml.SequenceNode && f.IsMap() && f.MapValue().Message() != nil:
		return "write a name before each, without a dash: " + f.TextName() + ": {NAME: {...}}"
	case f.IsMap():
		return "write " + f.TextName() + ": {NAME: VALUE}"
	case value.Kind == yaml.SequenceNode && !f.IsList() && f.Kind() == protoreflect.StringKind:
		return "write one text; for several lines write | behind the key, and the lines indented below it"
	case f.Message() == nil || forms[string(f.Message().Name())] == "":
		return ""
	case entry:
		return "write " + forms[string(f.Message().Name())]
	}
	return "write " + f.TextName() + ": " + forms[string(f.Message().Name())]
}

// asList returns how to write a text where a list of values is expected.
func asList(value *yaml.Node, f protoreflect.FieldDescriptor) string {
	if strings.Contains(value.Value, "://") && f.TextName() == "command" {
		return "write url: URL in place of command"
	}
	split := func(r rune) bool { return r == ',' || r == ' ' && f.TextName() == "command" }
	words := strings.FieldsFunc(value.Value, split)
	for i, word := range words {
		words[i] = strings.TrimSpace(word)
	}
	return "write " + f.TextName() + ": [" + strings.Join(words, ", ") + "]"
}
