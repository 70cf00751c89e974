package gemini

import (
	"encoding/json"

	"github.com/agentteams/team-server/pkg/model"
)

// generateRequest is the body of a request to streamGenerateContent. Its types are those that the
// provider documents, as far as this package uses them.
type generateRequest struct {
	Contents          []*content       `json:"contents,omitempty"`
	SystemInstruction *content         `json:"systemInstruction,omitempty"`
	Tools             []tools          `json:"tools,omitempty"`
	ToolConfig        *toolConfig      `json:"toolConfig,omitempty"`
	GenerationConfig  generationConfig `json:"generationConfig"`
}

// content is a message of the conversation.
type content struct {
	Role  string  `json:"role"`
	Parts []*part `json:"parts,omitempty"`
}

// part is a part of a message, of an event of a stream, and of Turn.state. It has text, or one of the
// pointers.
type part struct {
	FileData         *fileData         `json:"fileData,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
	InlineData       *blob             `json:"inlineData,omitempty"`
	Text             string            `json:"text,omitempty"`
	Thought          bool              `json:"thought,omitempty"`
	ThoughtSignature []byte            `json:"thoughtSignature,omitempty"`
}

// fileData is a file that the provider reads from an address.
type fileData struct {
	FileURI  string `json:"fileUri"`
	MIMEType string `json:"mimeType"`
}

// blob is a file.
type blob struct {
	Data        []byte `json:"data,omitempty"`
	DisplayName string `json:"displayName,omitempty"`
	MIMEType    string `json:"mimeType,omitempty"`
}

type functionCall struct {
	ID   string                     `json:"id,omitempty"`
	Args map[string]json.RawMessage `json:"args,omitempty"`
	Name string                     `json:"name,omitempty"`
}

type functionResponse struct {
	ID       string   `json:"id,omitempty"`
	Name     string   `json:"name,omitempty"`
	Response response `json:"response"`
}

type response struct {
	Output string `json:"output"`
}

type tools struct {
	FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
}

type functionDeclaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

type toolConfig struct {
	FunctionCallingConfig functionCallingConfig `json:"functionCallingConfig"`
}

type functionCallingConfig struct {
	Mode                 string   `json:"mode"`
	AllowedFunctionNames []string `json:"allowedFunctionNames"`
}

// generationConfig has the fields of https://ai.google.dev/api/generate-content#generationconfig that this
// package uses.
type generationConfig struct {
	MaxOutputTokens  int64           `json:"maxOutputTokens,omitempty"`
	Temperature      *float64        `json:"temperature,omitempty"`
	TopP             *float64        `json:"topP,omitempty"`
	Seed             *int64          `json:"seed,omitempty"`
	StopSequences    []string        `json:"stopSequences,omitempty"`
	ThinkingConfig   *thinkingConfig `json:"thinkingConfig,omitempty"`
	ResponseMIMEType string          `json:"responseMimeType,omitempty"`
	ResponseSchema   json.RawMessage `json:"responseJsonSchema,omitempty"`
}

type thinkingConfig struct {
	Level string `json:"thinkingLevel"`
}

// event is an event of a stream.
type event struct {
	Error         json.RawMessage `json:"error"`
	ModelVersion  string          `json:"modelVersion"`
	UsageMetadata *usageMetadata  `json:"usageMetadata"`
	Feedback      *struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Candidates []*candidate `json:"candidates"`
}

// candidate is a piece of one of the answers.
type candidate struct {
	Index        int    `json:"index"`
	FinishReason string `json:"finishReason"`
	Content      struct {
		Parts []*part `json:"parts"`
	} `json:"content"`
}

// usageMetadata counts the tokens so far. Those of the cache are part of the prompt, those of tools
// and thoughts are not part of the others.
type usageMetadata struct {
	PromptTokenCount        model.Count `json:"promptTokenCount"`
	CachedContentTokenCount model.Count `json:"cachedContentTokenCount"`
	ToolUsePromptTokenCount model.Count `json:"toolUsePromptTokenCount"`
	CandidatesTokenCount    model.Count `json:"candidatesTokenCount"`
	ThoughtsTokenCount      model.Count `json:"thoughtsTokenCount"`
}
