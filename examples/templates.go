package examples

import "embed"

// Templates are the examples with which a project of one's own can begin: a folder each, with a configuration, the script
// of its model, and tests.
//
//go:embed coordinator workflow supervisor swarm support-desk research
var Templates embed.FS
