// Package catalog is what is kept of agents and teams that are not in the server's
// file: the contract of the stores.
package catalog

import (
	"context"
	"errors"
	"time"
)

// ErrChanged: something else was changed in between.
var ErrChanged = errors.New("the catalog has changed")

// Entry is a document that holds a team with the agents that came with it, or one
// agent.
type Entry struct {
	// ID is that of the team or agent that it was made for.
	ID string
	// Data is the document, in the form of the server's file.
	Data []byte
	// Version is that of the catalog when the entry was put; the store sets it.
	Version int64
	// Created and Changed are when it was put first and last.
	Created, Changed time.Time
	// ChangedBy is who put it last: account/name.
	ChangedBy string
}

// Snapshot is the whole catalog as it was at one time.
type Snapshot struct {
	// Version grows with each change; 0 is an empty catalog that never changed.
	Version int64
	// Entries are sorted by ID.
	Entries []Entry
}

// Change is what happens at once.
type Change struct {
	Put    []Entry
	Delete []string // ids; one that is not there is no error
}

// Store keeps a catalog, for all replicas. Safe for concurrent use.
type Store interface {
	// Catalog returns the catalog as it is.
	Catalog(ctx context.Context) (Snapshot, error)
	// CatalogVersion returns the version of the catalog alone.
	CatalogVersion(ctx context.Context) (int64, error)
	// ChangeCatalog makes a change, all of it or nothing, of a catalog that is still
	// at a version; it returns the next one. It is durable then. ErrChanged, a2a.ErrBusy
	// where a team to delete has collaborations that have not ended.
	ChangeCatalog(ctx context.Context, version int64, c Change) (int64, error)
	// WatchCatalog returns a channel that receives when the catalog may have changed,
	// here or elsewhere. stop must be called.
	WatchCatalog() (wake <-chan struct{}, stop func())
}
