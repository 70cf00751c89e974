package tracing

import "go.opentelemetry.io/otel/attribute"

// conventions is the version of the semantic conventions for generative AI whose names the spans have: a release
// of github.com/open-telemetry/semantic-conventions-genai. All of them have the status Development there, so
// later versions may have other names.
const conventions = "v0.1.0"

// Names of the conventions for generative AI. In them a workflow is an agent whose operation is invoke_workflow.
const (
	operationKey     = attribute.Key("gen_ai.operation.name")
	providerKey      = attribute.Key("gen_ai.provider.name")
	requestModelKey  = attribute.Key("gen_ai.request.model")
	responseModelKey = attribute.Key("gen_ai.response.model")
	finishKey        = attribute.Key("gen_ai.response.finish_reasons")
	inputTokensKey   = attribute.Key("gen_ai.usage.input_tokens")
	outputTokensKey  = attribute.Key("gen_ai.usage.output_tokens")
	conversationKey  = attribute.Key("gen_ai.conversation.id")
	agentNameKey     = attribute.Key("gen_ai.agent.name")
	agentIDKey       = attribute.Key("gen_ai.agent.id")
	toolNameKey      = attribute.Key("gen_ai.tool.name")
	toolTypeKey      = attribute.Key("gen_ai.tool.type")
	toolCallIDKey    = attribute.Key("gen_ai.tool.call.id")

	// Content, which is recorded only if that is configured.
	instructionsKey   = attribute.Key("gen_ai.system_instructions")
	inputMessagesKey  = attribute.Key("gen_ai.input.messages")
	outputMessagesKey = attribute.Key("gen_ai.output.messages")
	toolArgumentsKey  = attribute.Key("gen_ai.tool.call.arguments")
	toolResultKey     = attribute.Key("gen_ai.tool.call.result")

	opWorkflow = "invoke_workflow"
	opAgent    = "invoke_agent"
	opPlan     = "plan"
	opTool     = "execute_tool"
	opChat     = "chat"
)

// Names of the general conventions, and of those for remote procedure calls and HTTP.
const (
	errorTypeKey  = attribute.Key("error.type")
	rpcMethodKey  = attribute.Key("rpc.method")
	rpcStatusKey  = attribute.Key("rpc.response.status_code")
	httpMethodKey = attribute.Key("http.request.method")
	httpResendKey = attribute.Key("http.request.resend_count")
)

// Names of this server, where the conventions have none.
const (
	taskKey      = attribute.Key("team_server.task.id")
	stepKey      = attribute.Key("team_server.step")
	attemptKey   = attribute.Key("team_server.attempt")
	outcomeKey   = attribute.Key("team_server.outcome")
	accountKey   = attribute.Key("team_server.account")
	bindingKey   = attribute.Key("team_server.binding")
	costKey      = attribute.Key("team_server.usage.cost_usd")
	estimatedKey = attribute.Key("team_server.usage.estimated")

	// What another server has reported. Its own spans have it as their usage.
	claimedInputKey  = attribute.Key("team_server.claimed.input_tokens")
	claimedOutputKey = attribute.Key("team_server.claimed.output_tokens")
	claimedCostKey   = attribute.Key("team_server.claimed.cost_usd")

	// What the whole task has spent, on the span of its run only.
	totalInputKey  = attribute.Key("team_server.total.input_tokens")
	totalOutputKey = attribute.Key("team_server.total.output_tokens")
	totalCostKey   = attribute.Key("team_server.total.cost_usd")

	planStepsKey  = attribute.Key("team_server.plan.steps")
	planRuleKey   = attribute.Key("team_server.plan.rule")
	planReasonKey = attribute.Key("team_server.plan.reason") // content
	epochKey      = attribute.Key("team_server.claim.epoch")
	replicaKey    = attribute.Key("team_server.claim.replica")
	receiverKey   = attribute.Key("team_server.push.receiver")
	noticeKey     = attribute.Key("team_server.push.notification_id")
)

// Names of spans that have no operation of the conventions.
const (
	nameClaim = "claim"
	namePush  = "push notification"
	nameJudge = "judge"
	nameAsk   = "ask"
)

// Values of error.type besides the reasons of docs/errors.md.
const (
	errInterrupted = "interrupted" // the process that made the attempt has died
	errTool        = "tool_error"  // the tool has said that it failed
)
