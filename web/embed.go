// Package web holds the Team Monitor, a web page: its source, and in dist the build that
// the server serves. `make web` rebuilds it.
package web

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns the files of the built page, with index.html at the root.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // impossible: the path is valid
	}
	return files
}
