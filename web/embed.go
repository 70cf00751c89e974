// Package web holds the Team Monitor: its source, and what is built of it, which is
// what the server serves. `make web` builds it anew.
package web

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files are those of the page, index.html first of all.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the folder is named above
	}
	return files
}
