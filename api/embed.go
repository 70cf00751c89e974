// Package api holds the descriptions of the interfaces that are generated from proto/.
package api

import _ "embed"

// OpenAPI describes the REST surface: OpenAPI 2.0, JSON.
//
//go:embed openapi/team.swagger.json
var OpenAPI []byte
