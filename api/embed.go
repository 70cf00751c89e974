// Package api holds the descriptions of the interfaces that are generated from proto/.
package api

import "embed"

// OpenAPI describes the REST surface: OpenAPI 2.0, JSON.
//
//go:embed openapi/team.swagger.json
var OpenAPI []byte

// TeamSchema is the JSON Schema of the configuration file, for editors.
//
//go:embed schema/team.schema.json
var TeamSchema []byte

// TestSchema is the JSON Schema of test files, for editors.
//
//go:embed schema/test.schema.json
var TestSchema []byte

// Protos holds the Agent service and what it imports, below the folder protos: for agents in other languages, without
// the options that other protos define.
//
//go:embed protos
var Protos embed.FS
