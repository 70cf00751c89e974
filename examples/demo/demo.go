// Package demo holds the teams that `team-server dev` serves in a folder without a team.yaml.
package demo

import "embed"

// Files are team.yaml and its script.
//
//go:embed team.yaml team.script.yaml
var Files embed.FS
